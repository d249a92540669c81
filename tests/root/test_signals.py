import signal
from collections.abc import Iterator

import pytest

from supervisor.root.signals import Signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.getsignal(number) for number in numbers]
    caught = Signals(numbers)
    yield caught
    caught.close()
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_no_signal_is_lost_in_a_storm(signals: Signals) -> None:
    """However many signals come before the loop looks, none of the kinds is missing, and then it is quiet."""
    for _ in range(5000):
        signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    assert signals.take() == {signal.SIGUSR1, signal.SIGUSR2}
    assert signals.take() == set()
