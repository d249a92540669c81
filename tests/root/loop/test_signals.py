"""Signals that the root handles, and signals that it ignores."""

import signal
from collections.abc import Iterator

import pytest

from supervisor.host.signal_sets import KEPT, ignored
from supervisor.root.loop.signals import IgnoredSignals, Signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    changed = (*numbers, signal.SIGTTIN, signal.SIGTTOU)
    before = [signal.getsignal(number) for number in changed]
    caught = Signals(numbers)
    yield caught
    caught.close()
    for number, handler in zip(changed, before, strict=True):
        signal.signal(number, handler)


def test_signal_storm(signals: Signals) -> None:
    """However many signals arrive before the loop looks, each kind is reported, and once."""
    for _ in range(5000):
        signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    assert signals.take() == {signal.SIGUSR1, signal.SIGUSR2}
    assert signals.take() == set()


def test_faults_and_sigtstp_keep_their_action() -> None:
    """Neither SIGTSTP nor signals that report a defect are ignored."""
    faults = {"ABRT", "SEGV", "BUS", "FPE", "ILL", "SYS", "TRAP"}
    assert {signal.Signals[f"SIG{name}"] for name in faults | {"TSTP"}} == KEPT
    assert not ignored(()) & KEPT


def test_other_deadly_signals_are_ignored() -> None:
    """Signals of timers, limits, real-time queues and the like do not end the daemon."""
    deadly = {"ALRM", "VTALRM", "PROF", "XCPU", "IO", "PWR", "STKFLT", "USR1", "RTMIN", "RTMAX"}
    assert ignored(()) >= {signal.Signals[f"SIG{name}"] for name in deadly} | {signal.SIGRTMIN + 7}
    assert signal.SIGUSR1 not in ignored([signal.SIGUSR1])


def test_ignored_signals_take_one_line_a_minute() -> None:
    """The first ignored signal is logged at once; signals of the following minute share one line."""
    signals_said: list[str] = []
    log = IgnoredSignals(signals_said.append)
    log.note({signal.SIGALRM}, 100.0)
    log.note({signal.SIGALRM}, 101.0)
    log.note({signal.SIGRTMIN + 1}, 159.9)
    assert signals_said == ["SIGALRM ignored"]
    log.note((), 161.0)
    assert signals_said[1:] == [f"SIGALRM, signal {signal.SIGRTMIN + 1} ignored"]
    log.note((), 300.0)
    assert len(signals_said) == 2
