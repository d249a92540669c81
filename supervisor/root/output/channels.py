"""What the kernel tells of pipes and pseudo-terminals."""

import errno
import fcntl
import termios

_TERMINAL_BYTES = 131072
"""More than a pseudo-terminal holds: 64 KiB in the driver (drivers/tty/tty_buffer.c) and a line discipline's 4 KiB."""

_WIDE_BYTES = 262144


def is_empty(fd: int) -> bool:
    """Whether a pipe without writers is at its end. Epoll cannot say: it looks for bytes first, then for writers."""
    return not any(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))


def capacity(fd: int) -> int:
    """Bytes that a pipe or pseudo-terminal can hold at most."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except OSError as err:
        if err.errno != errno.EBADF:
            raise
        return _TERMINAL_BYTES  # EBADF: no pipe


def is_wide(fd: int) -> bool:
    """Whether a pipe holds as much as `widen` lets it."""
    return capacity(fd) >= _WIDE_BYTES


def widen(fd: int) -> bool:
    """Let a pipe hold 256 KiB; whether that may be: pipe(7) limits what a user's pipes hold in all.

    Who writes may have made it hold more, and is not to get less.
    """
    try:
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) >= _WIDE_BYTES:
            return True
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WIDE_BYTES)
    except OSError as err:
        if err.errno not in (errno.EBADF, errno.EBUSY, errno.EPERM, errno.ENOMEM):
            raise
        return False  # EBADF: no pipe; EBUSY: it was made to hold more in this moment, and does
    return True
