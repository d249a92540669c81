from collections.abc import Callable

from store.errors import DiskFull
from store.runs.ids import new_ulid
from store.runs.writes import unfinished_runs
from supervisor.scheduler.control.operation import operations_of
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.services import instance_transitions
from tests.scheduler.bench import Bench

Make = Callable[[str], Bench]


def test_run_starts_when_stored(bench: Make) -> None:
    """The root receives a run only after its row is stored."""
    one = bench('[tasks.t]\nrun = "true"\n')
    run = one.trigger("t")
    assert one.root.take("spawn") == []
    one.store.work_all()
    assert one.root.take("spawn") == [run.id]


def test_start_is_announced_while_it_is_stored(bench: Make) -> None:
    """The first of several starts is announced with the same fields as its spawn message."""
    one = bench('[tasks.t]\nrun = "true"\n[tasks.u]\nrun = "true"\n')
    one.trigger("t")
    one.trigger("u")
    one.store.work_all()
    announced, *orders = one.root.sent
    assert (announced["op"], [order["op"] for order in orders]) == ("prepare", ["spawn", "spawn"])
    assert announced["spawn"] == orders[0]["spawn"] != orders[1]["spawn"]


def test_stop_while_the_start_is_stored(bench: Make) -> None:
    """A stop while a start is being stored is answered once stored, and the run never starts."""
    one = bench('[tasks.t]\nrun = "true"\n')
    run = one.trigger("t")
    answers: list[dict[str, object]] = []
    operations_of(RunOperations(one.core, one.engine, one.units, {}))["stop"](
        {"run": run.id, "by": "me", "force": False}, answers.append
    )
    assert answers == []
    one.store.work_all()
    assert answers == [{"ok": True, "result": {}}]
    assert one.root.take("spawn") == []
    row = one.row(run)
    assert (row.status, row.end_reason, row.exit_code, row.stopped_by) == ("ended", "stopped", -1, "me")


def test_shutdown_while_a_start_is_stored(bench: Make) -> None:
    """At a shutdown, an unsent start of a task stays pending in the store, and that of a service ends."""
    one = bench('[tasks.t]\nrun = "true"\n[services.s]\nrun = "true"\n')
    change = one.committer.change()
    one.controller.start(one.units["s"], change)
    one.committer.commit(change)
    service = next(iter(one.units["s"].active.values()))
    run = one.trigger("t")
    one.daemon.ending = True
    change = one.committer.change()
    one.controller.down(one.units["s"], change)
    one.committer.commit(change)
    one.store.work_all()
    assert one.root.take("spawn") == []
    assert one.row(run).status == "pending"
    assert one.row(service).end_reason == "daemon_stopped"
    assert one.units["s"].instances[0].state is instance_transitions.State.STOPPED


def test_failed_start_frees_its_slot(bench: Make) -> None:
    """If a run cannot be stored, the next run in the queue takes its slot."""
    one = bench('[tasks.t]\nrun = "true"\n')
    answers: list[dict[str, object]] = []
    arguments = {"task": "t", "run": new_ulid(1), "triggered_by": "api", "by": "me"}
    operations_of(RunOperations(one.core, one.engine, one.units, {}))["trigger"](arguments, answers.append)
    second = one.trigger("t")
    one.store.fail(DiskFull())
    one.loop.round(0)
    one.store.work_all()
    assert [answer["status"] for answer in answers] == [503]
    assert one.root.take("spawn") == [second.id]


def test_many_terminating_runs(bench: Make) -> None:
    """The newest runs win: active runs are stopped once, waiting runs end, and the queue stays short."""
    one = bench('[tasks.t]\nrun = "true"\non_overlap = "terminate"\nmax_concurrent = 2\n')
    unit = one.units["t"]
    running = [one.trigger("t") for _ in range(2)]
    one.store.work_all()
    for run in running:
        one.started(run.id)
    later = [one.trigger("t") for _ in range(50)]
    one.store.work_all()
    assert one.root.take("stop") == [run.id for run in running]
    assert list(unit.queue) == later[-2:]
    assert {one.row(run).end_reason for run in later[:-2]} == {"stopped"}
    one.root.take("spawn")
    for run in running:
        one.exited(run.id, status=15, cause="stop")
    one.store.work_all()
    assert one.root.take("spawn") == [run.id for run in later[-2:]]


def test_retry_during_a_shutdown(bench: Make) -> None:
    """A failed run's retry waits in the store for the next daemon; runs ended by the shutdown are not retried."""
    one = bench('[tasks.t]\nrun = "true"\nretry_attempts = 1\nretry_delay = "0s"\nmax_concurrent = 2\n')
    failing, ended = one.trigger("t"), one.trigger("t")
    one.store.work_all()
    for run in (failing, ended):
        one.started(run.id)
    one.daemon.ending = True
    one.root.take("spawn")
    one.exited(failing.id, status=1 << 8)
    one.exited(ended.id, status=15, cause="shutdown")
    one.store.work_all()
    one.loop.round(0)
    one.store.work_all()
    assert [(run.retry_of_run_id, run.status) for run in unfinished_runs(one.store.database)] == [
        (failing.id, "pending")
    ]
    assert one.root.take("spawn") == []


def test_termination_waits_for_the_store(bench: Make) -> None:
    """With on_overlap = "terminate", the old run continues until the new one is stored."""
    one = bench('[tasks.t]\nrun = "true"\non_overlap = "terminate"\n')
    running = one.trigger("t")
    one.store.work_all()
    one.started(running.id)
    one.store.work_all()
    later = one.trigger("t")
    one.store.fail(DiskFull())
    assert one.root.take("stop") == []
    one.committer._feed()
    one.store.work_all()
    assert one.root.take("stop") == [running.id]
    one.root.take("spawn")
    one.exited(running.id, status=15, cause="stop")
    one.store.work_all()
    assert one.root.take("spawn") == [later.id]


def test_health_without_a_scheduler(bench: Make) -> None:
    """An instance that ran for healthy_after was healthy, even if no scheduler was running at its end."""
    one = bench('[services.s]\nrun = "true"\nrestart_attempts = 0\nhealthy_after = "10s"\n')
    change = one.committer.change()
    one.controller.start(one.units["s"], change)
    one.committer.commit(change)
    instance = one.units["s"].instances[0]
    one.store.work_all()
    assert instance.run is not None
    one.exited(instance.run.id, ran_ms=10_000)
    assert (instance.state, instance.failures) == (instance_transitions.State.BACKOFF, 0)


def test_zero_healthy_after(bench: Make) -> None:
    """With healthy_after = 0 an instance is healthy at once, however soon it ends."""
    one = bench('[services.s]\nrun = "true"\nrestart_attempts = 0\nhealthy_after = "0s"\n')
    change = one.committer.change()
    one.controller.start(one.units["s"], change)
    one.committer.commit(change)
    instance = one.units["s"].instances[0]
    one.store.work_all()
    assert instance.run is not None
    run_id = instance.run.id
    one.started(run_id)
    one.exited(run_id)
    assert instance.state is instance_transitions.State.BACKOFF
