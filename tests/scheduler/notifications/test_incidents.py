"""Incidents: notifications about crash loops of services."""

from collections.abc import Callable

import pytest

from store import notifications
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import DONE, answer_to, ends, fails, in_time, record, restarted, run_all, taken_up

Make = Callable[[str], Bench]
ONCE = '[notify]\ncoalesce_window = "0s"\n'
"""A configuration without coalescing."""
FAILED = 1 << 8


def service(healthy_after: str = "1h", **keys: str) -> str:
    more = "".join(f"{name} = {value}\n" for name, value in keys.items())
    return f'{ONCE}[services.s]\nrun = "true"\nrestart_attempts = 0\nhealthy_after = "{healthy_after}"\n{more}'


def notified(harness: Bench) -> list[str]:
    harness.store.work_all()
    return [notification.kind for notification in reversed(notifications.page(harness.store.database, 100))]


def test_fatal_retries_are_one_incident(bench: Make) -> None:
    """A service that fatal_retry starts again and again is one incident, however long it lasts."""
    harness = bench(service(fatal_retry='"1ms"'))
    unit = taken_up(harness)
    (instance,) = unit.instances
    for failures in range(1, 4):
        ends(harness, instance, status=FAILED)
        assert (instance.state, instance.failures) == (State.FATAL, failures)
        in_time(harness, State.STARTING, instance)
        run_all(harness)
    assert notified(harness) == ["service.fatal"]


def test_unlimited_attempts(bench: Make) -> None:
    """With restart_attempts = "unlimited" a service is always restarted, however often it fails."""
    harness = bench(service().replace("restart_attempts = 0", 'restart_attempts = "unlimited"'))
    unit = taken_up(harness)
    (instance,) = unit.instances
    instance.failures = 20_000
    ends(harness, instance, status=FAILED)
    assert (instance.state, instance.failures) == (State.BACKOFF, 20_001)
    assert notified(harness) == []


def test_without_fatal_retry(bench: Make) -> None:
    """Without fatal_retry, a fatal instance waits for a command."""
    harness = bench(service())
    unit = taken_up(harness)
    ends(harness, unit.instances[0], status=FAILED)
    assert unit.instances[0].timer is None


def test_several_instances(bench: Make) -> None:
    """Instances that become fatal together are one incident, which ends when all of them are healthy."""
    harness = bench(service("0s", instances="3"))
    unit = taken_up(harness)
    for instance in unit.instances[:2]:
        fails(harness, instance)
    assert [instance.state for instance in unit.instances] == [State.FATAL, State.FATAL, State.RUNNING]
    assert notified(harness) == ["service.fatal"]
    assert record(harness).fatal_since is not None
    change = harness.committer.change()
    harness.controller.start(unit, change)
    harness.committer.commit(change)
    run_all(harness)
    assert [instance.state for instance in unit.instances] == [State.RUNNING] * 3
    assert notified(harness) == ["service.fatal", "service.recovered"]
    assert record(harness).fatal_since is None


@pytest.mark.parametrize("operation", ["service_start", "service_restart"])
def test_failure_after_a_command(bench: Make, operation: str) -> None:
    """A failure after a start or restart command is reported again."""
    harness = bench(service())
    unit = taken_up(harness)
    ends(harness, unit.instances[0], status=FAILED)
    assert answer_to(harness, operation, command="1", rolling=False) == DONE
    run_all(harness)
    ends(harness, unit.instances[0], status=FAILED)
    assert notified(harness) == ["service.fatal"] * 2


def test_stop_ends_the_incident(bench: Make) -> None:
    """A stop ends the incident, and a later start sends no recovery."""
    harness = bench(service("0s"))
    unit = taken_up(harness)
    fails(harness, unit.instances[0])
    assert answer_to(harness, "service_stop") == DONE
    assert record(harness).fatal_since is None
    assert answer_to(harness, "service_start") == DONE
    run_all(harness)
    assert unit.instances[0].state is State.RUNNING
    assert notified(harness) == ["service.fatal"]


def test_recovery_by_fatal_retry(bench: Make) -> None:
    """A recovery through fatal_retry is reported once."""
    harness = bench(service(fatal_retry='"1ms"'))
    unit = taken_up(harness)
    (instance,) = unit.instances
    ends(harness, instance, status=FAILED)
    in_time(harness, State.STARTING, instance)
    run_all(harness)
    harness.controller.watch_health(unit, instance, 0)
    harness.loop.round(0)
    assert instance.failures == 0
    assert notified(harness) == ["service.fatal", "service.recovered"]
    assert restarted(harness) == DONE
    ends(harness, instance, cause="stop")
    run_all(harness)
    assert notified(harness) == ["service.fatal", "service.recovered"]


def test_daemon_death_is_not_a_failure(bench: Make) -> None:
    """Runs that end by the death of the supervisor do not count as failures, under any restart policy."""
    harness = bench(service(restart='"never"'))
    unit = taken_up(harness)
    (instance,) = unit.instances
    assert instance.run is not None
    change = harness.committer.change()
    harness.engine.lost(instance.run, change)
    harness.committer.commit(change)
    assert (instance.state, instance.failures) == (State.BACKOFF, 0)
    assert notified(harness) == []
