"""Services that the next scheduler takes over."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from store import events
from store.runs.ids import new_ulid
from store.runs.writes import Run, get_run, insert_run, unfinished_runs
from store.tasks import StoredInstance, set_instance, update_task
from supervisor.config.diff import process_hash
from supervisor.config.model import Task
from supervisor.ipc.messages import Exited
from supervisor.scheduler.loop.procedures import Wait
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.live_units import LiveRun, RollingRestart, Unit
from supervisor.scheduler.runs.run_rows import pending_row
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.service_controller import ServiceController
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns
from supervisor.scheduler.startup_shutdown.take_over import TakeOver, make_units
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock
from tests.scheduler.service_bench import in_time, record, states, stored, taken_up

Make = Callable[[str], Bench]
SERVICE = '[services.s]\nrun = "true"\nrestart_delay = "1h"\nrestart_max_delay = "1h"\nhealthy_after = "1h"\n'
HOUR_MS = 3_600_000


def leave(harness: Bench, state: str, *, age_ms: int = 0, run_id: str | None = None, **columns: Any) -> None:
    """Store this state of the service."""
    set_instance(harness.store.database, StoredInstance("s", 0, state, run_id, harness.loop.now_ms() - age_ms, 4))
    if columns:
        update_task(harness.store.database, "s", **columns)


def live(harness: Bench, status: str = "running") -> str:
    """Store an unfinished run of the service."""
    now_ms = harness.loop.now_ms()
    run = Run(
        id=new_ulid(now_ms),
        task_name="s",
        kind="service",
        status=status,
        end_reason=None,
        exit_code=-1,
        instance_index=0,
        retry_attempt=0,
        retry_of_run_id=None,
        triggered_by="startup",
        created_at=now_ms,
        started_at=now_ms if status == "running" else None,
    )
    insert_run(harness.store.database, run)
    return run.id


def resumed(
    harness: Bench, *, running: dict[str, str | None] | None = None, exits: tuple[Exited, ...] = (), since_ms: int = 0
) -> Unit:
    """Start the next scheduler and return its service.

    Args:
        harness: the bench.
        running: the root's processes by run id, each with the cause of its stop.
        exits: the exits that the root holds.
        since_ms: the age of the processes by the wall clock.
    """
    harness.units = make_units(harness.store.database, harness.config, first=False)
    harness.daemon.first = False
    harness.controller = ServiceController(
        harness.core,
        harness.engine,
        harness.user_lookup,
        harness.watcher,
        Notifications(harness.config),
        harness.connection,
    )
    harness.engine.connect(harness.controller)
    unit = harness.units["s"]
    assert unit.service is not None
    instances = {
        run_id: {
            "run": run_id,
            "started_at": harness.loop.now_ms() - since_ms,
            "cause": cause,
            "recipe": process_hash(unit.definition),
        }
        for run_id, cause in (running or {}).items()
    }
    known_runs = KnownRuns(unfinished_runs(harness.store.database), instances, list(exits), ending=False)
    change = harness.committer.change()
    take_over = TakeOver(harness.core, harness.engine, harness.controller, harness.root, harness.units)  # type: ignore[arg-type]
    take_over.reconcile(known_runs, change)
    harness.controller.take_over(unit, change)
    harness.committer.commit(change)
    harness.store.work_all()
    return unit


def test_restart_delay_continues(bench: Make) -> None:
    """An instance that waits for its restart waits for the rest of its delay only."""
    harness = bench(SERVICE)
    leave(harness, "backoff", age_ms=HOUR_MS // 2)
    unit = resumed(harness)
    assert (states(unit), unit.instances[0].failures) == ([State.BACKOFF], 4)
    assert harness.root.take("spawn") == []
    leave(harness, "backoff", age_ms=2 * HOUR_MS)
    unit = resumed(harness)
    in_time(harness, State.STARTING, unit.instances[0])


def test_delay_counts_from_the_end_of_the_run(bench: Make) -> None:
    """The restart delay counts from the end of the run, even if no scheduler was running then."""
    harness = bench(f"{SERVICE}restart_attempts = 9\n")
    run_id = live(harness)
    leave(harness, "running", run_id=run_id)
    at = harness.loop.now_ms() - 2 * HOUR_MS
    unit = resumed(harness, exits=(Exited(run=run_id, status=1 << 8, started_at=at, ended_at=at + 1),))
    assert unit.instances[0].since == at + 1
    in_time(harness, State.STARTING, unit.instances[0])


def test_ready_instance_stays_ready(bench: Make) -> None:
    """An instance that was ready and healthy remains so under a new scheduler without interruption."""
    harness = bench(SERVICE.replace('healthy_after = "1h"', 'healthy_after = "1ms"'))
    run_id = live(harness)
    set_instance(
        harness.store.database, StoredInstance("s", 0, "running", run_id, harness.loop.now_ms(), 0, ready=True)
    )
    unit = resumed(harness, running={run_id: None})
    assert unit.instances[0].healthy
    assert stored(harness)[0].ready


def test_health_after_a_backward_step(tmp_path: Path) -> None:
    """An instance whose start lies in the future is healthy after healthy_after at the latest."""
    clock = FakeClock()
    with contextlib.closing(Bench(tmp_path, SERVICE, clock)) as harness:
        run_id = live(harness)
        set_instance(harness.store.database, StoredInstance("s", 0, "running", None, harness.loop.now_ms(), 0))
        unit = resumed(harness, running={run_id: None}, since_ms=-HOUR_MS)
        for elapsed_ms, healthy in ((0, False), (HOUR_MS - 1, False), (1, True)):
            clock.advance_ms(elapsed_ms)
            harness.loop.round(0)
            assert unit.instances[0].healthy is healthy


@pytest.mark.parametrize("state", ["fatal", "exited"])
def test_final_states_stay(bench: Make, state: str) -> None:
    """A fatal or exited instance stays in its state under a new scheduler."""
    harness = bench(SERVICE)
    leave(harness, state)
    unit = resumed(harness)
    assert [instance.state.shown for instance in unit.instances] == [state]
    assert unit.instances[0].timer is None


def test_fatal_instance_is_retried(bench: Make) -> None:
    """A fatal instance is retried fatal_retry after its last failure, even under a new scheduler."""
    harness = bench(f'{SERVICE}fatal_retry = "1h"\n')
    leave(harness, "fatal", age_ms=HOUR_MS)
    in_time(harness, State.STARTING, resumed(harness).instances[0])


def test_runs_of_a_removed_task(bench: Make) -> None:
    """Runs of a removed task are kept together, so that they count as its runs if it is added again."""
    harness = bench(SERVICE)
    now_ms = harness.loop.now_ms()
    removed = Task(name="removed", run=("false",), timezone="UTC")
    for _ in range(2):
        row = pending_row(LiveRun(Unit(removed), removed, new_ulid(now_ms), trigger="api", created_at=now_ms))
        insert_run(harness.store.database, row._replace(status="running", started_at=now_ms))
    rows = unfinished_runs(harness.store.database)
    instances = {row.id: {"run": row.id, "started_at": now_ms, "cause": None, "recipe": ""} for row in rows}
    startup = TakeOver(harness.core, harness.engine, harness.controller, harness.root, harness.units)  # type: ignore[arg-type]
    startup.reconcile(KnownRuns(rows, instances, [], ending=False), harness.committer.change())
    assert [(name, list(unit.active), unit.configured) for name, unit in startup.leaving.items()] == [
        (removed.name, [row.id for row in rows], False)
    ]


def test_stopped_service(bench: Make) -> None:
    """A stopped service stays down; instances that were not signalled are stopped, and no exit leads to a restart."""
    harness = bench(SERVICE)
    leave(harness, "stopped", stopped=True)
    assert states(resumed(harness)) == [State.STOPPED]
    run_id = live(harness)
    leave(harness, "stopping", run_id=run_id)
    unit = resumed(harness, running={run_id: None})
    assert states(unit) == [State.STOPPING]
    assert harness.root.take("stop") == [run_id]
    at = harness.loop.now_ms()
    unit = resumed(harness, exits=(Exited(run=run_id, status=15, cause="stop", started_at=at, ended_at=at),))
    assert states(unit) == [State.STOPPED]
    assert [row.state for row in stored(harness)] == ["stopped"]
    assert harness.root.take("spawn") == []


def test_interrupted_restart(bench: Make) -> None:
    """An instance that was stopping for a restart starts again as soon as it has ended."""
    harness = bench(SERVICE)
    run_id = live(harness)
    leave(harness, "stopping", run_id=run_id, stopped=False)
    unit = resumed(harness, running={run_id: "stop"})
    assert states(unit) == [State.RESTARTING]
    assert harness.root.take("stop") == []
    assert states(resumed(harness, running={run_id: None})) == [State.RESTARTING]
    assert harness.root.take("stop") == [run_id]
    at = harness.loop.now_ms()
    unit = resumed(harness, exits=(Exited(run=run_id, status=15, cause="stop", started_at=at, ended_at=at),))
    assert states(unit) == [State.STARTING]
    assert len(harness.root.take("spawn")) == 1


def test_stored_but_unsent_start(bench: Make) -> None:
    """A start that was stored but not sent is carried out, unless the service was stopped since."""
    harness = bench(SERVICE)
    run_id = live(harness, "pending")
    leave(harness, "starting", run_id=run_id)
    assert states(resumed(harness)) == [State.STARTING]
    assert harness.root.take("spawn") == [run_id]
    harness.engine.live.clear()
    leave(harness, "starting", run_id=run_id, stopped=True)
    assert states(resumed(harness)) == [State.STOPPED]
    assert harness.root.take("spawn") == []


@pytest.mark.parametrize(
    ("left_as", "stopped", "cause", "then"),
    [
        ("starting", False, None, State.FATAL),
        ("stopping", False, "stop", State.STARTING),
        ("stopping", True, "stop", State.STOPPED),
    ],
)
def test_start_and_end_without_a_scheduler(
    bench: Make, left_as: str, stopped: bool, cause: str | None, then: State
) -> None:
    """A start and an end without a scheduler are announced in order, and the end has the reason of its cause."""
    harness = bench(SERVICE)
    run_id = live(harness, "pending")
    leave(harness, left_as, run_id=run_id, stopped=stopped)
    at = harness.loop.now_ms()
    unit = resumed(harness, exits=(Exited(run=run_id, status=15, cause=cause, started_at=at, ended_at=at + 1),))
    assert states(unit) == [then]
    deletion_events = [event for event in events.since(harness.store.database, 0) if event.body.get("runId") == run_id]
    assert [event.kind for event in deletion_events if event.kind.startswith("run.")] == ["run.started", "run.ended"]
    row = get_run(harness.store.database, run_id)
    assert row is not None
    assert (row.status, row.started_at, row.ended_at) == ("ended", at, at + 1)


def test_stop_of_one_run(bench: Make) -> None:
    """An instance whose run was being stopped alone waits for its restart."""
    harness = bench(SERVICE)
    run_id = live(harness)
    leave(harness, "running", run_id=run_id)
    unit = resumed(harness, running={run_id: "stop"})
    assert states(unit) == [State.RUNNING]
    harness.exited(run_id, status=15, cause="stop")
    assert states(unit) == [State.BACKOFF]


def test_stopping_instance_without_a_run(bench: Make) -> None:
    """An instance stored as stopping without a run is started."""
    harness = bench(SERVICE)
    leave(harness, "stopping")
    assert states(resumed(harness)) == [State.STARTING]


def test_commands_are_remembered(bench: Make) -> None:
    """The next scheduler remembers all commands; the next daemon remembers only persistent ones."""
    harness = bench(f'{SERVICE}[tasks.t]\nrun = "true"\n')
    leave(harness, "running", stopped=True, rolling="[1, 2]", last_restart="x", fatal_since=7)
    update_task(harness.store.database, "t", paused=True)
    for first, expected in ((False, (True, RollingRestart(1, 2), "x", 7)), (True, (False, None, None, 7))):
        units = make_units(harness.store.database, harness.config, first=first)
        unit = units["s"]
        assert (unit.stopped, unit.rolling, unit.last_command, unit.fatal_since) == expected
        assert units["t"].paused


def test_rolling_restart_of_removed_instances(bench: Make) -> None:
    """A rolling restart is done if the configuration no longer has its remaining instances."""
    harness = bench(SERVICE)
    leave(harness, "stopped", rolling="[1, 3]")
    unit = resumed(harness)
    assert unit.rolling is None
    assert record(harness).rolling is None


def test_outdated_store(bench: Make) -> None:
    """If an old copy of the store has several unfinished runs of an instance, the running one continues."""
    harness = bench(SERVICE)
    crashed, ended, runs = live(harness), live(harness), live(harness)
    exited = Exited(run=ended, status=0, started_at=1, ended_at=2)
    unit = resumed(harness, running={runs: None}, exits=(exited,))
    assert unit.instances[0].run is harness.engine.live[runs]
    assert list(harness.engine.live) == [runs]
    assert harness.root.take("spawn") == []
    assert [frame["runs"] for frame in harness.root.sent if frame["op"] == "ack"] == [[ended]]
    reasons = [
        run and run.end_reason for run in (get_run(harness.store.database, run) for run in (crashed, ended, runs))
    ]
    assert reasons == ["crashed", "succeeded", None]


def left_by_a_removed_service(harness: Bench) -> str:
    """Take over the run of a removed service, and return its id."""
    run = live(harness)
    running = {run: {"run": run, "started_at": harness.loop.now_ms(), "cause": None, "recipe": ""}}
    known_runs = KnownRuns(unfinished_runs(harness.store.database), running, [], ending=False)
    change = harness.committer.change()
    TakeOver(harness.core, harness.engine, harness.controller, harness.root, {}).reconcile(known_runs, change)  # type: ignore[arg-type]
    harness.committer.commit(change)
    harness.store.work_all()
    assert harness.root.take("stop") == [run]
    return run


def test_service_added_again_after_a_scheduler_death(bench: Make) -> None:
    """A service that was removed before the scheduler died and is added again waits for the end of its old process."""
    harness = bench(SERVICE)
    run = left_by_a_removed_service(harness)
    unit = harness.units["s"]
    change = harness.committer.change()
    harness.controller.add(unit, change)
    harness.committer.commit(change)
    harness.store.work_all()
    assert harness.root.take("spawn") == []
    harness.exited(run, status=15, cause="stop")
    harness.store.work_all()
    assert len(harness.root.take("spawn")) == 1
    assert harness.controller.leaving == {}


def test_renamed_service_after_a_scheduler_death(bench: Make) -> None:
    """A service that waits for a removed one goes on to wait under the next scheduler."""
    harness = bench(f'{SERVICE}[services.again]\nrun = "true"\n')
    run = left_by_a_removed_service(harness)
    unit = taken_up(harness, "again")
    assert (states(unit), unit.instances[0].line) == ([State.HELD], "waits for the removed service s to end")
    harness.exited(run, status=15, cause="stop")
    harness.store.work_all()
    assert states(unit) == [State.STARTING]
    assert harness.controller.leaving == {}


def test_interrupted_termination(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a scheduler stored a replacement without stopping the old run, the next scheduler stops it."""
    harness = bench(
        '[tasks.t]\nrun = "true"\non_overlap = "terminate"\n[services.s]\nrun = "true"\nautostart = false\n'
    )
    older = harness.trigger("t")
    harness.store.work_all()
    harness.started(older.id)
    harness.store.work_all()
    with monkeypatch.context() as dies:
        dies.setattr(harness.engine, "make_room", lambda *_: (wait for wait in cast(list[Wait], [])))
        newer = harness.trigger("t")
        harness.store.work_all()
    assert harness.root.take("stop") == []
    for run in (older, newer):
        harness.engine.release(run)
    harness.engine.live.clear()
    resumed(harness, running={older.id: None})
    assert harness.root.take("stop") == [older.id]
