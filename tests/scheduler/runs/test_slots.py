"""Slots that tasks and services share, across reloads and scheduler deaths."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from store.runs.ids import new_ulid
from store.runs.writes import unfinished_runs
from supervisor.scheduler.control.operation import operations_of
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest
from supervisor.scheduler.runs.run_rows import run_row_of
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns
from supervisor.scheduler.startup_shutdown.take_over import TakeOver
from tests.scheduler.bench import Bench

Make = Callable[[str], Bench]
DB = "[slots.db]\nsize = 1\n"


def task(name: str, text: str = 'uses = ["db"]') -> str:
    return f'[tasks.{name}]\nrun = "true"\n{text}\n'


def spawned(one: Bench) -> list[str]:
    one.store.work_all()
    return one.root.take("spawn")


def test_tasks_share_a_slot(bench: Make) -> None:
    """A run waits for the end of the run that holds its slot, and a run without slots starts at once."""
    one = bench(DB + task("a") + task("b") + task("c", ""))
    first, second, third = (one.trigger(name) for name in "abc")
    assert spawned(one) == [first.id, third.id]
    one.started(first.id)
    one.exited(first.id)
    assert spawned(one) == [second.id]


def test_priority_and_age(bench: Make) -> None:
    """A higher priority starts first, and within one priority the oldest run does."""
    one = bench(DB + task("a") + task("low", 'uses = ["db"]\nqueue_priority = -1') + task("b"))
    first, low, high, later = (one.trigger(name) for name in ("a", "low", "b", "a"))
    order = []
    for _ in range(4):
        (run,) = spawned(one)
        order.append(run)
        one.started(run)
        one.exited(run)
    assert order == [first.id, high.id, later.id, low.id]


def test_max_running(bench: Make) -> None:
    """max_running counts runs of tasks, not of services."""
    one = bench("[daemon]\nmax_running = 1\n" + task("a", "") + task("b", "") + '[services.s]\nrun = "true"\n')
    first, second = one.trigger("a"), one.trigger("b")
    change = one.committer.change()
    one.controller.start(one.units["s"], change)
    one.committer.commit(change)
    service = one.units["s"].instances[0].run
    assert service is not None
    assert spawned(one) == [first.id, service.id]
    one.started(first.id)
    one.exited(first.id)
    assert spawned(one) == [second.id]


def test_service_holds_its_slot(bench: Make) -> None:
    """An instance that waits for a slot is shown as starting, and a stop in the queue starts no process."""
    one = bench(DB + task("a") + '[services.s]\nrun = "true"\nuses = ["db"]\n')
    first = one.trigger("a")
    change = one.committer.change()
    one.controller.start(one.units["s"], change)
    one.committer.commit(change)
    instance = one.units["s"].instances[0]
    run = instance.run
    assert run is not None
    assert (spawned(one), instance.state) == ([first.id], State.STARTING)
    one.started(first.id)
    one.exited(first.id)
    assert spawned(one) == [run.id]
    one.started(run.id)
    waiting = one.trigger("a")
    assert spawned(one) == []
    change = one.committer.change()
    one.controller.stop(one.units["s"], change)
    one.controller.start(one.units["s"], change)
    one.committer.commit(change)
    one.exited(run.id, cause="stop")
    assert spawned(one) == [waiting.id]
    change = one.committer.change()
    one.controller.stop(one.units["s"], change)
    one.committer.commit(change)
    assert spawned(one) == []
    assert one.units["s"].instances[0].state is State.STOPPED


def test_retry_releases_its_slot(bench: Make) -> None:
    """A retry holds no slot during its delay, and queues by the end of its delay."""
    one = bench(DB + task("a", 'uses = ["db"]\nretry_attempts = 1\nretry_delay = "1h"') + task("b"))
    first, second = one.trigger("a"), one.trigger("b")
    assert spawned(one) == [first.id]
    one.started(first.id)
    one.exited(first.id, status=1 << 8)
    assert spawned(one) == [second.id]
    (retry,) = one.units["a"].waiting.values()
    one.engine.retry_due(retry)
    assert spawned(one) == []
    one.started(second.id)
    one.exited(second.id)
    assert spawned(one) == [retry.id]


def test_skip_ignores_waiting_for_slots(bench: Make) -> None:
    """With on_overlap = "skip", a run that waits for a slot is not skipped, but the next run of its task is."""
    one = bench(DB + task("a") + task("b", 'uses = ["db"]\non_overlap = "skip"'))
    one.trigger("a")
    waiting, skipped = one.trigger("b"), one.trigger("b")
    one.store.work_all()
    assert (one.row(waiting).status, one.row(skipped).end_reason) == ("pending", "skipped")


def test_reload(bench: Make) -> None:
    """Active runs keep their places after a reload; new sizes and uses apply to new admissions."""
    one = bench("[slots.db]\nsize = 2\n" + task("a", 'uses = ["db"]\nmax_concurrent = 5') + task("b"))
    first, second, third, other = (one.trigger(name) for name in "aaab")
    assert spawned(one) == [first.id, second.id]
    one.started(first.id)
    one.started(second.id)
    one.engine.configure(replace(one.config, slots={"db": 1}))
    one.exited(first.id)
    assert spawned(one) == []
    unit = one.units["b"]
    assert unit.task is not None
    unit.redefine(replace(unit.task, uses={}))
    with one.committer.changing() as change:
        one.engine.redefined(unit, change)
    assert spawned(one) == [other.id]
    one.exited(second.id)
    assert spawned(one) == [third.id]


def running(run: LiveRun, now_ms: int) -> dict[str, Any]:
    """Return a run as the root's snapshot lists it."""
    return {"run": run.id, "started_at": now_ms, "cause": None, "recipe": "", "origin": run_row_of(run)}


def resume(one: Bench, runs: list[LiveRun]) -> None:
    """Start the next scheduler under a root with these runs."""
    now_ms = one.loop.now_ms()
    known = KnownRuns(
        unfinished=unfinished_runs(one.store.database),
        running={run.id: running(run, now_ms) for run in runs},
        exits=[],
        ending=False,
    )
    one.take_up(first=False)
    change = one.committer.change()
    root = cast(RootConnection, one.root)
    TakeOver(one.core, one.engine, one.controller, root, one.units).reconcile(known, change)
    one.committer.commit(change)


def test_scheduler_restart(bench: Make) -> None:
    """After a restart, runs keep their places and order; a decision that was stored but not sent is repeated."""
    one = bench(DB + task("a") + task("b") + task("c", 'uses = ["db"]\nqueue_priority = 1'))
    first, second, third = (one.trigger(name) for name in "abc")
    one.store.work_all()
    one.root.sent.clear()  # the scheduler died before it sent the start
    resume(one, [])
    assert spawned(one) == [third.id]
    resume(one, [third])
    assert spawned(one) == []
    for following in (first, second):
        before = next(iter(one.engine.live)) if following is first else first.id
        one.exited(third.id if following is first else before)
        assert spawned(one) == [following.id]
        one.started(following.id)


def test_service_waits_after_a_restart(bench: Make) -> None:
    """A service's pending run starts only if the slot is free, even before an active task in the snapshot."""
    one = bench(DB + '[services.s]\nrun = "true"\nuses = ["db"]\n' + task("a"))
    change = one.committer.change()
    one.controller.start(one.units["s"], change)
    one.committer.commit(change)
    service = one.units["s"].instances[0].run
    assert service is not None
    change = one.committer.change()
    unit = one.units["a"]
    assert unit.task is not None
    one.engine.hold_admission(True)
    run = one.engine.create_task_run(unit, unit.task, change, RunRequest(trigger="api", run_id=new_ulid(change.now_ms)))
    one.committer.commit(change)
    one.store.work_all()
    one.root.sent.clear()
    resume(one, [run])
    assert spawned(one) == []
    one.exited(run.id)
    assert spawned(one) == [service.id]


def trigger(one: Bench, name: str, caller: LiveRun) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    arguments = {"task": name, "run": new_ulid(1), "triggered_by": "api", "by": "me", "from_run": caller.id}
    operations_of(RunOperations(one.core, one.engine, one.units, {}))["trigger"](arguments, answers.append)
    one.store.work_all()
    return answers[0]


def test_trigger_from_the_slot_holder(bench: Make) -> None:
    """A run that triggers a task which needs the run's own slot is refused, unless the slot has room for both."""
    one = bench(DB + task("a") + task("b") + task("c", "") + "[slots.wide]\nsize = 2\n" + task("d", 'uses = ["wide"]'))
    caller, wide = one.trigger("a"), one.trigger("d")
    one.store.work_all()
    answer = trigger(one, "b", caller)
    assert answer["status"] == 409
    assert f"would wait for the slot db, which the requesting run {caller.id} of a holds" in str(answer)
    assert trigger(one, "c", caller)["ok"]
    assert trigger(one, "b", wide)["ok"]
    assert trigger(one, "d", wide)["ok"]
