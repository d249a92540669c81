"""Start, stop, restart, pause and resume of many units with one request."""

from collections.abc import Callable
from typing import Any

import pytest

from store.errors import DiskFull
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.runs.live_units import RunRequest
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.service_bench import Answer, answer_to, ends, record, run_of, states, taken_up

Make = Callable[[str], Bench]
MORE = 'run = "true"\nhealthy_after = "0s"\n'
TWO = f'[services.a]\n{MORE}[services.b]\n{MORE}[tasks.t]\nrun = "true"\ncron = "0 0 1 1 *"\n'
CHAIN = f'[services.web]\n{MORE}depends_on = ["app"]\n[services.app]\n{MORE}depends_on = ["db"]\n[services.db]\n{MORE}'


def send(harness: Bench, verb: str, *names: str, **more: Any) -> list[Answer]:
    answers: list[Answer] = []
    commands = UnitOperations(
        harness.core,
        harness.engine.stop,
        harness.controller,
        ScheduledStarts(harness.core, harness.engine),
        harness.units,
    )
    arguments: dict[str, Any] = {"names": list(names) or None, "group": None, "tag": None, "reach": None}
    arguments |= {"verb": verb, "command": f"{verb} 1", "by": "me", "rolling": False, "force": False}
    operations_of(commands)["units"](arguments | more, answers.append)
    return answers


def act(harness: Bench, verb: str, *names: str, **more: Any) -> list[list[Any]]:
    """Send a request and return the units in its answer."""
    answers = send(harness, verb, *names, **more)
    harness.store.work_all()
    (answer,) = answers
    assert answer["ok"], answer
    units: list[list[Any]] = answer["result"]["units"]
    return units


def test_answer_lists_each_unit(bench: Make) -> None:
    """The answer lists each unit, whether it changed, and its runs that end."""
    harness = bench(TWO)
    a, b = taken_up(harness, "a"), taken_up(harness, "b")
    answer_to(harness, "service_stop", "b")
    run_a, run_b = run_of(a.instances[0]), run_of(b.instances[0])
    assert act(harness, "stop", "?") == [["t", "unchanged", []], ["a", "stopped", [run_a]], ["b", "unchanged", [run_b]]]
    ends(harness, a.instances[0], cause="stop")
    ends(harness, b.instances[0], cause="stop")
    assert act(harness, "start", "*") == [["a", "started", []], ["b", "started", []]]
    assert act(harness, "start", "*", command="2") == [["a", "unchanged", []], ["b", "unchanged", []]]
    assert act(harness, "pause", "t") == [["t", "paused", []]]
    assert harness.units["t"].paused
    assert record(harness, "t").paused
    assert act(harness, "pause", "t", command="2") == [["t", "unchanged", []]]
    assert act(harness, "resume", "t") == [["t", "resumed", []]]
    assert not harness.units["t"].paused


def test_unknown_name(bench: Make) -> None:
    """A request with one unknown name gets 404 and changes no unit."""
    harness = bench(TWO)
    a = taken_up(harness, "a")
    answers = send(harness, "stop", "a", "zzz")
    assert [(answer["status"], answer["detail"]) for answer in answers] == [(404, 'no task or service named "zzz"')]
    assert harness.root.take("stop") == []
    assert states(a) == [State.RUNNING]


