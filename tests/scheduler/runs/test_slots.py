"""Slots that tasks and services share, across reloads and scheduler deaths."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from store.runs.ids import new_ulid
from store.runs.writes import unfinished_runs
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest
from supervisor.scheduler.runs.run_rows import run_row_of
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns
from supervisor.scheduler.startup_shutdown.take_over import TakeOver
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.fake_clock import FakeClock

Make = Callable[[str], Bench]
DB = "[slots.db]\nsize = 1\n"


def task(name: str, text: str = 'uses = ["db"]') -> str:
    return f'[tasks.{name}]\nrun = "true"\n{text}\n'


def spawned(harness: Bench) -> list[str]:
    harness.store.work_all()
    return harness.root.take("spawn")


def test_tasks_share_a_slot(bench: Make) -> None:
    """A run waits for the end of the run that holds its slot, and a run without slots starts at once."""
    harness = bench(DB + task("a") + task("b") + task("c", ""))
    first, second, third = (harness.trigger(name) for name in "abc")
    assert spawned(harness) == [first.id, third.id]
    harness.started(first.id)
    harness.exited(first.id)
    assert spawned(harness) == [second.id]


def test_priority_and_age(bench: Make) -> None:
    """A higher priority starts first, and within one priority the oldest run does."""
    harness = bench(DB + task("a") + task("low", 'uses = ["db"]\nqueue_priority = -1') + task("b"))
    first, low, high, later = (harness.trigger(name) for name in ("a", "low", "b", "a"))
    order = []
    for _ in range(4):
        (run,) = spawned(harness)
        order.append(run)
        harness.started(run)
        harness.exited(run)
    assert order == [first.id, high.id, later.id, low.id]


@pytest.mark.parametrize("step_ms", [-10 * 86_400_000, 10 * 86_400_000])
def test_age_after_a_clock_step(tmp_path: Path, step_ms: int) -> None:
    """Runs that wait since before a step of the wall clock start before later ones."""
    clock = FakeClock()
    harness = Bench(tmp_path, DB + task("a") + task("b"), clock)
    runs = [harness.trigger(name) for name in "aab"]
    clock.wall += step_ms
    harness.engine.clock_stepped(step_ms)
    clock.advance(1)
    runs += [harness.trigger(name) for name in "ba"]
    order = []
    for _ in runs:
        (run,) = spawned(harness)
        order.append(run)
        harness.started(run)
        harness.exited(run)
    assert order == [run.id for run in runs]
    harness.close()


def test_max_running(bench: Make) -> None:
    """max_running counts runs of tasks, not of services."""
    harness = bench("[daemon]\nmax_running = 1\n" + task("a", "") + task("b", "") + '[services.s]\nrun = "true"\n')
    first, second = harness.trigger("a"), harness.trigger("b")
    change = harness.committer.change()
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    service = harness.units["s"].instances[0].run
    assert service is not None
    assert spawned(harness) == [first.id, service.id]
    harness.started(first.id)
    harness.exited(first.id)
    assert spawned(harness) == [second.id]


def test_service_holds_its_slot(bench: Make) -> None:
    """An instance that waits for a slot is shown as starting, and a stop in the queue starts no process."""
    harness = bench(DB + task("a") + '[services.s]\nrun = "true"\nuses = ["db"]\n')
    first = harness.trigger("a")
    change = harness.committer.change()
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    instance = harness.units["s"].instances[0]
    run = instance.run
    assert run is not None
    assert (spawned(harness), instance.state) == ([first.id], State.STARTING)
    harness.started(first.id)
    harness.exited(first.id)
    assert spawned(harness) == [run.id]
    harness.started(run.id)
    waiting = harness.trigger("a")
    assert spawned(harness) == []
    change = harness.committer.change()
    harness.controller.stop(harness.units["s"], change)
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    harness.exited(run.id, cause="stop")
    assert spawned(harness) == [waiting.id]
    change = harness.committer.change()
    harness.controller.stop(harness.units["s"], change)
    harness.committer.commit(change)
    assert spawned(harness) == []
    assert harness.units["s"].instances[0].state is State.STOPPED


def test_retry_releases_its_slot(bench: Make) -> None:
    """A retry holds no slot during its delay, and queues by the end of its delay."""
    harness = bench(DB + task("a", 'uses = ["db"]\nretry_attempts = 1\nretry_delay = "1h"') + task("b"))
    first, second = harness.trigger("a"), harness.trigger("b")
    assert spawned(harness) == [first.id]
    harness.started(first.id)
    harness.exited(first.id, status=1 << 8)
    assert spawned(harness) == [second.id]
    (retry,) = harness.units["a"].waiting.values()
    harness.engine.end_wait(retry)
    assert spawned(harness) == []
    harness.started(second.id)
    harness.exited(second.id)
    assert spawned(harness) == [retry.id]


def test_skip_ignores_waiting_for_slots(bench: Make) -> None:
    """With on_overlap = "skip", a run that waits for a slot is not skipped, but the next run of its task is."""
    harness = bench(DB + task("a") + task("b", 'uses = ["db"]\non_overlap = "skip"'))
    harness.trigger("a")
    waiting, skipped = harness.trigger("b"), harness.trigger("b")
    harness.store.work_all()
    assert (harness.row(waiting).status, harness.row(skipped).end_reason) == ("pending", "skipped")


def test_reload(bench: Make) -> None:
    """Active runs keep their places after a reload; new sizes and uses apply to new admissions."""
    harness = bench("[slots.db]\nsize = 2\n" + task("a", 'uses = ["db"]\nmax_concurrent = 5') + task("b"))
    first, second, third, other = (harness.trigger(name) for name in "aaab")
    assert spawned(harness) == [first.id, second.id]
    harness.started(first.id)
    harness.started(second.id)
    harness.engine.configure(replace(harness.config, slots={"db": 1}))
    harness.exited(first.id)
    assert spawned(harness) == []
    unit = harness.units["b"]
    assert unit.task is not None
    unit.redefine(replace(unit.task, uses={}))
    with harness.committer.changing() as change:
        harness.engine.redefined(unit, change)
    assert spawned(harness) == [other.id]
    harness.exited(second.id)
    assert spawned(harness) == [third.id]


def running(run: LiveRun, now_ms: int) -> dict[str, Any]:
    """Return a run as the root's snapshot lists it."""
    return {"run": run.id, "started_at": now_ms, "cause": None, "recipe": "", "origin": run_row_of(run)}


