"""Resource usage of a run from its own cgroup: exact, and cheap because only a few files are read."""

import contextlib
import os

from supervisor.host.cgroups import disk_bytes, mounts, parse_counters, path_of, read_text, run_of
from supervisor.host.run_usage import TotalUsage

_CONTROL_FILES = ("cpu.stat", "memory.stat")


def mount_of(proc: str = "/proc") -> tuple[str, str] | None:
    """Return the root and the mount point of the version 2 hierarchy; None if it is not mounted."""
    return next(iter(mounts(proc)), None)


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
    path = path_of(pid, proc)
    return mount_point + path.removeprefix(root) if path.startswith(f"{root}/") else None


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
        cpu = parse_counters(read_text(f"{directory}/cpu.stat"))
        memory = parse_counters(read_text(f"{directory}/memory.stat"))
        processes = read_text(f"{directory}/cgroup.procs").count("\n")
    except OSError:  # ENOENT, ENODEV: it was removed
        return None
    read_bytes = written_bytes = None
    with contextlib.suppress(OSError):  # ENOENT: the io controller is disabled
        read_bytes, written_bytes = disk_bytes(read_text(f"{directory}/io.stat"))
    return TotalUsage(
        user_ms=cpu.get("user_usec", 0) // 1000,
        system_ms=cpu.get("system_usec", 0) // 1000,
        rss_bytes=memory.get("anon", 0) + memory.get("file_mapped", 0),
        processes=processes,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )
