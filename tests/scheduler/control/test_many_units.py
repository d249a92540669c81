"""Start, stop, restart, pause and resume of many units with one request."""

from collections.abc import Callable
from typing import Any

import pytest

from store.errors import DiskFull
from supervisor.scheduler.control.operation import operations_of
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.runs.live_units import RunRequest
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import Answer, answer_to, ends, record, run_of, states, taken_up

Make = Callable[[str], Bench]
MORE = 'run = "true"\nhealthy_after = "0s"\n'
TWO = f'[services.a]\n{MORE}[services.b]\n{MORE}[tasks.t]\nrun = "true"\ncron = "0 0 1 1 *"\n'
CHAIN = f'[services.web]\n{MORE}depends_on = ["app"]\n[services.app]\n{MORE}depends_on = ["db"]\n[services.db]\n{MORE}'


def send(one: Bench, verb: str, *names: str, **more: Any) -> list[Answer]:
    answers: list[Answer] = []
    commands = UnitOperations(
        one.core, one.engine.stop, one.controller, ScheduledStarts(one.core, one.engine), one.units
    )
    arguments: dict[str, Any] = {"names": list(names) or None, "group": None, "tag": None, "reach": None}
    arguments |= {"verb": verb, "command": f"{verb} 1", "by": "me", "rolling": False, "force": False}
    operations_of(commands)["units"](arguments | more, answers.append)
    return answers


def act(one: Bench, verb: str, *names: str, **more: Any) -> list[list[Any]]:
    """Send a request and return the units in its answer."""
    answers = send(one, verb, *names, **more)
    one.store.work_all()
    (answer,) = answers
    assert answer["ok"], answer
    units: list[list[Any]] = answer["result"]["units"]
    return units


def test_answer_lists_each_unit(bench: Make) -> None:
    """The answer lists each unit, whether it changed, and its runs that end."""
    one = bench(TWO)
    a, b = taken_up(one, "a"), taken_up(one, "b")
    answer_to(one, "service_stop", "b")
    run_a, run_b = run_of(a.instances[0]), run_of(b.instances[0])
    assert act(one, "stop", "?") == [["t", "unchanged", []], ["a", "stopped", [run_a]], ["b", "unchanged", [run_b]]]
    ends(one, a.instances[0], cause="stop")
    ends(one, b.instances[0], cause="stop")
    assert act(one, "start", "*") == [["a", "started", []], ["b", "started", []]]
    assert act(one, "start", "*", command="2") == [["a", "unchanged", []], ["b", "unchanged", []]]
    assert act(one, "pause", "t") == [["t", "paused", []]]
    assert one.units["t"].paused
    assert record(one, "t").paused
    assert act(one, "pause", "t", command="2") == [["t", "unchanged", []]]
    assert act(one, "resume", "t") == [["t", "resumed", []]]
    assert not one.units["t"].paused


def test_unknown_name(bench: Make) -> None:
    """A request with one unknown name gets 404 and changes no unit."""
    one = bench(TWO)
    a = taken_up(one, "a")
    answers = send(one, "stop", "a", "zzz")
    assert [(answer["status"], answer["detail"]) for answer in answers] == [(404, 'no task or service named "zzz"')]
    assert one.root.take("stop") == []
    assert states(a) == [State.RUNNING]


def test_stop_of_a_task(bench: Make) -> None:
    """A stop ends active and queued runs of a task, and does not change the task."""
    one = bench('[tasks.t]\nrun = "true"\n')
    unit = one.units["t"]
    task = unit.task
    assert task is not None
    change = one.committer.change()
    runs = [one.engine.create_task_run(unit, task, change, RunRequest(trigger="api")) for _ in range(3)]
    one.committer.commit(change)
    one.store.work_all()
    for run_id in one.root.take("spawn"):
        one.started(run_id)
    ids = [run.id for run in runs]
    assert act(one, "stop", "t") == [["t", "stopped", ids]]
    assert one.root.take("stop") == ids[:1]
    assert [one.row(run).end_reason for run in runs[1:]] == ["stopped"] * 2


def test_repeated_request(bench: Make) -> None:
    """A request repeated with the same id restarts nothing again and gets the same answer."""
    one = bench(TWO)
    taken_up(one, "a")
    taken_up(one, "b")
    assert [unit[:2] for unit in act(one, "restart", "a", "b")] == [["a", "restarted"], ["b", "restarted"]]
    assert len(one.root.take("stop")) == 2
    assert record(one, "a").last_restart == "restart 1"
    assert [unit[:2] for unit in act(one, "restart", "a", "b")] == [["a", "restarted"], ["b", "restarted"]]
    assert one.root.take("stop") == []
    assert [unit[1] for unit in act(one, "stop", "a")] == ["stopped"]
    assert [unit[1] for unit in act(one, "stop", "a")] == ["stopped"]


