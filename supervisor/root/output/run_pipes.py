"""What the pump asks the kernel about the pipes and terminals of runs, and how it enlarges them."""

import errno
import fcntl
import termios

_TERMINAL_BYTES = 131072
"""More than a pseudo-terminal holds: 64 KiB in the driver (drivers/tty/tty_buffer.c) and a line discipline's 4 KiB."""

_WIDE_BYTES = 262144


def is_empty(fd: int) -> bool:
    """Return whether a pipe without writers is empty.

    EPOLLHUP alone does not prove it: the kernel checks for data before it checks for writers (pipe_poll, fs/pipe.c).
    """
    return not any(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))


def capacity(fd: int) -> int:
    """Return the capacity of a pipe or pseudo-terminal in bytes."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except OSError as err:
        if err.errno != errno.EBADF:
            raise
        return _TERMINAL_BYTES  # EBADF: no pipe


def is_wide(fd: int) -> bool:
    """Return whether a pipe has the capacity that `widen` sets."""
    return capacity(fd) >= _WIDE_BYTES


def widen(fd: int) -> bool:
    """Enlarge a pipe to 256 KiB; return whether the kernel allows it. It limits the pipe memory of a user (pipe(7)).

    A pipe that the writer has made larger keeps its size.
    """
    try:
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) >= _WIDE_BYTES:
            return True
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WIDE_BYTES)
    except OSError as err:
        if err.errno not in (errno.EBADF, errno.EBUSY, errno.EPERM, errno.ENOMEM):
            raise
        return False  # EBADF: not a pipe; EBUSY: the writer has just enlarged the pipe and filled it
    return True
