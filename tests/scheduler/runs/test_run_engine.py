from collections.abc import Callable

import pytest

from store.errors import DiskFull
from store.runs.ids import new_ulid
from store.runs.writes import unfinished_runs
from supervisor.ipc.messages import BY_DIGEST
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.runs.live_units import RunRequest
from supervisor.scheduler.services import instance_transitions
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of

Make = Callable[[str], Bench]


def test_run_starts_when_stored(bench: Make) -> None:
    """The root receives a run only after its row is stored."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    run = harness.trigger("t")
    assert harness.root.take("spawn") == []
    harness.store.work_all()
    assert harness.root.take("spawn") == [run.id]


def test_start_is_announced_while_it_is_stored(bench: Make) -> None:
    """The first of several starts is announced. Its request is sent once: the spawn message has only its digest."""
    harness = bench('[tasks.t]\nrun = "true"\n[tasks.u]\nrun = "true"\n')
    run = harness.trigger("t")
    other = harness.trigger("u")
    harness.store.work_all()
    announced, *orders = harness.root.sent
    assert (announced["op"], announced["spawn"]["run"]) == ("prepare", run.id)
    assert orders[0] == {"op": "spawn", "run": run.id, "digest": announced["digest"]}
    assert (orders[1]["op"], orders[1]["spawn"]["run"]) == ("spawn", other.id)


def test_unknown_request_is_sent_whole(bench: Make) -> None:
    """If the root does not have an announced request, it gets the same request; after the end of the run, nothing."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    run = harness.trigger("t")
    harness.store.work_all()
    announced, _ = harness.root.sent
    harness.root.sent.clear()
    harness.engine.request_unknown(run.id)
    assert harness.root.sent == [{"op": "spawn", "spawn": announced["spawn"]}]
    harness.exited(run.id)
    harness.store.work_all()
    harness.root.sent.clear()
    harness.engine.request_unknown(run.id)
    assert harness.root.sent == []


def test_older_root_gets_the_whole_request(bench: Make) -> None:
    """A root of an earlier protocol gets the whole request with the announcement and with the start."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    harness.root.protocol = BY_DIGEST - 1
    harness.trigger("t")
    harness.store.work_all()
    announced, order = harness.root.sent
    assert (announced["op"], order) == ("prepare", {"op": "spawn", "spawn": announced["spawn"]})


def test_one_run_is_announced_at_a_time(bench: Make) -> None:
    """Of several runs that are stored together, one is announced; each request is sent whole once."""
    harness = bench('[tasks.t]\nrun = "true"\nmax_concurrent = 2\n')
    unit = harness.units["t"]
    assert unit.task is not None
    with harness.committer.changing() as change:
        requests = [RunRequest(trigger="api") for _ in range(2)]
        runs = [harness.engine.create_task_run(unit, unit.task, change, request) for request in requests]
    harness.store.work_all()
    whole = [message["spawn"]["run"] for message in harness.root.sent if "spawn" in message]
    assert [message["op"] for message in harness.root.sent] == ["prepare", "spawn", "spawn"]
    assert whole == [run.id for run in runs]


def test_log_line_of_an_ended_run(bench: Make, capfd: pytest.CaptureFixture[str]) -> None:
    """The daemon's log has a line for each ended run; that of a failed run is a warning."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    harness.log.set_level("info")
    for status in (0, 2 << 8):
        run = harness.trigger("t")
        harness.store.work_all()
        harness.exited(run.id, status=status)
        harness.store.work_all()
    lines = [line.split(" ", 1)[1] for line in capfd.readouterr().err.splitlines() if " t " in line]
    assert [(line.split()[0], line.rpartition("): ")[2].split(" after")[0]) for line in lines] == [
        ("INFO", "succeeded"),
        ("WARNING", "failed with exit code 2"),
    ]


