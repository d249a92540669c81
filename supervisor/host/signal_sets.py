"""Signals of Linux by number, name and default action."""

import signal
from collections.abc import Iterable

CATCHABLE = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
"""All signals that can be blocked, ignored or caught."""
_FAULTS = {
    signal.SIGABRT,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSYS,
    signal.SIGTRAP,
}
STOPS_OF_TERMINALS = {signal.SIGTTIN, signal.SIGTTOU}
"""With SIGTTOU caught, the kernel would refuse each write to the terminal; ignored, it lets them through."""
_WITHOUT_EFFECT = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ}
"""By default, or because Python ignores them and reports an error of the system call instead."""

KEPT = frozenset({*_FAULTS, signal.SIGTSTP})
"""Signals that keep their default action: they tell of a defect of the daemon, or suspend it."""


def ignored(heeded: Iterable[int]) -> set[signal.Signals]:
    """Return the signals that would end the daemon, except the handled ones."""
    return {*CATCHABLE} - KEPT - STOPS_OF_TERMINALS - _WITHOUT_EFFECT - {*heeded}


def signal_name(number: int) -> str:
    """``SIGTERM`` and the like; real-time signals between the first and the last have no name (signal(7))."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
