"""Whether a process has ended, and its exit status although it is not a child of this one, through its pidfd.

Since Linux 6.15, the pidfd keeps the status after the parent has waited for the process (PIDFD_GET_INFO with
PIDFD_INFO_EXIT, include/uapi/linux/pidfd.h). While the process is a zombie, /proc/PID/stat contains the status.
"""

import contextlib
import fcntl
import os
import select
import struct

from supervisor.host.procfs import stat_fields

_INFO = struct.Struct("=QQ11Ii")
"""struct pidfd_info, 64 bytes: the mask, the cgroup, eleven ids, and the exit code as from wait4(2)."""
_PIDFD_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
"""_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)"""
_PIDFD_INFO_EXIT = 1 << 3
_START_FIELD, _EXIT_CODE_FIELD = 22, 52
_PIDFD_LINKS = ("anon_inode:[pidfd]", "pidfd:")
"""Since Linux 6.9, pidfds have a file system of their own (fs/pidfs.c)."""


def exit_status(pidfd: int, pid: int, start: int) -> int | None:
    """Return the wait status of a process that has ended; None if the kernel does not provide it.

    Args:
        pidfd: The pidfd of the process.
        pid: The id of the process.
        start: Its start time in clock ticks since the host booted, to detect a later process with the same id.
    """
    status = _status_of_pidfd(pidfd)
    if status is None:
        status = _status_of_zombie(pid, start)
    return (
        status if status is not None else _status_of_pidfd(pidfd)
    )  # its parent may have waited for it between the two reads


def _status_of_pidfd(pidfd: int) -> int | None:
    query = _INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13)
    with contextlib.suppress(OSError):  # ENOTTY, EINVAL: the kernel is too old; ESRCH: before 6.15, it was reaped
        mask, *_, status = _INFO.unpack(fcntl.ioctl(pidfd, _PIDFD_GET_INFO, query))
        if mask & _PIDFD_INFO_EXIT:
            return int(status)
    return None


def _status_of_zombie(pid: int, start: int) -> int | None:
    fields = stat_fields(pid)
    if len(fields) <= _EXIT_CODE_FIELD - 3 or fields[0] != b"Z" or int(fields[_START_FIELD - 3]) != start:
        return None
    return int(fields[_EXIT_CODE_FIELD - 3])


def has_ended(pidfd: int, within_s: float = 0.0) -> bool:
    """Return whether a process has ended; wait up to `within_s` seconds for its end."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def is_pidfd(fd: int) -> bool:
    """Return whether a descriptor is a pidfd."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(_PIDFD_LINKS)
    except OSError:  # /proc is not mounted
        return False
