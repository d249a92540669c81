"""The clocks of the host, the waits of a loop or thread, and how another thread ends them.

A part that decides by time gets its clock from its loop, so that a test can replace it by a clock that it sets.
"""

import contextlib
import ctypes
import errno
import os
import queue
import select
import threading
import time
import weakref
from typing import TypeVar

T = TypeVar("T")

_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC  # TFD_NONBLOCK and TFD_CLOEXEC are these
_ABSTIME, _CANCEL_ON_SET = 1, 2
_CLOCK_REALTIME = 0
_MS_IN_S, _NS_IN_MS = 1000, 1_000_000
_LONGEST_S = 3600.0
"""epoll_wait(2) takes milliseconds as an int, which is at most 24.8 days."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class WallTimer:
    """A kernel timer on the wall clock that also expires when the clock is set or the host resumes from sleep.

    It is a timerfd_create(2) timer with TFD_TIMER_CANCEL_ON_SET, called through ctypes because Python has it only since
    3.13. The descriptor becomes readable at the set time and when the clock is set.

    Raises:
        OSError: the kernel has no such timer, or a system call filter forbids it.
    """

    def __init__(self) -> None:
        self._fd: int = _libc.timerfd_create(_CLOCK_REALTIME, _NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise _timer_error("timerfd_create")
        weakref.finalize(self, os.close, self._fd)
        self._at_s: float | None = None
        self.set(0.0)

    def fileno(self) -> int:
        """Return the descriptor; when it is readable, call :meth:`clear` and check the clocks."""
        return self._fd

    def set(self, at_s: float) -> bool:
        """Expire when the wall clock reaches `at_s` (seconds since the epoch), or at once if that has passed.

        Return False if the clock was set since the last call (ECANCELED): check the clocks, and call this again.

        Raises:
            OSError: as in the constructor.
        """
        if at_s == self._at_s:
            return True
        self._at_s = at_s
        seconds, ms = divmod(max(1, round(at_s * _MS_IN_S)), _MS_IN_S)  # 0 disarms the timer
        expiry = _Itimerspec(value=_Timespec(seconds, ms * _NS_IN_MS))
        if not _libc.timerfd_settime(self._fd, _ABSTIME | _CANCEL_ON_SET, ctypes.byref(expiry), None):
            return True
        if ctypes.get_errno() != errno.ECANCELED:
            raise _timer_error("timerfd_settime")
        return False

    def clear(self) -> None:
        """Read the descriptor after it became readable; the next :meth:`set` then always arms the timer."""
        self._at_s = None
        with contextlib.suppress(OSError):  # EAGAIN: the timer was set again before this; ECANCELED: the clock was set
            os.read(self._fd, 8)


def _timer_error(name: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{name}: {os.strerror(code)}")


class Clock:
    """The clocks of the host; intervals use the monotonic one, schedules and records the wall clock.

    Waits end at a time of the monotonic clock.
    """

    def wall_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return monotonic seconds, without the time that the host sleeps."""
        return time.monotonic()

    def boot_s(self) -> float:
        """Return the seconds since the host booted, including its sleep."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def thread_s(self) -> float:
        """Return the processor seconds that this thread has used."""
        return time.thread_time()

    # Quoted, because gevent removes epoll from the module in API workers.
    def wait(self, epoll: "select.epoll", until_s: float | None) -> list[tuple[int, int]]:
        """Return the ready descriptors and their events; wait until `until_s` (None: no limit), at most an hour."""
        if until_s is None:
            return epoll.poll()
        return epoll.poll(max(0.0, min(until_s - time.monotonic(), _LONGEST_S)))

    def take(self, items: "queue.SimpleQueue[T]", until_s: float) -> T:
        """Return the next item of a queue; wait for one until `until_s`.

        Raises:
            queue.Empty: there was none.
        """
        return items.get(timeout=max(0.0, until_s - time.monotonic()))

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def alarm(self) -> WallTimer | None:
        """Return a new timer on the wall clock; None if the kernel or a system call filter does not allow one."""
        try:
            return WallTimer()
        except OSError:
            return None


class Wakeup:
    """An eventfd that one thread sets and for which the epoll of another thread waits. It is closed with its object."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.close = weakref.finalize(self, os.close, self._fd)
        """Closes the descriptor."""
        self._lock = threading.Lock()
        self._set = self._readable = self._held = False

    def fileno(self) -> int:
        """Return the descriptor, for epoll: readable while set, unless held."""
        return self._fd

    def set(self) -> None:
        """Wake the waiting thread. This needs a system call only if the event was not already set."""
        with self._lock:
            self._set = True
            self._show()

    def clear(self) -> None:
        """Reset the event; call it before the work."""
        with self._lock:
            self._set = False
            if self._readable:
                os.eventfd_read(self._fd)
                self._readable = False  # only after a successful read, so that the next call reads it otherwise

    def hold(self) -> None:
        """Delay the wake-up until :meth:`release`, because both threads would compete while the setter is busy."""
        with self._lock:
            self._held = True

    def release(self) -> None:
        """End the delay, and wake the waiting thread if the event was set."""
        with self._lock:
            self._held = False
            self._show()

    def _show(self) -> None:
        if self._set and not (self._held or self._readable):
            os.eventfd_write(self._fd, 1)
            self._readable = True
