"""Time limits of a shutdown."""

import pytest

from supervisor.root.process.stop_ladder import ShutdownProgress


def test_unkillable_process_is_abandoned() -> None:
    """The shutdown stops waiting for a process one second after its time limit, even if SIGKILL had no effect."""
    ending = ShutdownProgress(100.0, 8.0, managed=False, at_once=False)
    ending.note_live(101.0, 1)
    assert (ending.ask_at_s, ending.kill_at_s) == (106.0, 108.0)
    ending.note_live(108.5, 1)
    assert ending.give_up_at_s == 109.0


def test_progress_extends_the_shutdown() -> None:
    """While exits or messages of the scheduler arrive, the shutdown continues past its time limit."""
    ending = ShutdownProgress(0.0, 8.0, managed=False, at_once=False)
    for second in range(70):
        ending.note_live(float(second), 2000 - second)
        assert ending.give_up_at_s > second
    ending.note_live(72.0, 1931)
    assert ending.give_up_at_s == 69.0 + 5.0
    ending.note_message(73.0)
    assert ending.give_up_at_s == 73.0 + 5.0


@pytest.mark.parametrize("managed", [True, False])
def test_longest_shutdown(managed: bool) -> None:
    """A shutdown takes at most ten times its limit; under a service manager that waits, as long as runs keep ending."""
    ending = ShutdownProgress(0.0, 1.0, managed=managed, at_once=False)
    for second in range(12):
        ending.note_live(float(second), 2000 - second)
    assert ending.give_up_at_s == (16.0 if managed else 10.0)


def test_shutdown_extension_is_repeated() -> None:
    """After the shutdown's limit, the root asks the service manager each second for more time than it needs."""
    ending = ShutdownProgress(0.0, 8.0, managed=True, at_once=False)
    ending.note_live(0.0, 10)
    assert ending.patience_us(0.0) > 28_000_000
    assert ending.extension_us(7.9) is None
    ending.note_live(9.0, 9)
    assert ending.extension_us(9.0) == 25_000_000
    assert ending.extension_us(9.5) is None
    assert ending.extension_us(10.0) == 24_000_000


def test_no_extension_without_a_service_manager() -> None:
    """Without a service manager, the root asks for no extension."""
    assert ShutdownProgress(0.0, 8.0, managed=False, at_once=False).extension_us(9.0) is None


def test_immediate_shutdown() -> None:
    """An immediate shutdown kills all runs at once, and waits for their exits as usual."""
    ending = ShutdownProgress(50.0, 8.0, managed=False, at_once=True)
    assert (ending.kill_at_s, ending.due_s(50.0)) == (50.0, 50.0)
    ending = ShutdownProgress(50.0, 8.0, managed=False, at_once=False)
    ending.kill_remaining(52.0)
    assert ending.kill_at_s == 52.0
    ending.kill_remaining(53.0)
    assert ending.kill_at_s == 52.0
