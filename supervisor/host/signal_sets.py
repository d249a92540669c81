"""Sets of Linux signals, and their names."""

import signal
from collections.abc import Iterable

CATCHABLE: list[int] = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
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
"""Signals that stop a background process that uses its terminal. If SIGTTOU were caught, the kernel would refuse each
write to the terminal; if it is ignored, writes succeed."""
_WITHOUT_EFFECT = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ}
"""Signals that are ignored by default, or that Python ignores because the system call reports an error instead."""

KEPT = frozenset({*_FAULTS, signal.SIGTSTP})
"""Signals that keep their default action, because they reveal a defect of the daemon or suspend it."""


def ignored(heeded: Iterable[int]) -> set[int]:
    """Return the signals that would terminate the daemon and that it does not handle."""
    return {*CATCHABLE} - KEPT - STOPS_OF_TERMINALS - _WITHOUT_EFFECT - {*heeded}


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGTERM``, or ``signal 40`` for a real-time signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
