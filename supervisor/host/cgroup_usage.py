"""Resource usage of a run from its own cgroup: exact, and cheap because only a few files are read."""

import os
import re

from supervisor.host.cgroup_names import run_of
from supervisor.host.run_usage import TotalUsage

_CONTROL_FILES = ("cpu.stat", "memory.stat")
_OCTAL = re.compile(r"\\([0-7]{3})")
"""The escape sequence for a space and other characters in mountinfo (proc_pid_mountinfo(5))."""


def mount_of(proc: str = "/proc") -> tuple[str, str] | None:
    """Return the root and the mount point of the version 2 hierarchy; None if it is not mounted."""
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields, _, kind = line.partition(" - ")
                if kind.startswith("cgroup2 "):
                    root, mount_point = (
                        _OCTAL.sub(lambda code: chr(int(code[1], 8)), word) for word in fields.split()[3:5]
                    )
                    return root.rstrip("/"), mount_point
    except OSError:  # ENOENT: no /proc
        return None
    return None


def directory_of(pid: int, mount: tuple[str, str] | None, proc: str = "/proc") -> str | None:
    """Return the directory of a process's cgroup; None if there is none.

    Args:
        pid: The id of the process.
        mount: The result of `mount_of`.
        proc: Where /proc is mounted.
    """
    if mount is None:
        return None
    root, mount_point = mount
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            paths = [line[3:].rstrip("\n") for line in file if line.startswith("0::")]
    except OSError:  # ENOENT, ESRCH: it has ended
        return None
    if not paths or not paths[0].startswith(f"{root}/"):
        return None
    return mount_point + paths[0].removeprefix(root)


def cgroup_of(run_id: str, pid: int, mount: tuple[str, str] | None, proc: str = "/proc") -> str | None:
    """Return the directory of the run's own cgroup; None if it has none or its usage is not counted.

    Args:
        run_id: The id of the run.
        pid: The id of its main process.
        mount: The result of `mount_of`.
        proc: Where /proc is mounted.
    """
    directory = directory_of(pid, mount, proc)
    if directory is None or run_of(directory) != run_id:
        return None
    has = all(os.path.exists(f"{directory}/{name}") for name in _CONTROL_FILES)
    return directory if has else None


def read_usage(directory: str) -> TotalUsage | None:
    """Return the total usage of a cgroup's processes; None if the cgroup was removed.

    Memory is resident memory as in /proc, but shared pages count once. It is not memory.current, which includes the
    page cache of files that were only read.
    """
    try:
        cpu = _numbers(f"{directory}/cpu.stat")
        memory = _numbers(f"{directory}/memory.stat")
        processes = _text(f"{directory}/cgroup.procs").count("\n")
    except OSError:  # ENOENT, ENODEV: it was removed
        return None
    io = _io(f"{directory}/io.stat")
    return TotalUsage(
        user_ms=cpu.get("user_usec", 0) // 1000,
        system_ms=cpu.get("system_usec", 0) // 1000,
        rss_bytes=memory.get("anon", 0) + memory.get("file_mapped", 0),
        processes=processes,
        read_bytes=None if io is None else io[0],
        written_bytes=None if io is None else io[1],
    )


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _numbers(path: str) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).splitlines())
    return {name: int(value) for name, value in pairs}


def _io(path: str) -> tuple[int, int] | None:
    """Return the bytes read from and written to all devices; None if the io controller is disabled."""
    try:
        words = _text(path).split()
    except OSError:  # ENOENT: the controller is disabled
        return None
    sums = {"rbytes": 0, "wbytes": 0}
    for word in words:
        name, _, value = word.partition("=")
        if name in sums:
            sums[name] += int(value)
    return sums["rbytes"], sums["wbytes"]
