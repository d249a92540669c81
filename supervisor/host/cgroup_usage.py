"""Usage of a run, from its own cgroup: exact, at the cost of reading a few files."""

import os
import re

from supervisor.host.cgroup_names import run_of
from supervisor.host.run_usage import Taken

_CONTROL_FILES = ("cpu.stat", "memory.stat")
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How blanks are written in mountinfo (proc_pid_mountinfo(5))."""


def mount_of(proc: str = "/proc") -> tuple[str, str] | None:
    """Return the root and the mount point of the version 2 hierarchy; None: not mounted."""
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields, _, kind = line.partition(" - ")
                if kind.startswith("cgroup2 "):
                    root, place = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), word) for word in fields.split()[3:5])
                    return root.rstrip("/"), place
    except OSError:  # ENOENT: no /proc
        return None
    return None


def directory_of(pid: int, mount: tuple[str, str] | None, proc: str = "/proc") -> str | None:
    """Return the directory of the cgroup that has a process; None: there is none.

    Args:
        pid: Id of the process.
        mount: Result of `mount_of`.
        proc: Mount point of /proc.
    """
    if mount is None:
        return None
    root, place = mount
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            paths = [line[3:].rstrip("\n") for line in file if line.startswith("0::")]
    except OSError:  # ENOENT, ESRCH: it has ended
        return None
    if not paths or not paths[0].startswith(f"{root}/"):
        return None
    return place + paths[0].removeprefix(root)


def cgroup_of(run_id: str, pid: int, mount: tuple[str, str] | None, proc: str = "/proc") -> str | None:
    """Return the directory of the run's own cgroup with its usage; None: there is none.

    Args:
        run_id: The run.
        pid: Id of its main process.
        mount: Result of `mount_of`.
        proc: Mount point of /proc.
    """
    directory = directory_of(pid, mount, proc)
    if directory is None or run_of(directory) != run_id:
        return None
    has = all(os.path.exists(f"{directory}/{name}") for name in _CONTROL_FILES)
    return directory if has else None


def taken(directory: str) -> Taken | None:
    """Return the total usage of a cgroup's processes; None: it is gone.

    Memory is resident memory as in /proc, without counting any page twice. It is not all of memory.current, most of
    which may be the page cache of files that were only read.
    """
    try:
        cpu = _numbers(f"{directory}/cpu.stat")
        memory = _numbers(f"{directory}/memory.stat")
        processes = _text(f"{directory}/cgroup.procs").count("\n")
    except OSError:  # ENOENT, ENODEV: it was removed
        return None
    io = _io(f"{directory}/io.stat")
    return Taken(
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
    """Return the bytes of all devices: read, written; None without that controller."""
    try:
        words = _text(path).split()
    except OSError:  # ENOENT: the controller is off
        return None
    sums = {"rbytes": 0, "wbytes": 0}
    for word in words:
        name, _, value = word.partition("=")
        if name in sums:
            sums[name] += int(value)
    return sums["rbytes"], sums["wbytes"]