def test_stop_of_a_task(bench: Make) -> None:
    """A stop ends active and queued runs of a task, and does not change the task."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    unit = harness.units["t"]
    task = unit.task
    assert task is not None
    change = harness.committer.change()
    runs = [harness.engine.create_task_run(unit, task, change, RunRequest(trigger="api")) for _ in range(3)]
    harness.committer.commit(change)
    harness.store.work_all()
    for run_id in harness.root.take("spawn"):
        harness.started(run_id)
    ids = [run.id for run in runs]
    assert act(harness, "stop", "t") == [["t", "stopped", ids]]
    assert harness.root.take("stop") == ids[:1]
    assert [harness.row(run).end_reason for run in runs[1:]] == ["stopped"] * 2


def test_repeated_request(bench: Make) -> None:
    """A request repeated with the same id restarts nothing again and gets the same answer."""
    harness = bench(TWO)
    taken_up(harness, "a")
    taken_up(harness, "b")
    assert [unit[:2] for unit in act(harness, "restart", "a", "b")] == [["a", "restarted"], ["b", "restarted"]]
    assert len(harness.root.take("stop")) == 2
    assert record(harness, "a").last_restart == "restart 1"
    assert [unit[:2] for unit in act(harness, "restart", "a", "b")] == [["a", "restarted"], ["b", "restarted"]]
    assert harness.root.take("stop") == []
    assert [unit[1] for unit in act(harness, "stop", "a")] == ["stopped"]
    assert [unit[1] for unit in act(harness, "stop", "a")] == ["stopped"]


def test_services_stop_after_their_dependents(bench: Make) -> None:
    """Each service is signalled after its dependents have ended, and all are stored as stopped at once."""
    harness = bench(CHAIN)
    db, app, web = (taken_up(harness, name) for name in ("db", "app", "web"))
    act(harness, "stop", "web", "db", "app")
    assert [record(harness, unit.name).stopped for unit in (db, app, web)] == [True] * 3
    for unit in (web, app, db):
        assert harness.root.take("stop") == [run_of(unit.instances[0])]
        ends(harness, unit.instances[0], cause="stop")
    assert [states(unit) for unit in (db, app, web)] == [[State.STOPPED]] * 3


def test_start_cancels_a_waiting_stop(bench: Make) -> None:
    """A service whose stop still waits keeps running if it is started."""
    harness = bench(CHAIN)
    db, app, web = (taken_up(harness, name) for name in ("db", "app", "web"))
    act(harness, "stop", "web", "db", "app")
    harness.root.take("stop")
    act(harness, "start", "app")
    ends(harness, web.instances[0], cause="stop")
    assert harness.root.take("stop") == []
    assert (states(db), states(app), states(web)) == ([State.RUNNING], [State.RUNNING], [State.STOPPED])
    assert not record(harness, "db").stopped


def test_the_next_scheduler_finishes_stops(bench: Make) -> None:
    """Services that waited for their stop when the scheduler died are stopped by the next one, in order."""
    harness = bench(CHAIN)
    db, app, web = (taken_up(harness, name) for name in ("db", "app", "web"))
    for unit in (db, app, web):
        unit.stopped = True  # stored, but not yet carried out
    change = harness.committer.change()
    harness.controller.finish_stops(harness.units.values(), change)
    harness.committer.commit(change)
    harness.store.work_all()
    for unit in (web, app, db):
        assert harness.root.take("stop") == [run_of(unit.instances[0])]
        ends(harness, unit.instances[0], cause="stop")


def test_exit_during_a_waiting_stop(bench: Make) -> None:
    """A service that exits while its stop waits stays down."""
    harness = bench(CHAIN)
    db, _app, _web = (taken_up(harness, name) for name in ("db", "app", "web"))
    act(harness, "stop", "web", "db", "app")
    harness.root.take("stop")
    ends(harness, db.instances[0], status=1 << 8)
    assert states(db) == [State.STOPPED]
    assert harness.root.take("spawn") == []


def test_forced_stop(bench: Make) -> None:
    """A forced stop kills all selected services at once."""
    harness = bench(CHAIN)
    for name in ("db", "app", "web"):
        taken_up(harness, name)
    act(harness, "stop", "*", force=True)
    assert len(set(harness.root.take("stop"))) == 3


def test_rolling_restart_in_progress(bench: Make) -> None:
    """A service in a rolling restart is busy; the others restart."""
    harness = bench(TWO + f"[services.many]\n{MORE}instances = 2\n")
    taken_up(harness, "a")
    taken_up(harness, "many")
    answer_to(harness, "service_restart", "many", command="1", rolling=True)
    harness.root.take("stop")
    assert [unit[:2] for unit in act(harness, "restart", "a", "many")] == [["a", "restarted"], ["many", "busy"]]
    assert harness.root.take("stop") == [run_of(harness.units["a"].instances[0])]


@pytest.mark.parametrize("verb", ["start", "restart", "pause", "resume"])
def test_failing_store(bench: Make, verb: str) -> None:
    """If a request cannot be stored, it gets 503 and changes no unit."""
    harness = bench(TWO)
    for name in ("a", "b"):
        unit = taken_up(harness, name)
        answer_to(harness, "service_stop", name)
        ends(harness, unit.instances[0], cause="stop")
    if verb == "resume":
        act(harness, "pause", "t")
    answers = send(harness, verb, "*")
    harness.store.fail(DiskFull())
    assert [answer["status"] for answer in answers] == [503]
    assert [states(harness.units[name]) for name in ("a", "b")] == [[State.STOPPED]] * 2
    assert harness.units["t"].paused == (verb == "resume")


def test_shutdown(bench: Make) -> None:
    """During a shutdown, starts and restarts get 503, and stops are carried out."""
    harness = bench(TWO)
    taken_up(harness, "a")
    harness.daemon.ending = True
    for verb in ("start", "restart"):
        assert [answer["status"] for answer in send(harness, verb, "*")] == [503]
    assert act(harness, "stop", "a")[0][:2] == ["a", "stopped"]