def resume(harness: Bench, runs: list[LiveRun]) -> None:
    """Start the next scheduler under a root with these runs."""
    now_ms = harness.loop.now_ms()
    known_runs = KnownRuns(
        unfinished=unfinished_runs(harness.store.database),
        running={run.id: running(run, now_ms) for run in runs},
        exits=[],
        ending=False,
    )
    harness.take_up(first=False)
    change = harness.committer.change()
    root = cast(RootConnection, harness.root)
    TakeOver(harness.core, harness.engine, harness.controller, root, harness.units).reconcile(known_runs, change)
    harness.committer.commit(change)


def test_scheduler_restart(bench: Make) -> None:
    """After a restart, runs keep their places and order; a decision that was stored but not sent is repeated."""
    harness = bench(DB + task("a") + task("b") + task("c", 'uses = ["db"]\nqueue_priority = 1'))
    first, second, third = (harness.trigger(name) for name in "abc")
    harness.store.work_all()
    harness.root.sent.clear()  # the scheduler died before it sent the start
    resume(harness, [])
    assert spawned(harness) == [third.id]
    resume(harness, [third])
    assert spawned(harness) == []
    for following in (first, second):
        before = next(iter(harness.engine.live)) if following is first else first.id
        harness.exited(third.id if following is first else before)
        assert spawned(harness) == [following.id]
        harness.started(following.id)


def test_service_waits_after_a_restart(bench: Make) -> None:
    """A service's pending run starts only if the slot is free, even before an active task in the snapshot."""
    harness = bench(DB + '[services.s]\nrun = "true"\nuses = ["db"]\n' + task("a"))
    change = harness.committer.change()
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    service = harness.units["s"].instances[0].run
    assert service is not None
    change = harness.committer.change()
    unit = harness.units["a"]
    assert unit.task is not None
    harness.engine.hold_admission(True)
    run = harness.engine.create_task_run(
        unit, unit.task, change, RunRequest(trigger="api", run_id=new_ulid(change.now_ms))
    )
    harness.committer.commit(change)
    harness.store.work_all()
    harness.root.sent.clear()
    resume(harness, [run])
    assert spawned(harness) == []
    harness.exited(run.id)
    assert spawned(harness) == [service.id]


def trigger(harness: Bench, name: str, caller: LiveRun) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    arguments = {"task": name, "run": new_ulid(1), "triggered_by": "api", "by": "me", "from_run": caller.id}
    operations_of(RunOperations(harness.core, harness.engine, harness.units, {}))["trigger"](arguments, answers.append)
    harness.store.work_all()
    return answers[0]


def test_trigger_from_the_slot_holder(bench: Make) -> None:
    """A run that triggers a task which needs the run's own slot is refused, unless the slot has room for both."""
    harness = bench(
        DB + task("a") + task("b") + task("c", "") + "[slots.wide]\nsize = 2\n" + task("d", 'uses = ["wide"]')
    )
    caller, wide = harness.trigger("a"), harness.trigger("d")
    harness.store.work_all()
    answer = trigger(harness, "b", caller)
    assert answer["status"] == 409
    assert f"would wait for the slot db, which the requesting run {caller.id} of a holds" in str(answer)
    assert trigger(harness, "c", caller)["ok"]
    assert trigger(harness, "b", wide)["ok"]
    assert trigger(harness, "d", wide)["ok"]
