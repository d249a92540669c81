"""Start, stop and restart of services; pause and resume of schedules."""

from collections.abc import Callable

import pytest

from store.errors import DiskFull
from store.runs.writes import get_run
from store.tasks import update_task
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import (
    DONE,
    answer_to,
    ends,
    in_time,
    record,
    restarted,
    run_all,
    run_of,
    send,
    states,
    stored,
    taken_up,
)

Make = Callable[[str], Bench]
SERVICE = (
    '[services.s]\nrun = "true"\ninstances = 2\nhealthy_after = "0s"\nrestart_delay = "1h"\nrestart_attempts = 0\n'
)


def test_stop_acts_first(bench: Make) -> None:
    """A stop signals the processes before it is stored, and is answered once all of it is stored."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    answers = send(harness, "service_stop", "s")
    assert harness.root.take("stop") == [run_of(instance) for instance in unit.instances]
    assert answers == []
    harness.store.work_all()
    assert answers == [DONE]
    assert record(harness).stopped
    assert [row.state for row in stored(harness)] == ["stopping"] * 2


def test_stopped_service_stays_down(bench: Make) -> None:
    """A stopped service stays down, its runs end as stopped, and a second stop changes nothing."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    assert answer_to(harness, "service_stop") == DONE
    assert answer_to(harness, "service_stop") == DONE
    assert len(harness.root.take("stop")) == 2
    first = unit.instances[0].run
    assert first is not None
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    assert states(unit) == [State.STOPPED] * 2
    assert answer_to(harness, "service_stop") == DONE
    assert harness.root.take("spawn") == []
    assert harness.row(first).end_reason == "stopped"


def test_stop_during_the_restart_delay(bench: Make) -> None:
    """A stop of a service that waits for its restart signals nothing, and the service stays down after the delay."""
    harness = bench(
        '[services.s]\nrun = "true"\nrestart_delay = "1ms"\n[services.t]\nrun = "true"\nrestart_delay = "1ms"\n'
    )
    unit, other = taken_up(harness), taken_up(harness, "t")
    ends(harness, unit.instances[0])
    assert answer_to(harness, "service_stop") == DONE
    assert states(unit) == [State.STOPPED]
    ends(harness, other.instances[0])
    in_time(harness, State.STARTING, other.instances[0])  # same delay, started later
    assert states(unit) == [State.STOPPED]


def test_stop_on_a_full_disk(bench: Make) -> None:
    """On a full disk a stop still ends the processes, and is answered only once it is stored."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    answers = send(harness, "service_stop", "s")
    harness.store.fail(DiskFull())
    assert len(harness.root.take("stop")) == 2
    assert answers == []
    assert states(unit) == [State.STOPPING] * 2


@pytest.mark.parametrize("operation", ["service_start", "service_restart", "task_pause", "task_resume"])
def test_failing_store(bench: Make, operation: str) -> None:
    """An operation that cannot be stored gets 503 and changes nothing."""
    harness = bench(SERVICE + '[tasks.t]\nrun = "true"\n')
    unit = taken_up(harness)
    answer_to(harness, "service_stop")
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    name = "t" if operation.startswith("task") else "s"
    answers = send(harness, operation, name, command="1", rolling=False)
    harness.store.fail(DiskFull())
    assert [answer["status"] for answer in answers] == [503]
    assert states(unit) == [State.STOPPED] * 2
    assert record(harness).stopped
    assert not harness.units["t"].paused


def test_start(bench: Make) -> None:
    """A start brings up a stopped service and leaves running instances alone."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    answer_to(harness, "service_stop")
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    assert answer_to(harness, "service_start") == DONE
    assert len(harness.root.take("spawn")) == 2
    assert not record(harness).stopped
    assert answer_to(harness, "service_start") == DONE
    assert harness.root.take("spawn") == []


def test_start_of_a_stopping_service(bench: Make) -> None:
    """A start of a stopping service takes effect after the stop, and a later stop overrides it."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    answer_to(harness, "service_stop")
    answer_to(harness, "service_start")
    assert [state.shown for state in states(unit)] == ["stopping"] * 2
    ends(harness, unit.instances[0], cause="stop")
    assert states(unit) == [State.STARTING, State.RESTARTING]
    assert len(harness.root.take("spawn")) == 1
    answer_to(harness, "service_stop")
    ends(harness, unit.instances[1], cause="stop")
    assert unit.instances[1].state is State.STOPPED


def test_concurrent_start_and_stop(bench: Make) -> None:
    """The later of a start and a stop wins in memory and in the store, although a stop does not wait for the store."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    started, stopped = send(harness, "service_start", "s"), send(harness, "service_stop", "s")
    harness.store.work_all()
    assert started == stopped == [DONE]
    assert (unit.stopped, record(harness).stopped) == (True, True)
    assert set(states(unit)) == {State.STOPPING}
    stopped, started = send(harness, "service_stop", "s"), send(harness, "service_start", "s")
    harness.store.work_all()
    assert started == stopped == [DONE]
    assert (unit.stopped, record(harness).stopped) == (False, False)
    assert set(states(unit)) == {State.RESTARTING}


