"""Entries of the audit log that travel with commands."""

from collections.abc import Callable
from typing import Any

import pytest

from store import audit
from store.errors import DiskFull, StoreError
from store.runs.ids import new_ulid
from supervisor.scheduler.control.access_operations import AccessOperations
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.notifications.notifications import NotificationOperations
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.control.test_bulk_jobs import ALL, COMMAND, BulkRequests, jobs, requests

__all__ = ["jobs", "requests"]
Make = Callable[[str], Bench]
ENTRY = [1, "user me", "unix", "anOperation", "target", 200, "", False]
CONFIG = '[tasks.t]\nrun = "true"\n[services.a]\nrun = "true"\n[services.b]\nrun = "true"\n'
BY = {"by": "me"}
MANY = {"group": None, "tag": None, "reach": None, "command": "c", "rolling": False, "force": False, **BY}
TOKEN = {"role": "viewer", "tasks": None, "created_at": 1, "created_by": "me", "expires_at": None, "last_used_at": None}


def begin(harness: Bench, op: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Send a request with an entry; return the list for its answer."""
    answers: list[dict[str, Any]] = []
    operations = operations_of(
        RunOperations(harness.core, harness.engine, harness.units, {}),
        UnitOperations(
            harness.core,
            harness.engine.stop,
            harness.controller,
            ScheduledStarts(harness.core, harness.engine),
            harness.units,
        ),
        AccessOperations(harness.loop, harness.committer, "", {}),
        NotificationOperations(harness.core),
    )
    operations[op](arguments, answers.append, ("key", tuple(ENTRY)))
    return answers


def entries(harness: Bench) -> list[str]:
    """Return the reasons of the stored entries, which else are as they were sent."""
    stored = [row.entry for row in audit.entries(harness.store.database, None, 9)]
    assert [list(entry._replace(reason="")) for entry in stored] == [ENTRY] * len(stored)
    return [entry.reason for entry in stored]


def trigger(**more: Any) -> dict[str, Any]:
    return {"run": new_ulid(), "task": "t", "triggered_by": "api", **BY, **more}


@pytest.mark.parametrize(
    ("op", "arguments", "reason"),
    [
        ("trigger", trigger(), ""),
        ("trigger", trigger(key="k", request="r"), ""),
        ("service_start", {"task": "a", **BY}, ""),
        ("service_stop", {"task": "a", **BY}, ""),
        ("service_restart", {"task": "a", "command": "c", "rolling": False, **BY}, ""),
        ("task_pause", {"task": "t", **BY}, ""),
        ("task_resume", {"task": "t", **BY}, ""),
        ("acknowledge", {"task": "t", "run": None, "for_ms": None, "note": None, **BY}, ""),
        ("unacknowledge", {"task": "t", **BY}, ""),
        ("units", {"verb": "start", "names": ["?"], **MANY}, "2 units: a, b"),
        ("units", {"verb": "restart", "names": ["?"], **MANY}, "2 units: a, b"),
        ("units", {"verb": "pause", "names": ["*"], **MANY}, "1 unit: t"),
        ("session_create", {"hash": "h", "password_tag": "p"}, ""),
        ("session_delete", {"hash": "h"}, ""),
        ("token_create", {"hash": "h", "name": "n", **TOKEN}, ""),
        ("notifications_read", {}, ""),
    ],
)
def test_effect_and_entry_are_stored_together(bench: Make, op: str, arguments: dict[str, Any], reason: str) -> None:
    """The answer to a command says that its entry is stored; the effect and the entry are one transaction."""
    harness = bench(CONFIG)
    for unit in harness.units.values():
        unit.stopped = unit.service is not None
    answers = begin(harness, op, arguments)
    assert (answers, entries(harness)) == ([], [])
    harness.store.work_all()
    assert answers[0]["recorded"]
    assert entries(harness) == [reason]


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("trigger", trigger(task="zzz")),
        ("trigger", trigger(task="a")),
        ("stop", {"run": new_ulid(), "force": False, **BY}),
        ("service_start", {"task": "t", **BY}),
        ("units", {"verb": "stop", "names": ["zzz"], **MANY}),
        ("units", {"verb": "resume", "names": ["t"], **MANY}),
        ("token_delete", {"name": "n"}),
        ("account_delete", {"name": "n"}),
        ("session_create", {"hash": "h", "password_tag": "p", "account": True}),
        ("notification_mark", {"id": "n", "read": True}),
        ("info", {}),
    ],
)
def test_requests_without_effect(bench: Make, op: str, arguments: dict[str, Any]) -> None:
    """A request that is refused or changes nothing is left to the API worker to record."""
    harness = bench(CONFIG)
    answers = begin(harness, op, arguments)
    harness.store.work_all()
    assert "recorded" not in answers[0]
    assert entries(harness) == []


def test_repeated_requests(bench: Make) -> None:
    """A repeated request leaves one entry, even if the answer to the first one was lost; the API worker records it."""
    harness = bench(CONFIG)
    arguments = trigger()
    begin(harness, "trigger", arguments)
    harness.store.work_all()
    (answer,) = begin(harness, "trigger", arguments)
    assert answer["ok"]
    assert "recorded" not in answer
    begin(harness, "audit", {"entries": {"key": ENTRY}})
    harness.store.work_all()
    assert entries(harness) == [""]


def test_failing_store(bench: Make) -> None:
    """If a command cannot be stored, neither is its entry."""
    harness = bench(CONFIG)
    answers = begin(harness, "trigger", trigger())
    harness.store.fail(StoreError("full"))
    harness.store.work_all()
    assert [answer["status"] for answer in answers] == [503]
    assert "recorded" not in answers[0]
    assert entries(harness) == []


def test_stops_are_answered_before_their_entry_is_stored(bench: Make) -> None:
    """A stop that is answered at once does not promise its entry, which is stored as soon as that is possible."""
    harness = bench(CONFIG)
    run = harness.trigger("t")
    harness.store.work_all()
    harness.started(run.id)
    harness.store.fail(DiskFull())
    answers = begin(harness, "stop", {"run": run.id, "force": False, **BY})
    assert answers == [{"ok": True, "result": {}}]
    assert entries(harness) == []
    harness.committer._feed()  # a second later
    harness.store.work_all()
    assert entries(harness) == [""]


def test_bulk_operations(requests: BulkRequests) -> None:
    """Each slice of a bulk operation stores the number of runs up to there; together they leave one entry."""
    harness = requests.jobs.harness
    ids = [run_id for (run_id,) in requests.jobs.db.rows("SELECT id FROM runs ORDER BY seq LIMIT 3")]
    answers: list[Any] = []
    requests.commands["bulk_delete"]({**ALL, "command": COMMAND}, answers.append, ("key", tuple(ENTRY)))
    requests.jobs.slice()
    assert entries(harness) == [f"4 runs: {', '.join(ids)} and 1 more"]
    requests.jobs.die()
    requests.renew()
    requests.commands["bulk_delete"]({**ALL, "command": COMMAND}, answers.append, ("key", tuple(ENTRY)))
    while not answers:
        requests.jobs.slice()
    assert answers[0]["recorded"]
    (reason,) = entries(harness)
    assert reason.startswith("20 runs: ")
    assert reason.endswith(" and 17 more")


def test_stopping_many_runs(requests: BulkRequests) -> None:
    """Stopped and repeated runs are recorded with their number and names."""
    harness = requests.jobs.harness
    answers: list[Any] = []
    requests.commands["bulk_rerun"](
        {**ALL, "command": COMMAND, "triggered_by": "api"}, answers.append, ("key", tuple(ENTRY))
    )
    harness.store.work_all()
    (run_id,) = [run["run_id"] for run in answers[0]["result"]["triggered"]]
    assert entries(harness) == [f"1 run: t {run_id}"]
    requests.commands["bulk_stop"]({**ALL, "command": COMMAND}, answers.append, ("key", tuple(ENTRY)))
    harness.store.work_all()
    assert answers[1]["recorded"]
    assert entries(harness) == [f"1 run: {run_id}"]
