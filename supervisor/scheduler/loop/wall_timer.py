"""A timer on the wall clock, which the kernel also ends when that clock is set or the host was asleep.

Linux has it as timerfd_create(2) with TFD_TIMER_CANCEL_ON_SET; Python offers it from 3.13 on.
"""

import contextlib
import ctypes
import errno
import os
import weakref

_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC  # TFD_NONBLOCK and TFD_CLOEXEC are these
_ABSTIME, _CANCEL_ON_SET = 1, 2
_CLOCK_REALTIME = 0
_MS_IN_S, _NS_IN_MS = 1000, 1_000_000

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class WallTimer:
    """One timer; its descriptor is readable when the time has come, and when the clock was set.

    Raises:
        OSError: The kernel has no such timer, or a filter of system calls keeps it from us.
    """

    def __init__(self) -> None:
        self._fd: int = _libc.timerfd_create(_CLOCK_REALTIME, _NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise _error("timerfd_create")
        weakref.finalize(self, os.close, self._fd)
        self._at_s: float | None = None
        self.set(0.0)

    def fileno(self) -> int:
        """Readable: call :meth:`clear` and look at the clocks."""
        return self._fd

    def set(self, at_s: float) -> bool:
        """Ring when the wall clock shows `at_s`, seconds since the epoch, or at once when it has shown that.

        Returns False when the clock was set since it was looked at.

        Raises:
            OSError: As at the beginning.
        """
        if at_s == self._at_s:
            return True
        self._at_s = at_s
        seconds, ms = divmod(max(1, round(at_s * _MS_IN_S)), _MS_IN_S)  # 0 would be never
        wanted = _Itimerspec(value=_Timespec(seconds, ms * _NS_IN_MS))
        if not _libc.timerfd_settime(self._fd, _ABSTIME | _CANCEL_ON_SET, ctypes.byref(wanted), None):
            return True
        if ctypes.get_errno() != errno.ECANCELED:
            raise _error("timerfd_settime")
        return False

    def clear(self) -> None:
        """It has rung."""
        self._at_s = None
        with contextlib.suppress(OSError):  # EAGAIN: it rang for what is no more; ECANCELED: the clock was set
            os.read(self._fd, 8)


def _error(name: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{name}: {os.strerror(code)}")
