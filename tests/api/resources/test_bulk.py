"""Bulk operations, deletion and the summary, as far as they are the API's."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from api.operations.operation import Call
from api.resources.runs import bulk
from api.worker_context import Context
from store.daemon_values import set_meta
from store.runs.ids import is_ulid, new_ulid
from tests.api.support.credentials import bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until

ME = f"uid {os.getuid()}"
"""The identity of a client on the socket of its own user."""

JSON = {"Content-Type": "application/json"}
KINDS = ("delete", "restore", "stop")


@pytest.fixture
def requests(daemon: Daemon) -> list[dict[str, Any]]:
    """The request to the scheduler, without the command's id."""
    requests_seen: list[dict[str, Any]] = []

    def answer(arguments: dict[str, Any]) -> dict[str, Any]:
        assert is_ulid(arguments.pop("command"))
        requests_seen.append(arguments)
        return {"affected": 7, "deleted_at": 1767323045001}

    for kind in KINDS:
        daemon.scheduler.operations[f"bulk_{kind}"] = answer
    return requests_seen


def post(daemon: Daemon, kind: str, selector: Any) -> Any:
    return daemon.ask("POST", f"/api/runs/bulk/{kind}", json.dumps(selector), JSON)


@pytest.mark.parametrize("kind", KINDS)
def test_affected(daemon: Daemon, requests: list[dict[str, Any]], kind: str) -> None:
    """The answer has the number of changed runs."""
    answer = post(daemon, kind, {"match_all": True})
    assert (answer.status, answer.json["affected"], "deleted_at" in answer.json) == (200, 7, False)
    assert requests == [
        {
            **({"deleted_at": None} if kind == "restore" else {}),
            "match_all": True,
            "filter": {"tasks": None, "retries_only": False},
            "except_ids": "",
            "ids": "",
            "by": ME,
        }
    ]


def test_one_deletion(daemon: Daemon, requests: list[dict[str, Any]]) -> None:
    """On request, a deletion returns its time, and a restore is limited to that deletion."""
    assert post(daemon, "delete?undo=true", {"match_all": True}).json["deleted_at"] == "2026-01-02T03:04:05.001Z"
    assert post(daemon, "restore?deleted_at=2026-01-02T03:04:05.001Z", {"match_all": True}).json["affected"] == 7
    assert requests[-1]["deleted_at"] == 1767323045001
    assert post(daemon, "restore?deleted_at=then", {"match_all": True}).status == 422