def test_stop_while_the_start_is_stored(bench: Make) -> None:
    """A stop while a start is being stored is answered once stored, and the run never starts."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    run = harness.trigger("t")
    answers: list[dict[str, object]] = []
    operations_of(RunOperations(harness.core, harness.engine, harness.units, {}))["stop"](
        {"run": run.id, "by": "me", "force": False}, answers.append
    )
    assert answers == []
    harness.store.work_all()
    assert answers == [{"ok": True, "result": {}}]
    assert harness.root.take("spawn") == []
    row = harness.row(run)
    assert (row.status, row.end_reason, row.exit_code, row.stopped_by) == ("ended", "stopped", -1, "me")


def test_shutdown_while_a_start_is_stored(bench: Make) -> None:
    """At a shutdown, an unsent start of a task stays pending in the store, and that of a service ends."""
    harness = bench('[tasks.t]\nrun = "true"\n[services.s]\nrun = "true"\n')
    change = harness.committer.change()
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    service = next(iter(harness.units["s"].active.values()))
    run = harness.trigger("t")
    harness.daemon.ending = True
    change = harness.committer.change()
    harness.controller.down(harness.units["s"], change)
    harness.committer.commit(change)
    harness.store.work_all()
    assert harness.root.take("spawn") == []
    assert harness.row(run).status == "pending"
    assert harness.row(service).end_reason == "daemon_stopped"
    assert harness.units["s"].instances[0].state is instance_transitions.State.STOPPED


def test_failed_start_frees_its_slot(bench: Make) -> None:
    """If a run cannot be stored, the next run in the queue takes its slot."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    answers: list[dict[str, object]] = []
    arguments = {"task": "t", "run": new_ulid(1), "triggered_by": "api", "by": "me"}
    operations_of(RunOperations(harness.core, harness.engine, harness.units, {}))["trigger"](arguments, answers.append)
    second = harness.trigger("t")
    harness.store.fail(DiskFull())
    harness.loop.round(0)
    harness.store.work_all()
    assert [answer["status"] for answer in answers] == [503]
    assert harness.root.take("spawn") == [second.id]


def test_many_terminating_runs(bench: Make) -> None:
    """The newest runs win: active runs are stopped once, waiting runs end, and the queue stays short."""
    harness = bench('[tasks.t]\nrun = "true"\non_overlap = "terminate"\nmax_concurrent = 2\n')
    unit = harness.units["t"]
    running = [harness.trigger("t") for _ in range(2)]
    harness.store.work_all()
    for run in running:
        harness.started(run.id)
    later = [harness.trigger("t") for _ in range(50)]
    harness.store.work_all()
    assert harness.root.take("stop") == [run.id for run in running]
    assert list(unit.queue) == later[-2:]
    assert {harness.row(run).end_reason for run in later[:-2]} == {"stopped"}
    harness.root.take("spawn")
    for run in running:
        harness.exited(run.id, status=15, cause="stop")
    harness.store.work_all()
    assert harness.root.take("spawn") == [run.id for run in later[-2:]]


def test_retry_during_a_shutdown(bench: Make) -> None:
    """A failed run's retry waits in the store for the next daemon; runs ended by the shutdown are not retried."""
    harness = bench('[tasks.t]\nrun = "true"\nretry_attempts = 1\nretry_delay = "0s"\nmax_concurrent = 2\n')
    failing, ended = harness.trigger("t"), harness.trigger("t")
    harness.store.work_all()
    for run in (failing, ended):
        harness.started(run.id)
    harness.daemon.ending = True
    harness.root.take("spawn")
    harness.exited(failing.id, status=1 << 8)
    harness.exited(ended.id, status=15, cause="shutdown")
    harness.store.work_all()
    harness.loop.round(0)
    harness.store.work_all()
    assert [(run.retry_of_run_id, run.status) for run in unfinished_runs(harness.store.database)] == [
        (failing.id, "pending")
    ]
    assert harness.root.take("spawn") == []


def test_termination_waits_for_the_store(bench: Make) -> None:
    """With on_overlap = "terminate", the old run continues until the new one is stored."""
    harness = bench('[tasks.t]\nrun = "true"\non_overlap = "terminate"\n')
    running = harness.trigger("t")
    harness.store.work_all()
    harness.started(running.id)
    harness.store.work_all()
    later = harness.trigger("t")
    harness.store.fail(DiskFull())
    assert harness.root.take("stop") == []
    harness.committer._feed()
    harness.store.work_all()
    assert harness.root.take("stop") == [running.id]
    harness.root.take("spawn")
    harness.exited(running.id, status=15, cause="stop")
    harness.store.work_all()
    assert harness.root.take("spawn") == [later.id]


def test_health_without_a_scheduler(bench: Make) -> None:
    """An instance that ran for healthy_after was healthy, even if no scheduler was running at its end."""
    harness = bench('[services.s]\nrun = "true"\nrestart_attempts = 0\nhealthy_after = "10s"\n')
    change = harness.committer.change()
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    instance = harness.units["s"].instances[0]
    harness.store.work_all()
    assert instance.run is not None
    harness.exited(instance.run.id, ran_ms=10_000)
    assert (instance.state, instance.failures) == (instance_transitions.State.BACKOFF, 0)


def test_zero_healthy_after(bench: Make) -> None:
    """With healthy_after = 0 an instance is healthy at once, however soon it ends."""
    harness = bench('[services.s]\nrun = "true"\nrestart_attempts = 0\nhealthy_after = "0s"\n')
    change = harness.committer.change()
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    instance = harness.units["s"].instances[0]
    harness.store.work_all()
    assert instance.run is not None
    run_id = instance.run.id
    harness.started(run_id)
    harness.exited(run_id)
    assert instance.state is instance_transitions.State.BACKOFF