def test_services_stop_after_their_dependents(bench: Make) -> None:
    """Each service is signalled after its dependents have ended, and all are stored as stopped at once."""
    one = bench(CHAIN)
    db, app, web = (taken_up(one, name) for name in ("db", "app", "web"))
    act(one, "stop", "web", "db", "app")
    assert [record(one, unit.name).stopped for unit in (db, app, web)] == [True] * 3
    for unit in (web, app, db):
        assert one.root.take("stop") == [run_of(unit.instances[0])]
        ends(one, unit.instances[0], cause="stop")
    assert [states(unit) for unit in (db, app, web)] == [[State.STOPPED]] * 3


def test_start_cancels_a_waiting_stop(bench: Make) -> None:
    """A service whose stop still waits keeps running if it is started."""
    one = bench(CHAIN)
    db, app, web = (taken_up(one, name) for name in ("db", "app", "web"))
    act(one, "stop", "web", "db", "app")
    one.root.take("stop")
    act(one, "start", "app")
    ends(one, web.instances[0], cause="stop")
    assert one.root.take("stop") == []
    assert (states(db), states(app), states(web)) == ([State.RUNNING], [State.RUNNING], [State.STOPPED])
    assert not record(one, "db").stopped


def test_the_next_scheduler_finishes_stops(bench: Make) -> None:
    """Services that waited for their stop when the scheduler died are stopped by the next one, in order."""
    one = bench(CHAIN)
    db, app, web = (taken_up(one, name) for name in ("db", "app", "web"))
    for unit in (db, app, web):
        unit.stopped = True  # stored, but not yet carried out
    change = one.committer.change()
    one.controller.finish_stops(one.units.values(), change)
    one.committer.commit(change)
    one.store.work_all()
    for unit in (web, app, db):
        assert one.root.take("stop") == [run_of(unit.instances[0])]
        ends(one, unit.instances[0], cause="stop")


def test_exit_during_a_waiting_stop(bench: Make) -> None:
    """A service that exits while its stop waits stays down."""
    one = bench(CHAIN)
    db, _app, _web = (taken_up(one, name) for name in ("db", "app", "web"))
    act(one, "stop", "web", "db", "app")
    one.root.take("stop")
    ends(one, db.instances[0], status=1 << 8)
    assert states(db) == [State.STOPPED]
    assert one.root.take("spawn") == []


def test_forced_stop(bench: Make) -> None:
    """A forced stop kills all selected services at once."""
    one = bench(CHAIN)
    for name in ("db", "app", "web"):
        taken_up(one, name)
    act(one, "stop", "*", force=True)
    assert len(set(one.root.take("stop"))) == 3


def test_rolling_restart_in_progress(bench: Make) -> None:
    """A service in a rolling restart is busy; the others restart."""
    one = bench(TWO + f"[services.many]\n{MORE}instances = 2\n")
    taken_up(one, "a")
    taken_up(one, "many")
    answer_to(one, "service_restart", "many", command="1", rolling=True)
    one.root.take("stop")
    assert [unit[:2] for unit in act(one, "restart", "a", "many")] == [["a", "restarted"], ["many", "busy"]]
    assert one.root.take("stop") == [run_of(one.units["a"].instances[0])]


@pytest.mark.parametrize("verb", ["start", "restart", "pause", "resume"])
def test_failing_store(bench: Make, verb: str) -> None:
    """If a request cannot be stored, it gets 503 and changes no unit."""
    one = bench(TWO)
    for name in ("a", "b"):
        unit = taken_up(one, name)
        answer_to(one, "service_stop", name)
        ends(one, unit.instances[0], cause="stop")
    if verb == "resume":
        act(one, "pause", "t")
    answers = send(one, verb, "*")
    one.store.fail(DiskFull())
    assert [answer["status"] for answer in answers] == [503]
    assert [states(one.units[name]) for name in ("a", "b")] == [[State.STOPPED]] * 2
    assert one.units["t"].paused == (verb == "resume")


def test_shutdown(bench: Make) -> None:
    """During a shutdown, starts and restarts get 503, and stops are carried out."""
    one = bench(TWO)
    taken_up(one, "a")
    one.daemon.ending = True
    for verb in ("start", "restart"):
        assert [answer["status"] for answer in send(one, verb, "*")] == [503]
    assert act(one, "stop", "a")[0][:2] == ["a", "stopped"]
