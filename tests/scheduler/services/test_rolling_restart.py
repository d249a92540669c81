"""Rolling restarts."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from store import notifications
from store.tasks import update_task
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.live_units import RollingRestart, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.rolling_restart import stored_roll
from supervisor.scheduler.services.service_controller import ServiceController
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import (
    DONE,
    answer_to,
    ends,
    record,
    restarted,
    run_all,
    run_of,
    states,
    taken_up,
)

Make = Callable[[str], Bench]
SERVICE = (
    '[services.s]\nrun = "true"\ninstances = 3\nhealthy_after = "0s"\nrestart_delay = "1h"\nrestart_attempts = 0\n'
)
UP = State.RUNNING


def rolling_unit(harness: Bench) -> Unit:
    unit = taken_up(harness)
    assert restarted(harness, rolling=True) == DONE
    return unit


def next_one(harness: Bench, unit: Unit, index: int) -> None:
    """Let the instance that is being restarted end and start again."""
    assert harness.root.take("stop") == [run_of(unit.instances[index])]
    ends(harness, unit.instances[index], cause="stop")
    run_all(harness)


def test_one_instance_at_a_time(bench: Make) -> None:
    """Each instance is stopped when the previous one runs again, and each step is stored."""
    harness = bench(SERVICE)
    unit = rolling_unit(harness)
    before = [run_of(instance) for instance in unit.instances]
    for index in range(3):
        assert states(unit) == [UP] * index + [State.RESTARTING] + [UP] * (2 - index)
        assert stored_roll(record(harness).rolling) == unit.rolling == RollingRestart(index, 3)
        next_one(harness, unit, index)
    assert states(unit) == [UP] * 3
    assert unit.rolling is None
    assert record(harness).rolling is None
    assert not set(before) & {run_of(instance) for instance in unit.instances}


def test_waits_for_health(bench: Make) -> None:
    """With healthy_after, the next instance waits until the previous one is healthy."""
    harness = bench(SERVICE.replace('"0s"', '"1h"'))
    unit = rolling_unit(harness)
    next_one(harness, unit, 0)
    assert states(unit) == [UP] * 3
    assert harness.root.take("stop") == []
    assert unit.rolling == RollingRestart(0, 3)


def test_stops_at_the_first_failure(bench: Make) -> None:
    """After a failure the remaining instances are not restarted, and a notification says so."""
    harness = bench(SERVICE.replace('"0s"', '"1h"'))
    unit = rolling_unit(harness)
    last = run_of(unit.instances[2])
    unit.instances[1].failures = 0
    harness.root.take("stop")
    ends(harness, unit.instances[0], cause="stop")
    run_all(harness)
    ends(harness, unit.instances[0], status=1 << 8)
    assert unit.rolling is None
    assert record(harness).rolling is None
    assert states(unit) == [State.FATAL, UP, UP]
    assert run_of(unit.instances[2]) == last
    assert harness.root.take("stop") == []
    by_kind = {notification.kind: notification for notification in notifications.page(harness.store.database, 10)}
    assert "2 of 3 instances were not restarted" in by_kind["service.rolling"].body
    assert restarted(harness, "2", rolling=True) == DONE


@pytest.mark.parametrize(
    ("roll", "text"),
    [
        (RollingRestart(0, 3), "; 2 of 3 instances were not restarted"),
        (RollingRestart(1, 3), "; 1 of 3 instances was not restarted"),
        (RollingRestart(2, 3), ""),
        (RollingRestart(0, 1), ""),
    ],
)
def test_instances_that_were_not_restarted(roll: RollingRestart, text: str) -> None:
    """A message about a failed rolling restart counts the remaining instances, if there are any."""
    assert roll.rest() == text


def test_stops_at_a_failure_without_a_delay(bench: Make) -> None:
    """An instance that failed stops the rolling restart even if it restarts without a delay."""
    harness = bench(SERVICE.replace('"0s"', '"1h"').replace('"1h"\nrestart_attempts = 0', '"0s"\nrestart_attempts = 3'))
    unit = rolling_unit(harness)
    harness.root.take("stop")
    ends(harness, unit.instances[0], cause="stop")
    run_all(harness)
    ends(harness, unit.instances[0], status=1 << 8)
    assert unit.rolling is None
    assert harness.root.take("stop") == []


def test_second_restart(bench: Make) -> None:
    """During a rolling restart any other restart is refused, and a repeated request with the same id is accepted."""
    harness = bench(SERVICE)
    unit = rolling_unit(harness)
    for rolling in (False, True):
        assert restarted(harness, "2", rolling=rolling)["status"] == 409
    assert restarted(harness, "1", rolling=True) == DONE
    assert unit.rolling == RollingRestart(0, 3)
    assert answer_to(harness, "service_start") == DONE
    assert unit.rolling == RollingRestart(0, 3)


def test_stop_ends_it(bench: Make) -> None:
    """A stop ends the rolling restart, and a later start does not resume it."""
    harness = bench(SERVICE)
    unit = rolling_unit(harness)
    assert answer_to(harness, "service_stop") == DONE
    assert unit.rolling is None
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    assert states(unit) == [State.STOPPED] * 3
    answer_to(harness, "service_start")
    harness.root.take("stop")
    run_all(harness)
    assert harness.root.take("stop") == []
    assert states(unit) == [UP] * 3


def test_scheduler_restart(bench: Make) -> None:
    """The next scheduler continues at the instance that was being restarted, which may be ready already."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    unit.rolling = RollingRestart(1, 3)
    update_task(harness.store.database, "s", rolling="[1, 3]")
    harness.daemon.first = False
    second = ServiceController(
        harness.core,
        harness.engine,
        harness.user_lookup,
        harness.watcher,
        Notifications(harness.config),
        harness.connection,
    )
    harness.engine.connect(second)
    harness.controller = second
    change = harness.committer.change()
    second.take_over(unit, change)
    harness.committer.commit(change)
    run_all(harness)
    assert unit.rolling == RollingRestart(2, 3)
    next_one(harness, unit, 2)
    assert unit.rolling is None


def test_fewer_instances(bench: Make) -> None:
    """Removed instances do not count as remaining."""
    harness = bench(SERVICE)
    unit = rolling_unit(harness)
    service = unit.service
    assert service is not None
    change = harness.committer.change()
    harness.controller.replace(unit, replace(service, instances=2), change)
    harness.committer.commit(change)
    harness.store.work_all()
    assert stored_roll(record(harness).rolling) == unit.rolling == RollingRestart(0, 2)
