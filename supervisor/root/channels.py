"""What the kernel tells of pipes and pseudo-terminals."""

import errno
import fcntl
import termios

_TERMINAL_BYTES = 131072
"""More than a pseudo-terminal holds: 64 KiB in the driver (drivers/tty/tty_buffer.c) and a line discipline's 4 KiB."""


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
