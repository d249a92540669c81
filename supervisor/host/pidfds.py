"""The exit status of a process that is not our child, through its pidfd.

Linux keeps it with the pidfd since 6.15, once the parent has waited for the process: PIDFD_GET_INFO with
PIDFD_INFO_EXIT, in include/uapi/linux/pidfd.h. Before that, and as long as it is a zombie, /proc/PID/stat has it.
"""

import contextlib
import fcntl
import os
import struct

from supervisor.host.procfs import read

_INFO = struct.Struct("=QQ11Ii")
"""struct pidfd_info, 64 bytes: mask, cgroup, eleven ids, exit_code as wait4(2) has it."""
_PIDFD_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
"""_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)"""
_PIDFD_INFO_EXIT = 1 << 3
_START_FIELD, _EXIT_CODE_FIELD = 22, 52


def exit_status(pidfd: int, pid: int, start: int) -> int | None:
    """Wait status of a process that has ended; None when the kernel does not tell.

    Args:
        pidfd: of the process.
        pid: its id.
        start: when it started, in clock ticks since the host was booted: another one of this id is not it.
    """
    found = _kept(pidfd)
    if found is None:
        found = _of_zombie(pid, start)
    return found if found is not None else _kept(pidfd)  # it may have been waited for between the two


def _kept(pidfd: int) -> int | None:
    asked = _INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13)
    with contextlib.suppress(OSError):  # ENOTTY, EINVAL: an older kernel; ESRCH: one before 6.15, and it is gone
        mask, *_, status = _INFO.unpack(fcntl.ioctl(pidfd, _PIDFD_GET_INFO, asked))
        if mask & _PIDFD_INFO_EXIT:
            return int(status)
    return None


def _of_zombie(pid: int, start: int) -> int | None:
    # Field 2, the name, may hold blanks and parentheses (proc_pid_stat(5)).
    fields = read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) <= _EXIT_CODE_FIELD - 3 or fields[0] != b"Z" or int(fields[_START_FIELD - 3]) != start:
        return None
    return int(fields[_EXIT_CODE_FIELD - 3])


def is_pidfd(fd: int) -> bool:
    """Whether a descriptor is one of a process."""
    try:
        return "pidfd" in os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # no /proc
        return False