def test_restart(bench: Make) -> None:
    """A restart ends all instances at once, and they start again without their restart delay."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    before = [run_of(instance) for instance in unit.instances]
    assert restarted(harness) == DONE
    assert harness.root.take("stop") == before
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    assert states(unit) == [State.STARTING] * 2
    assert len(harness.root.take("spawn")) == 2


@pytest.mark.parametrize(
    ("policy", "status", "state"),
    [("always", 1, State.FATAL), ("never", 0, State.EXITED), ("on_failure", 0, State.EXITED)],
)
@pytest.mark.parametrize("operation", ["service_start", "service_restart"])
def test_restart_after_a_final_state(bench: Make, operation: str, policy: str, status: int, state: State) -> None:
    """A start or restart brings back a fatal or exited instance with all its attempts."""
    harness = bench(f'[services.s]\nrun = "true"\nrestart = "{policy}"\nrestart_attempts = 0\n')
    unit = taken_up(harness)
    ends(harness, unit.instances[0], status=status << 8)
    assert states(unit) == [state]
    assert answer_to(harness, operation, command="1", rolling=False) == DONE
    assert states(unit) == [State.STARTING]
    assert unit.instances[0].failures == 0


def test_restart_of_a_stopped_service(bench: Make) -> None:
    """A restart starts a stopped service at once, rolling or not."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    for rolling in (False, True):
        answer_to(harness, "service_stop")
        for instance in unit.instances:
            ends(harness, instance, cause="stop")
        assert restarted(harness, str(rolling), rolling=rolling) == DONE
        assert states(unit) == [State.STARTING] * 2
        assert not record(harness).stopped
        run_all(harness)


def test_repeated_restart(bench: Make) -> None:
    """A restart repeated with the same id is accepted without another restart."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    assert restarted(harness, "1") == DONE
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    harness.root.take("stop")
    assert restarted(harness, "1") == DONE
    assert harness.root.take("stop") == []
    assert record(harness).last_restart == "1"
    assert restarted(harness, "2") == DONE
    assert len(harness.root.take("stop")) == 2


def test_refusals(bench: Make) -> None:
    """Unknown units get 404, the wrong kind 409, a shutdown 503; a stop is accepted even then."""
    harness = bench(SERVICE + '[tasks.t]\nrun = "true"\n')
    taken_up(harness)
    for operation in ("service_start", "service_stop", "service_restart", "task_pause", "task_resume"):
        more = {"command": "1", "rolling": False}
        assert answer_to(harness, operation, "x", **more)["status"] == 404
        assert answer_to(harness, operation, "s" if operation.startswith("task") else "t", **more)["status"] == 409
    harness.daemon.ending = True
    assert answer_to(harness, "service_start")["status"] == 503
    assert restarted(harness)["status"] == 503
    assert answer_to(harness, "service_stop") == DONE


TASK = '[tasks.t]\nrun = "true"\ncron = "* * * * *"\n'


def test_paused_schedule(bench: Make) -> None:
    """A paused schedule has no next run and fires nothing, but the task can still be triggered."""
    harness = bench(TASK)
    unit = harness.units["t"]
    assert answer_to(harness, "task_pause", "t") == DONE
    assert answer_to(harness, "task_pause", "t") == DONE
    assert (unit.paused, record(harness, "t").paused, record(harness, "t").next_run_at) == (True, True, None)
    assert unit.timer is None
    harness.trigger("t")
    harness.store.work_all()
    assert len(harness.root.take("spawn")) == 1


def test_resumed_schedule(bench: Make) -> None:
    """A resumed schedule continues from now, and instants during the pause neither run nor count as missed."""
    harness = bench(TASK)
    unit = harness.units["t"]
    unit.last_instant = 60_000
    update_task(harness.store.database, "t", last_instant=60_000)
    answer_to(harness, "task_pause", "t")
    before = harness.loop.now_ms()
    assert answer_to(harness, "task_resume", "t") == DONE
    row = record(harness, "t")
    assert row.last_instant is not None
    assert row.last_instant >= before
    assert row.next_run_at is not None
    assert row.next_run_at > row.last_instant
    assert (unit.paused, row.paused) == (False, False)
    assert harness.root.sent == []


def test_resume_of_an_unpaused_task(bench: Make) -> None:
    """Resuming an unpaused task does not change its next instant."""
    harness = bench(TASK)
    harness.units["t"].last_instant = 60_000
    update_task(harness.store.database, "t", last_instant=60_000)
    assert answer_to(harness, "task_resume", "t") == DONE
    assert record(harness, "t").last_instant == harness.units["t"].last_instant == 60_000


def test_restart_without_a_delay(bench: Make) -> None:
    """With no restart delay, the end of a run is stored together with the next run, which then starts."""
    harness = bench('[services.s]\nrun = "true"\nhealthy_after = "0s"\nrestart_delay = "0s"\n')
    (instance,) = taken_up(harness).instances
    before = run_of(instance)
    harness.exited(before, status=1 << 8)
    assert len(harness.store.jobs) == 1
    harness.store.work()
    assert get_run(harness.store.database, before).end_reason == "failed"  # type: ignore[union-attr]
    assert harness.root.take("spawn") == [run_of(instance)] != [before]


def test_no_restart_during_a_shutdown(bench: Make) -> None:
    """A service without a restart delay that exits during a shutdown stays down."""
    harness = bench('[services.s]\nrun = "true"\nhealthy_after = "0s"\nrestart_delay = "0s"\n')
    unit = taken_up(harness)
    harness.daemon.ending = True
    ends(harness, unit.instances[0], status=1 << 8)
    assert states(unit) == [State.STOPPED]
    assert harness.root.take("spawn") == []