@pytest.mark.parametrize("at", ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59-23:59"])
def test_deletion_at_the_ends_of_the_calendar(daemon: Daemon, requests: list[dict[str, Any]], at: str) -> None:
    """A time outside the years 1 to 9999 of UTC is accepted, and selects no deletion."""
    assert post(daemon, f"restore?deleted_at={at}", {"match_all": True}).status == 200
    assert requests[-1]["deleted_at"] in (-62_135_596_800_000, 253_402_300_799_999)


def test_deleted_runs(daemon: Daemon) -> None:
    """Deleted runs are listed with the time of their deletion, with filters and pages."""
    columns = {"status": "ended", "end_reason": "start_failed"}
    gone = [daemon.insert(make_run(task="gone", exit_code=code, **columns)) for code in range(3)]
    for run in gone:
        daemon.delete(run.id)
    page = daemon.get("/api/runs/deleted?task_name=gone&status=start_failed&exit_code_min=1&limit=1").json
    (shown,) = page["runs"]
    assert page["total"] == 2
    assert shown.pop("deletedAt").endswith("Z")
    assert shown.pop("createdAt").endswith("Z")
    assert shown == {
        "id": max(run.id for run in gone if run.exit_code),
        "taskName": "gone",
        "status": "ended",
        "endReason": "start_failed",
        "exitCode": next(run.exit_code for run in gone if run.id == shown["id"]),
        "instanceIndex": 0,
        "retryAttempt": 0,
        "triggeredBy": "cron",
    }
    answer = daemon.get("/api/runs/deleted?sort_field=status")
    assert (answer.status, answer.json["errors"][0]["location"]) == (422, "query.sort_field")


def test_expired_deletions_are_not_listed(own: Daemon) -> None:
    """A run that can no longer be restored is not listed, even if it still exists."""
    own.delete(own.insert(make_run(status="ended", end_reason="failed")).id)
    assert own.get("/api/runs/deleted").json["total"] == 1
    with own.lock:
        set_meta(own.db, "info", {"undo_window_ms": 0})
    page = own.get("/api/runs/deleted").json
    assert (page["runs"], page["total"]) == ([], 0)


def test_concurrent_large_requests(daemon: Daemon) -> None:
    """Large requests that wait for the scheduler take the memory of a few; a small one waits with them."""
    going_on = threading.Event()

    def answer(_arguments: dict[str, Any]) -> dict[str, Any]:
        assert going_on.wait(60)
        return {"affected": 0}

    daemon.scheduler.operations["bulk_stop"] = answer
    large = json.dumps({"ids": []}) + " " * (15 << 20)

    def status(body: str) -> int:
        return daemon.ask("POST", "/api/runs/bulk/stop", body, JSON).status

    def requests(times: int) -> bool:
        return len(daemon.scheduler.calls) >= times

    with ThreadPoolExecutor() as clients:
        try:
            waiting = []
            for number in range(1, 5):
                waiting.append(clients.submit(status, large))
                until(partial(requests, number), "the scheduler to be asked")
            more = clients.submit(status, large)
            until(lambda: more.done() or requests(5), "one more to be answered")
            small = clients.submit(status, "{}")
            until(partial(requests, 5), "the scheduler to be asked for little")
        finally:
            going_on.set()
        assert [waiting_request.result() for waiting_request in (*waiting, more, small)] == [200] * 4 + [503, 200]
    assert status(large) == 200


def test_rerun(daemon: Daemon) -> None:
    """A rerun returns an array of the new runs, which may be empty."""
    run_id = new_ulid()
    triggered = [{"run_id": run_id, "task_name": "job"}]
    daemon.scheduler.operations["bulk_rerun"] = lambda args: {"triggered": triggered if args["match_all"] else []}
    assert post(daemon, "rerun", {"match_all": True}).json["triggered"] == triggered
    assert post(daemon, "rerun", {"ids": []}).json["triggered"] == []


def test_rerun_from_a_step(daemon: Daemon) -> None:
    """The step from which flows continue reaches the scheduler; with failed=true, it is an error."""
    asked: list[str] = []

    def answer(arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append(arguments["from_step"])
        return {"triggered": []}

    daemon.scheduler.operations["bulk_rerun"] = answer
    assert post(daemon, "rerun?from_step=load", {"match_all": True}).status == 200
    refused = post(daemon, "rerun?from_step=load&failed=true", {"match_all": True})
    assert (refused.status, refused.json["errors"][0]["location"]) == (422, "query.from_step")
    assert asked == ["load"]
    assert daemon.scheduler.calls[0][1]["triggered_by"] == "api"


@pytest.mark.parametrize(
    ("sent", "understood"),
    [
        ({}, {"retries_only": False}),
        ({"status": "success, running,,missed"}, {"phases": ["running"], "reasons": ["succeeded", "missed"]}),
        ({"status": "", "search": "", "task_name": "", "triggered_by": ""}, {}),
        ({"status": "failed", "triggered_by": "cron"}, {"phases": [], "reasons": ["failed"], "triggers": ["cron"]}),
        (
            {"task_name": "é", "search": "x", "retries_only": True},
            {"task_name": "é", "search": "x", "retries_only": True},
        ),
        (
            {"exit_code_min": -(2**63), "exit_code_max": 2**63 - 1},
            {"exit_code_min": -(2**63), "exit_code_max": 2**63 - 1},
        ),
        ({"exit_code_min": -59.0, "exit_code_max": 3e0}, {"exit_code_min": -59, "exit_code_max": 3}),
        (
            {"created_after": "2026-01-02T03:04:05.0001Z", "created_before": "2026-01-02T03:04:05.0009+01:00"},
            {"created_after": 1767323045001, "created_before": 1767319445000},
        ),
    ],
)
def test_filter(
    daemon: Daemon, requests: list[dict[str, Any]], sent: dict[str, Any], understood: dict[str, Any]
) -> None:
    """Every condition works: values are exact, `success` means `succeeded`, and an empty text is no condition."""
    assert post(daemon, "delete", {"match_all": True, "filter": sent}).status == 200
    assert requests[0]["filter"] == {"tasks": None, "retries_only": False, **understood}


@pytest.mark.parametrize("match_all", [{}, {"match_all": False}, {"match_all": None}])
def test_ids(daemon: Daemon, requests: list[dict[str, Any]], match_all: dict[str, Any]) -> None:
    """Without match_all only the ids count; invalid and repeated ids are ignored."""
    first, two = new_ulid(), new_ulid()
    selector = {
        "ids": [first, two, first, "nonsense", "", "é" * 26],
        "filter": {"status": "failed"},
        "except_ids": [first],
    }
    assert post(daemon, "delete", {**selector, **match_all}).status == 200
    assert requests == [{"match_all": False, "filter": {"tasks": None}, "except_ids": "", "ids": first + two, "by": ME}]
    assert post(daemon, "delete", {"ids": None, "except_ids": None, **match_all}).json["affected"] == 7
    assert requests[1]["ids"] == ""


def test_many_ids_do_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million ids take a second to check, so a thread does it instead of the loop."""
    went_on, none = threading.Event(), {"ids": "", "except_ids": ""}
    monkeypatch.setattr("api.resources.runs.bulk.arguments_of", lambda *_: {"went_on": went_on.wait(30), **none})
    context = SimpleNamespace(control=SimpleNamespace(call_patiently=lambda _operation, _entry, **arguments: arguments))
    call = SimpleNamespace(by="", body=bulk.RunSelector(), tasks=None, entry=lambda: None)
    gevent.spawn(went_on.set)
    assert bulk._ask(cast(Context, context), cast(Call, call), "bulk_delete")["went_on"]


def test_match_all(daemon: Daemon, requests: list[dict[str, Any]]) -> None:
    """With match_all, ids are ignored and exceptions count."""
    first, two = new_ulid(), new_ulid()
    assert post(daemon, "delete", {"match_all": True, "ids": [first], "except_ids": [two]}).status == 200
    assert (requests[0]["ids"], requests[0]["except_ids"]) == ("", two)


@pytest.mark.parametrize(
    ("selector", "locations"),
    [
        ({"matchall": True}, {"body.matchall"}),
        ({"match_all": 1, "ids": [1], "except_ids": "x"}, {"body.match_all", "body.ids[0]", "body.except_ids"}),
        ({"match_all": True, "filter": {"taskname": "x", "stat": ""}}, {"body.filter.taskname", "body.filter.stat"}),
        (
            {
                "filter": {
                    "status": "faild",
                    "created_after": "yesterday",
                    "created_before": "",
                    "exit_code_min": "1",
                    "retries_only": "yes",
                    "triggered_by": "me",
                    "search": None,
                },
                "more": 1,
            },
            {
                "body.filter.status",
                "body.filter.created_after",
                "body.filter.created_before",
                "body.filter.exit_code_min",
                "body.filter.retries_only",
                "body.filter.triggered_by",
                "body.filter.search",
                "body.more",
            },
        ),
        ({"match_all": True, "filter": None}, {"body.filter"}),
        (
            {"filter": {"exit_code_min": -(2**63) - 1, "exit_code_max": 2**64}},
            {"body.filter.exit_code_min", "body.filter.exit_code_max"},
        ),
        ([], {"body"}),
    ],
)
def test_invalid_requests(daemon: Daemon, requests: list[dict[str, Any]], selector: Any, locations: set[str]) -> None:
    """422 has an element for each problem, including those in the filter, and nothing is done."""
    answer = post(daemon, "delete", selector)
    assert answer.status == 422
    assert {error["location"] for error in answer.json["errors"]} == locations
    assert len(answer.json["errors"]) == len(locations)
    assert requests == []
    assert "Traceback" not in daemon.log.read_text()


def test_bodies(daemon: Daemon, requests: list[dict[str, Any]]) -> None:
    """A body is required, and may have 16 MiB."""
    assert daemon.ask("POST", "/api/runs/bulk/delete").status == 400
    ids = [f"01ARZ3{number:020d}" for number in range(570_000)]
    body = json.dumps({"ids": ids}, separators=(",", ":"))
    assert len(body) > 15 << 20
    answer = daemon.ask("POST", "/api/runs/bulk/delete", body, JSON)
    assert answer.status == 200
    assert requests[0]["ids"] == "".join(ids)
    assert daemon.ask("POST", "/api/runs/bulk/delete", body + " " * (2 << 20), JSON).status == 413
    assert daemon.ask("POST", "/api/tasks/job/run", b"{" + b" " * (1 << 20) + b"}", JSON).status == 413


def test_unfinished_bulk_work(daemon: Daemon) -> None:
    """A 503 says that a part may have been done, unlike for other commands."""

    def fail(_arguments: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(503, "it did not finish: The disk is full, so nothing was stored (/srv/data/ringward.db: full)")

    daemon.scheduler.operations["bulk_delete"] = fail
    answer = post(daemon, "delete", {"match_all": True})
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert "The operation may be incomplete" in answer.json["detail"]
    assert "The disk is full" in answer.json["detail"]
    assert "/srv" not in answer.json["detail"]


def test_not_run_again(own: Daemon) -> None:
    """503 says whether tasks may have been run again: they are all, or none is, and who asks again has them run twice.

    Not run: the scheduler says so, or there is none. Unknown: it was asked, and is gone.
    """

    def fail(_arguments: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(503, "it did not finish: The disk is full, so nothing was stored (/srv/data/ringward.db: full)")

    def die(_arguments: dict[str, Any]) -> dict[str, Any]:
        own.scheduler.stop()
        return {"triggered": []}

    for answer, detail in (
        (fail, "It did not finish; nothing was changed"),
        (die, "The scheduler is down; check whether the tasks have run before you repeat this"),
    ):
        own.scheduler.operations["bulk_rerun"] = answer
        response = post(own, "rerun", {"match_all": True})
        assert (response.status, response.json["detail"]) == (503, detail)
    assert post(own, "rerun", {"match_all": True}).json["detail"] == "The scheduler is down; nothing was changed"
    own.scheduler.start()


def test_delete(daemon: Daemon) -> None:
    """A deletion gets 204; 404 for a missing or deleted run, 409 for a running one, 422 for an invalid id."""
    run = daemon.insert(make_run(task="deleted"))
    daemon.scheduler.operations["run_delete"] = lambda _args: {}
    assert daemon.ask("DELETE", f"/api/runs/{run.id}").status == 204
    assert daemon.scheduler.calls == [("run_delete", {"run": run.id, "by": ME})]

    def refuse(_arguments: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(409, "it is running")

    daemon.scheduler.operations["run_delete"] = refuse
    assert daemon.ask("DELETE", f"/api/runs/{run.id}").status == 409
    daemon.delete(run.id)
    assert daemon.ask("DELETE", f"/api/runs/{run.id}").status == 404
    assert daemon.ask("DELETE", f"/api/runs/{new_ulid()}").status == 404
    assert daemon.ask("DELETE", "/api/runs/nothing").status == 422


def test_summary(daemon: Daemon) -> None:
    """The summary has the counts and the last failure since a time, for all tasks or one."""
    task, t0 = "summed", 1_767_323_045_000
    for minute, reason in enumerate(["failed", "timeout", "succeeded", "missed", "skipped"]):
        at_ms = t0 + minute * 60_000
        daemon.insert(make_run(task=task, status="ended", end_reason=reason, created_at=at_ms))
    body = daemon.get(f"/api/runs/summary?task_name={task}").json
    assert [body[name] for name in ("total", "success", "failed", "missed")] == [5, 1, 2, 1]
    assert body["lastFailure"]["endReason"] == "timeout"
    later = daemon.get(f"/api/runs/summary?taskName={task}&since=2026-01-02T03:06:00Z").json
    assert [later[name] for name in ("total", "success", "failed", "missed")] == [3, 1, 0, 1]
    assert "lastFailure" not in later
    assert daemon.get("/api/runs/summary").json["total"] >= 5
    answer = daemon.get("/api/runs/summary?since=now&what=1")
    assert answer.status == 422
    assert {error["location"] for error in answer.json["errors"]} == {"query.since", "query.what"}


def test_scope_and_role(daemon: Daemon, requests: list[dict[str, Any]]) -> None:
    """A token limited to some tasks affects only their runs; a viewer deletes nothing."""
    mine = daemon.insert(make_run(task="bulk-mine-1", status="ended", end_reason="failed"))
    other = daemon.insert(make_run(task="other-1", status="ended", end_reason="failed"))
    daemon.scheduler.operations["run_delete"] = lambda _args: {}
    some = bearer(make_token(daemon, "some", "operator", tasks="bulk-mine-*"))
    for selector in ({"match_all": True}, {"ids": [other.id]}):
        body = json.dumps(selector)
        assert daemon.ask("POST", "/api/runs/bulk/delete", body, {**JSON, **some}, unix=False).status == 200
    assert [arguments["filter"]["tasks"] for arguments in requests] == ["bulk-mine-*", "bulk-mine-*"]
    assert daemon.ask("DELETE", f"/api/runs/{other.id}", headers=some, unix=False).status == 404
    assert daemon.ask("DELETE", f"/api/runs/{mine.id}", headers=some, unix=False).status == 204
    assert daemon.get("/api/runs/summary", some, unix=False).json["lastFailure"]["id"] == mine.id
    assert daemon.get("/api/runs/summary", some, unix=False).json["total"] == 1
    viewer = bearer(make_token(daemon, "looks", "viewer"))
    assert daemon.ask("POST", "/api/runs/bulk/delete", b"{}", {**JSON, **viewer}, unix=False).status == 403
    assert daemon.ask("DELETE", f"/api/runs/{mine.id}", headers=viewer, unix=False).status == 403
    assert daemon.get("/api/runs/summary", viewer, unix=False).status == 200
