"""Restarts with ``restart_order = "new_first"``."""

from collections.abc import Callable

import pytest

from store import notifications
from supervisor.ipc.messages import Exited
from supervisor.scheduler.runs.live_units import RollingRestart, ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import DONE, answer_to, ends, restarted, run_all, run_of, states, stored, taken_up
from tests.scheduler.services.test_resumed_services import resumed

Make = Callable[[str], Bench]
SERVICE = (
    '[services.s]\nrun = "true"\nrestart_order = "new_first"\nready = { notify = true, timeout = "1h" }\n'
    'healthy_after = "0s"\nrestart_delay = "1h"\nrestart_attempts = 0\n'
)


def ready(harness: Bench, run_id: str) -> None:
    """Let a process report that it is ready."""
    harness.controller.run_notified(harness.engine.live[run_id], {"ready_at": 1})
    harness.store.work_all()
    harness.loop.round(0)
    harness.store.work_all()


def up(harness: Bench) -> Unit:
    """Start the service, and return it with all instances ready."""
    unit = taken_up(harness)
    for instance in unit.instances:
        ready(harness, run_of(instance))
    assert states(unit) == [State.RUNNING] * len(unit.instances)
    return unit


def next_of(instance: ServiceInstance) -> str:
    assert instance.next is not None
    return instance.next.id


def raised(harness: Bench) -> dict[str, str]:
    return {each.kind: each.body for each in notifications.page(harness.store.database, 10)}


def test_present_run_stops_when_the_next_one_is_ready(bench: Make) -> None:
    """The next run starts beside the present one, which is asked to stop once the next one is ready."""
    harness = bench(SERVICE)
    unit = up(harness)
    (instance,) = unit.instances
    before = run_of(instance)
    assert restarted(harness) == DONE
    following = next_of(instance)
    assert (run_of(instance), stored(harness)[0].run_id, stored(harness)[0].next_run) == (before, before, following)
    run_all(harness)
    assert (instance.state, instance.line, len(unit.active)) == (State.RUNNING, "starts its next process", 2)
    assert harness.root.take("stop") == []
    ready(harness, following)
    assert harness.root.take("stop") == [before]
    assert (run_of(instance), instance.next, instance.state, instance.probed) == (following, None, State.RUNNING, True)
    assert (stored(harness)[0].run_id, stored(harness)[0].next_run, stored(harness)[0].ready) == (following, None, True)
    harness.exited(before, cause="stop")
    harness.store.work_all()
    assert (instance.state, list(unit.active)) == (State.RUNNING, [following])
    assert raised(harness) == {}


@pytest.mark.parametrize("outcome", ["late", "dead", "not started"])
def test_next_run_that_does_not_become_ready(bench: Make, outcome: str) -> None:
    """If the next run fails before it is ready, the present one goes on, and a notification says so."""
    harness = bench(SERVICE)
    unit = up(harness)
    (instance,) = unit.instances
    before = run_of(instance)
    restarted(harness)
    following = next_of(instance)
    harness.store.work_all()
    if outcome != "not started":
        run_all(harness)
    if outcome == "late":
        harness.controller.run_unhealthy(harness.engine.live[following], "not ready within 1h")
        assert harness.root.take("stop") == [following]
    harness.exited(following, status=1 << 8, cause="unfit" if outcome == "late" else None)
    harness.store.work_all()
    assert (run_of(instance), instance.state, instance.next, instance.failures) == (before, State.RUNNING, None, 0)
    assert harness.root.take("stop") == []
    reason = "not ready within 1h" if outcome == "late" else "failed with exit code 1"
    assert instance.line == stored(harness)[0].detail == f"was not restarted: {reason}"
    assert raised(harness) == {
        "service.restart_failed": f"The next process of instance 0 did not replace the present one: {reason}."
    }
    assert restarted(harness, "2") == DONE
    run_all(harness)
    ready(harness, next_of(instance))
    assert harness.root.take("stop") == [before]


def test_rolling_restart(bench: Make) -> None:
    """A rolling restart replaces one instance after the other, and ends at the first that is not replaced."""
    harness = bench(f"{SERVICE}instances = 3\n")
    unit = up(harness)
    first, second, third = unit.instances
    olds = [run_of(instance) for instance in unit.instances]
    restarted(harness, rolling=True)
    run_all(harness)
    assert (second.next, third.next, unit.rolling) == (None, None, RollingRestart(0, 3))
    ready(harness, next_of(first))
    assert harness.root.take("stop") == [olds[0]]
    run_all(harness)
    assert unit.rolling == RollingRestart(1, 3)
    harness.exited(next_of(second), status=1 << 8)
    harness.store.work_all()
    assert [unit.rolling, third.next] == [None, None]
    assert [run_of(second), run_of(third)] == olds[1:]
    assert states(unit) == [State.RUNNING] * 3


