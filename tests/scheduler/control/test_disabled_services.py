"""A disabled service stays stopped through every restart, until a person enables it."""

from collections.abc import Callable
from typing import Any

from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.control.test_many_units import act, send
from tests.scheduler.service_bench import answer_to, ends, record, run_all, states, stored, taken_up

Make = Callable[[str], Bench]
MORE = 'run = "true"\nhealthy_after = "0s"\n'
TWO = f'[services.web]\n{MORE}depends_on = ["db"]\n[services.db]\n{MORE}[tasks.t]\nrun = "true"\n'


def disable(harness: Bench, *names: str, **more: Any) -> list[list[Any]]:
    return act(harness, "stop", *names, disable=True, note="moving the disk", **more)


def again(harness: Bench, *, first: bool) -> None:
    """Start the next scheduler: of the same daemon, or (`first`) of the next one, perhaps after the host booted."""
    harness.take_up(first=first)
    change = harness.committer.change()
    for unit in harness.units.values():
        if unit.service is not None:
            harness.controller.take_over(unit, change)
    harness.committer.commit(change)
    run_all(harness)


def test_survives_restarts(bench: Make) -> None:
    """A service that is stopped and disabled starts neither with the next scheduler nor with the next daemon."""
    harness = bench(TWO)
    db = taken_up(harness, "db")
    assert [unit[:2] for unit in disable(harness, "db")] == [["db", "stopped"]]
    ends(harness, db.instances[0], cause="stop")
    for first in (False, True):
        again(harness, first=first)
        assert states(harness.units["db"]) == [State.STOPPED]
        withheld = harness.units["db"].withheld
        assert withheld is not None
        assert (withheld.by, withheld.note) == ("me", "moving the disk")
    act(harness, "enable", "db")
    assert record(harness, "db").withheld is None
    assert states(harness.units["db"]) == [State.STOPPED]
    again(harness, first=True)
    assert states(harness.units["db"]) == [State.RUNNING]


def test_stopped_service_is_disabled_too(bench: Make) -> None:
    """A service that is stopped already can be disabled, and the answer counts it as changed."""
    harness = bench(TWO)
    taken_up(harness, "db")
    ends(harness, harness.units["db"].instances[0], cause="stop")
    act(harness, "stop", "db", command="0")
    assert disable(harness, "db") == [["db", "stopped", []]]
    again(harness, first=True)
    assert states(harness.units["db"]) == [State.STOPPED]


def test_start_needs_enable(bench: Make) -> None:
    """A start or restart says who disabled the service and changes nothing; with `enable`, the service starts."""
    harness = bench(TWO)
    db = taken_up(harness, "db")
    disable(harness, "db")
    ends(harness, db.instances[0], cause="stop")
    for answer in (answer_to(harness, "service_start", "db"), restarted_db(harness)):
        assert answer["status"] == 409
        assert "db is disabled by me since " in answer["detail"]
        assert ": moving the disk; start it with: ringward start --enable" in answer["detail"]
    assert act(harness, "start", "db") == [["db", "disabled", []]]
    assert act(harness, "restart", "d*") == [["db", "disabled", []]]
    assert states(db) == [State.STOPPED]
    assert act(harness, "start", "db", enable=True) == [["db", "started", []]]
    run_all(harness)
    assert states(db) == [State.RUNNING]
    assert db.withheld is None
    assert record(harness, "db").withheld is None


def restarted_db(harness: Bench) -> dict[str, Any]:
    return answer_to(harness, "service_restart", "db", command="2", rolling=False)


def test_dependent_does_not_start_it(bench: Make) -> None:
    """A dependent of a disabled service waits and says so; to start the dependent does not start the service."""
    harness = bench(TWO)
    disable(harness, "db")
    taken_up(harness, "web")
    answer_to(harness, "service_start", "web")
    run_all(harness)
    assert states(harness.units["db"]) == [State.STOPPED]
    (row,) = stored(harness, "web")
    assert row.detail is not None
    assert row.detail.startswith("waits for db to start: it is disabled by me since ")
    act(harness, "enable", "db")
    (row,) = stored(harness, "web")
    assert row.detail == "waits for db to start: it is stopped"


def test_only_services(bench: Make) -> None:
    """A task cannot be disabled; the answer names the command for tasks."""
    harness = bench(TWO)
    for arguments in (("stop", {"disable": True}), ("enable", {})):
        verb, more = arguments
        (answer,) = send(harness, verb, "t", **more)
        assert answer["status"] == 409
        assert answer["detail"] == "t is a task; use ringward pause and ringward resume"
