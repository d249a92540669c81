"""Rolling restarts."""

from collections.abc import Callable
from dataclasses import replace

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


def rolling_unit(one: Bench) -> Unit:
    unit = taken_up(one)
    assert restarted(one, rolling=True) == DONE
    return unit


def next_one(one: Bench, unit: Unit, index: int) -> None:
    """Let the instance that is being restarted end and start again."""
    assert one.root.take("stop") == [run_of(unit.instances[index])]
    ends(one, unit.instances[index], cause="stop")
    run_all(one)


def test_one_instance_at_a_time(bench: Make) -> None:
    """Each instance is stopped when the previous one runs again, and each step is stored."""
    one = bench(SERVICE)
    unit = rolling_unit(one)
    before = [run_of(instance) for instance in unit.instances]
    for index in range(3):
        assert states(unit) == [UP] * index + [State.RESTARTING] + [UP] * (2 - index)
        assert stored_roll(record(one).rolling) == unit.rolling == RollingRestart(index, 3)
        next_one(one, unit, index)
    assert states(unit) == [UP] * 3
    assert unit.rolling is None
    assert record(one).rolling is None
    assert not set(before) & {run_of(instance) for instance in unit.instances}


def test_waits_for_health(bench: Make) -> None:
    """With healthy_after, the next instance waits until the previous one is healthy."""
    one = bench(SERVICE.replace('"0s"', '"1h"'))
    unit = rolling_unit(one)
    next_one(one, unit, 0)
    assert states(unit) == [UP] * 3
    assert one.root.take("stop") == []
    assert unit.rolling == RollingRestart(0, 3)


def test_stops_at_the_first_failure(bench: Make) -> None:
    """After a failure the remaining instances are not restarted, and a notification says so."""
    one = bench(SERVICE.replace('"0s"', '"1h"'))
    unit = rolling_unit(one)
    last = run_of(unit.instances[2])
    unit.instances[1].failures = 0
    one.root.take("stop")
    ends(one, unit.instances[0], cause="stop")
    run_all(one)
    ends(one, unit.instances[0], status=1 << 8)
    assert unit.rolling is None
    assert record(one).rolling is None
    assert states(unit) == [State.FATAL, UP, UP]
    assert run_of(unit.instances[2]) == last
    assert one.root.take("stop") == []
    found = {told.kind: told for told in notifications.page(one.store.database, 10)}
    assert "2 of 3 instances were not restarted" in found["service.rolling"].body
    assert restarted(one, "2", rolling=True) == DONE


def test_stops_at_a_failure_without_a_delay(bench: Make) -> None:
    """An instance that failed stops the rolling restart even if it restarts without a delay."""
    one = bench(SERVICE.replace('"0s"', '"1h"').replace('"1h"\nrestart_attempts = 0', '"0s"\nrestart_attempts = 3'))
    unit = rolling_unit(one)
    one.root.take("stop")
    ends(one, unit.instances[0], cause="stop")
    run_all(one)
    ends(one, unit.instances[0], status=1 << 8)
    assert unit.rolling is None
    assert one.root.take("stop") == []


def test_second_restart(bench: Make) -> None:
    """During a rolling restart any other restart is refused, and a repeated request with the same id is accepted."""
    one = bench(SERVICE)
    unit = rolling_unit(one)
    for rolling in (False, True):
        assert restarted(one, "2", rolling=rolling)["status"] == 409
    assert restarted(one, "1", rolling=True) == DONE
    assert unit.rolling == RollingRestart(0, 3)
    assert answer_to(one, "service_start") == DONE
    assert unit.rolling == RollingRestart(0, 3)


def test_stop_ends_it(bench: Make) -> None:
    """A stop ends the rolling restart, and a later start does not resume it."""
    one = bench(SERVICE)
    unit = rolling_unit(one)
    assert answer_to(one, "service_stop") == DONE
    assert unit.rolling is None
    for instance in unit.instances:
        ends(one, instance, cause="stop")
    assert states(unit) == [State.STOPPED] * 3
    answer_to(one, "service_start")
    one.root.take("stop")
    run_all(one)
    assert one.root.take("stop") == []
    assert states(unit) == [UP] * 3


def test_scheduler_restart(bench: Make) -> None:
    """The next scheduler continues at the instance that was being restarted, which may be ready already."""
    one = bench(SERVICE)
    unit = taken_up(one)
    unit.rolling = RollingRestart(1, 3)
    update_task(one.store.database, "s", rolling="[1, 3]")
    second = ServiceController(
        one.core, one.engine, one.user_lookup, one.watcher, Notifications(one.config), first=False
    )
    one.engine.connect(second)
    one.controller = second
    change = one.committer.change()
    second.take_over(unit, change)
    one.committer.commit(change)
    run_all(one)
    assert unit.rolling == RollingRestart(2, 3)
    next_one(one, unit, 2)
    assert unit.rolling is None


def test_fewer_instances(bench: Make) -> None:
    """Removed instances do not count as remaining."""
    one = bench(SERVICE)
    unit = rolling_unit(one)
    service = unit.service
    assert service is not None
    change = one.committer.change()
    one.controller.replace(unit, replace(service, instances=2), change)
    one.committer.commit(change)
    one.store.work_all()
    assert stored_roll(record(one).rolling) == unit.rolling == RollingRestart(0, 2)