def test_present_run_dies_meanwhile(bench: Make) -> None:
    """If the present run ends before the next one is ready, the next one is the instance from then on."""
    harness = bench(SERVICE)
    unit = up(harness)
    (instance,) = unit.instances
    restarted(harness)
    run_all(harness)
    following = next_of(instance)
    ends(harness, instance, status=1 << 8)
    assert (run_of(instance), instance.next, instance.state) == (following, None, State.STARTING)
    ready(harness, following)
    assert instance.state is State.RUNNING
    assert harness.root.take("stop") == []


@pytest.mark.parametrize("started", [True, False])
def test_stop_reaches_both(bench: Make, *, started: bool) -> None:
    """A stop ends the present and the next run, and nothing starts again."""
    harness = bench(SERVICE)
    unit = up(harness)
    (instance,) = unit.instances
    before = run_of(instance)
    restarted(harness)
    following = next_of(instance)
    if started:
        run_all(harness)
    answer_to(harness, "service_stop")
    stopped = harness.root.take("stop")
    assert set(stopped) == {before, following}
    for run_id in stopped:
        harness.exited(run_id, cause="stop")
        harness.store.work_all()
    assert (states(unit), unit.active, stored(harness)[0].next_run) == ([State.STOPPED], {}, None)


def test_second_restart(bench: Make) -> None:
    """Another restart replaces the next run, which may have an earlier definition."""
    harness = bench(SERVICE)
    unit = up(harness)
    (instance,) = unit.instances
    restarted(harness)
    run_all(harness)
    first = next_of(instance)
    restarted(harness, "2")
    assert harness.root.take("stop") == [first]
    run_all(harness)
    ready(harness, next_of(instance))
    assert run_of(instance) not in (first, None)
    assert raised(harness) == {}


def test_instance_that_is_not_running(bench: Make) -> None:
    """An instance without a ready process restarts as usual, and so does a crashed one."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    restarted(harness)
    assert states(unit) == [State.RESTARTING]
    ends(harness, unit.instances[0], cause="stop")
    run_all(harness)
    ready(harness, run_of(unit.instances[0]))
    unit.instances[0].healthy = True
    ends(harness, unit.instances[0], status=1 << 8)
    assert (states(unit), unit.instances[0].next) == ([State.BACKOFF], None)


@pytest.mark.parametrize("present", ["runs", "ended"])
def test_new_scheduler_goes_on_with_both(bench: Make, present: str) -> None:
    """A new scheduler continues with the present and the next run, or with the next one alone."""
    harness = bench(SERVICE)
    (instance,) = up(harness).instances
    before = run_of(instance)
    restarted(harness)
    run_all(harness)
    following = next_of(instance)
    at = harness.loop.now_ms()
    ended = Exited(run=before, status=1 << 8, started_at=at, ended_at=at)
    unit = resumed(
        harness,
        running={following: None} if present == "ended" else {before: None, following: None},
        exits=(ended,) if present == "ended" else (),
    )
    (instance,) = unit.instances
    if present == "ended":
        assert (run_of(instance), instance.next, instance.state) == (following, None, State.STARTING)
    else:
        assert (run_of(instance), next_of(instance), instance.state) == (before, following, State.RUNNING)
    ready(harness, following)
    assert (run_of(instance), instance.next, instance.state) == (following, None, State.RUNNING)
    assert harness.root.take("stop") == ([before] if present == "runs" else [])


@pytest.mark.parametrize("outcome", ["ended", "lost", "unstarted"])
def test_new_scheduler_without_the_next_run(bench: Make, outcome: str) -> None:
    """A next run that ended or was lost while no scheduler ran has failed; one that had not started starts."""
    harness = bench(SERVICE)
    (instance,) = up(harness).instances
    before = run_of(instance)
    restarted(harness)
    if outcome != "unstarted":
        run_all(harness)
    following = next_of(instance)
    at = harness.loop.now_ms()
    ended = Exited(run=following, status=1 << 8, started_at=at, ended_at=at)
    unit = resumed(harness, running={before: None}, exits=(ended,) if outcome == "ended" else ())
    (instance,) = unit.instances
    assert (run_of(instance), instance.state) == (before, State.RUNNING)
    if outcome == "unstarted":
        run_all(harness)
        ready(harness, next_of(instance))
        assert harness.root.take("stop") == [before]
    else:
        assert instance.next is None
        assert list(raised(harness)) == ["service.restart_failed"]
    assert len(unit.active) == (2 if outcome == "unstarted" else 1)
