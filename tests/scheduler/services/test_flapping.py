"""Services that fail again and again without becoming fatal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store import notifications
from supervisor.scheduler.runs.live_units import ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock
from tests.scheduler.service_bench import DONE, answer_to, ends, record, run_all, taken_up

FAILED = 1 << 8
SERVICE = """
[notify]
coalesce_window = "0s"
[services.s]
run = "true"
restart_attempts = 3
restart_delay = "1s"
healthy_after = "10s"
"""
WINDOW_MS = 600_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def harness(tmp_path: Path, clock: FakeClock) -> Iterator[Bench]:
    made = Bench(tmp_path, SERVICE, clock)
    yield made
    made.close()


def passes(harness: Bench, clock: FakeClock, ms: int) -> None:
    """Let time pass and fire due timers."""
    clock.advance(ms / 1000)
    harness.loop.round(0)
    run_all(harness)


def crashes(harness: Bench, clock: FakeClock, instance: ServiceInstance, times: int, status: int = FAILED) -> None:
    """Let the instance run for 25 s, end and restart, this many times."""
    for _ in range(times):
        passes(harness, clock, 25_000)
        assert instance.state is State.RUNNING
        ends(harness, instance, status=status)
        passes(harness, clock, 1_000)


def kinds(harness: Bench) -> list[str]:
    harness.store.work_all()
    return [notification.kind for notification in reversed(notifications.page(harness.store.database, 100))]


def events(harness: Bench) -> list[str]:
    rows = harness.store.database.rows("SELECT body FROM outbox WHERE kind = 'service.flapping' ORDER BY seq")
    return [body for (body,) in rows]


def flapping(harness: Bench, clock: FakeClock) -> Unit:
    unit = taken_up(harness)
    crashes(harness, clock, unit.instances[0], 6)
    assert unit.flapping_since is not None
    return unit


def test_repeated_failures_are_flapping(harness: Bench, clock: FakeClock) -> None:
    """The sixth failure within ten minutes makes a service flapping, with one notification and one event."""
    unit = taken_up(harness)
    (instance,) = unit.instances
    crashes(harness, clock, instance, 5)
    assert (kinds(harness), record(harness).flapping_since) == ([], None)
    crashes(harness, clock, instance, 4)
    assert instance.state is State.RUNNING
    assert kinds(harness) == ["service.flapping"]
    assert record(harness).flapping_since == unit.flapping_since is not None
    assert len(events(harness)) == 1
    (notification,) = notifications.page(harness.store.database, 1)
    assert notification.body == "Instance 0 failed 6 times within 10m. It is restarted each time."


def test_window_without_a_failure(harness: Bench, clock: FakeClock) -> None:
    """A flapping service is stable after a window without a failure; each failure restarts the window."""
    unit = flapping(harness, clock)
    passes(harness, clock, WINDOW_MS - 30_000)
    ends(harness, unit.instances[0], status=FAILED)
    passes(harness, clock, WINDOW_MS - 1_000)
    assert kinds(harness) == ["service.flapping"]
    passes(harness, clock, 1_000)
    assert kinds(harness) == ["service.flapping", "service.stable"]
    assert record(harness).flapping_since is None
    assert ['"flapping": true' in body or '"flapping":true' in body for body in events(harness)] == [True, False]


def test_rare_failures_do_not_count(harness: Bench, clock: FakeClock) -> None:
    """Failures that are more than a window apart never make a service flapping."""
    unit = taken_up(harness)
    for _ in range(20):
        passes(harness, clock, WINDOW_MS // 5)
        crashes(harness, clock, unit.instances[0], 1)
    assert kinds(harness) == []


def test_successes_and_restarts_do_not_count(harness: Bench, clock: FakeClock) -> None:
    """Successful exits and requested restarts are not failures."""
    unit = taken_up(harness)
    (instance,) = unit.instances
    crashes(harness, clock, instance, 10, status=0)
    for number in range(10):
        passes(harness, clock, 25_000)
        assert answer_to(harness, "service_restart", command=str(number), rolling=False) == DONE
        ends(harness, instance, status=FAILED, cause="stop")
        passes(harness, clock, 1_000)
    assert kinds(harness) == []


def test_stop_ends_flapping(harness: Bench, clock: FakeClock) -> None:
    """A stop ends the flapping without a notification, and earlier failures no longer count."""
    unit = flapping(harness, clock)
    assert answer_to(harness, "service_stop") == DONE
    ends(harness, unit.instances[0], cause="stop")
    assert record(harness).flapping_since is None
    assert answer_to(harness, "service_start") == DONE
    run_all(harness)
    crashes(harness, clock, unit.instances[0], 5)
    passes(harness, clock, 2 * WINDOW_MS)
    assert kinds(harness) == ["service.flapping"]


def test_fatal_ends_flapping(harness: Bench, clock: FakeClock) -> None:
    """An instance that becomes fatal ends the flapping; the service is not reported as stable."""
    unit = flapping(harness, clock)
    (instance,) = unit.instances
    for _ in range(4):
        ends(harness, instance, status=FAILED)
        passes(harness, clock, 60_000)
    assert instance.state is State.FATAL
    passes(harness, clock, 2 * WINDOW_MS)
    assert (kinds(harness), record(harness).flapping_since) == (["service.flapping", "service.fatal"], None)


@pytest.mark.parametrize("first", [False, True], ids=["scheduler", "daemon"])
def test_flapping_survives_restarts(harness: Bench, clock: FakeClock, first: bool) -> None:
    """The next scheduler knows that a service is flapping, and waits for a window without a failure."""
    flapping(harness, clock)
    harness.take_up(first=first)
    unit = harness.units["s"]
    assert len(unit.instances[0].failed_ends) == 6
    taken_up(harness)
    passes(harness, clock, WINDOW_MS - 1)
    assert kinds(harness) == ["service.flapping"]
    passes(harness, clock, 1)
    assert kinds(harness) == ["service.flapping", "service.stable"]


def test_failures_before_a_restart_count(harness: Bench, clock: FakeClock) -> None:
    """A new scheduler counts the failures that the previous one stored."""
    crashes(harness, clock, taken_up(harness).instances[0], 5)
    harness.take_up(first=True)
    crashes(harness, clock, taken_up(harness).instances[0], 1)
    assert kinds(harness) == ["service.flapping"]


def test_unlimited_failures(tmp_path: Path, clock: FakeClock) -> None:
    """With flap_restarts = "unlimited" no service is flapping."""
    harness = Bench(tmp_path, SERVICE + 'flap_restarts = "unlimited"\n', clock)
    crashes(harness, clock, taken_up(harness).instances[0], 20)
    assert kinds(harness) == []
    harness.close()
