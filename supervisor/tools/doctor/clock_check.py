"""Checks the host's clock with adjtimex(2), which it only queries."""

import ctypes
import time
from datetime import UTC, datetime

from supervisor.tools.doctor.finding import Finding

WHAT = "clock"
OLDEST = datetime(2026, 1, 1, tzinfo=UTC)
"""A clock that shows an earlier time is wrong, because this program did not exist then."""
_STA_UNSYNC = 0x40
_TIMEX_BYTES = 512
"""More than the size of struct timex on any architecture."""


class _Timex(ctypes.Structure):
    """The first fields of struct timex."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * _TIMEX_BYTES),
    )


def clock() -> Finding:
    """Check whether the clock shows a possible time and is synchronised."""
    return judged(time.time(), unsynchronised())


def judged(now_s: float, free: bool | None) -> Finding:
    """Return the finding about a clock that shows `now_s`; `free` is the result of :func:`unsynchronised`."""
    shown = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds")
    if now_s < OLDEST.timestamp():
        return Finding(WHAT, "fail", f"shows {shown}, which is in the past", "set the clock, and use NTP")
    if free:
        remedy = "run chrony, ntpd or systemd-timesyncd; ignore this if the host of a virtual machine keeps the time"
        return Finding(WHAT, "warn", f"shows {shown}; the kernel reports no time synchronisation", remedy)
    return Finding(WHAT, "ok", f"shows {shown}" + ("" if free is None else ", synchronised"))


def unsynchronised() -> bool | None:
    """Return whether the clock is not synchronised; None if the kernel does not report it."""
    timex = _Timex()
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    if adjtimex(ctypes.byref(timex)) < 0:  # EPERM, ENOSYS: a system call filter forbids it
        return None
    return bool(timex.status & _STA_UNSYNC)
