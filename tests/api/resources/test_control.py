"""Start, stop, restart, pause and resume, and windows, up to the scheduler."""

import os
import time
from typing import Any

import pytest

from api.schemas.wire_times import rfc3339
from store import tasks
from tests.api.support.credentials import JSON, bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import now_ms
from tests.support.waiting import until

ME = f"uid {os.getuid()}"
"""The identity of a client on the socket of its own user."""

ACTIONS = {
    "start": "service_start",
    "stop": "service_stop",
    "restart": "service_restart",
    "pause": "task_pause",
    "resume": "task_resume",
}


@pytest.mark.parametrize("action", ACTIONS)
def test_scheduler_gets_the_command(daemon: Daemon, action: str) -> None:
    """The answer is 204, and the scheduler learns the task and the person."""
    answer = daemon.ask("POST", f"/api/tasks/site/{action}")
    assert (answer.status, answer.body) == (204, b"")
    operation, arguments = daemon.scheduler.calls[-1]
    assert operation == ACTIONS[action]
    assert (arguments["task"], arguments["by"]) == ("site", ME)


def test_restarts(daemon: Daemon) -> None:
    """Each restart has an id, and may be rolling."""
    for query in ("", "?rolling=true", "?rolling=0"):
        assert daemon.ask("POST", f"/api/tasks/site/restart{query}").status == 204
    restarts = [arguments for operation, arguments in daemon.scheduler.calls if operation == "service_restart"]
    assert [restart["rolling"] for restart in restarts] == [False, True, False]
    assert len({restart["command"] for restart in restarts}) == 3


@pytest.mark.parametrize("action", ACTIONS)
def test_a_request_after_its_deadline(daemon: Daemon, action: str) -> None:
    """A request that arrives after its deadline gets 409 and does nothing; before it, the deadline changes nothing."""
    now_ms = time.time_ns() // 1_000_000
    url = f"/api/tasks/site/{action}"
    answer = daemon.ask("POST", url, headers={"Ringward-Deadline": rfc3339(now_ms - 1)})
    assert (answer.status, daemon.scheduler.calls) == (409, [])
    assert answer.json["detail"].endswith("after its deadline. Nothing was done.")
    assert daemon.ask("POST", url, headers={"Ringward-Deadline": rfc3339(now_ms + 600_000)}).status == 204
    refused = daemon.ask("POST", url, headers={"Ringward-Deadline": "soon"})
    assert (refused.status, refused.json["errors"][0]["location"]) == (422, "header.Ringward-Deadline")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("status", [404, 409])
def test_refusals(daemon: Daemon, action: str, status: int) -> None:
    """A refusal by the scheduler keeps its status and message."""

    def refuse(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(status, "No")

    daemon.scheduler.operations[ACTIONS[action]] = refuse
    answer = daemon.ask("POST", f"/api/tasks/site/{action}")
    assert (answer.status, answer.json["detail"]) == (status, "No")


@pytest.mark.parametrize("action", ACTIONS)
def test_invalid_requests(daemon: Daemon, action: str) -> None:
    """An invalid name or parameter gets 422, and the scheduler is not asked."""
    assert daemon.ask("POST", f"/api/tasks/a%20b/{action}").status == 422
    assert daemon.ask("POST", f"/api/tasks/site/{action}?force=true").status == 422
    assert daemon.scheduler.calls == []


@pytest.mark.parametrize("action", ACTIONS)
def test_required_role(daemon: Daemon, action: str) -> None:
    """A viewer gets 403, an operator succeeds, and a token limited to other tasks gets 404."""
    path = f"/api/tasks/site/{action}"
    for name, role, scope, status in (
        ("looks", "viewer", {}, 403),
        ("works", "operator", {}, 204),
        ("elsewhere", "operator", {"tasks": "web-*"}, 404),
        ("here", "operator", {"tasks": "si*"}, 204),
    ):
        secret = make_token(daemon, f"{name}-{action}", role, **scope)
        assert daemon.ask("POST", path, headers=bearer(secret), unix=False).status == status


@pytest.mark.parametrize("action", ACTIONS)
def test_commands_are_audited(own: Daemon, action: str) -> None:
    """The audit has the request, the task and the person."""
    assert own.ask("POST", f"/api/tasks/site/{action}").status == 204
    entry = until(lambda: own.scheduler.audit, "the entry")[0]
    kind = "Task" if action in ("pause", "resume") else "Service"
    assert (entry.operation, entry.target, entry.who, entry.status) == (f"{action}{kind}", "site", ME, 204)


def test_flapping_service(daemon: Daemon) -> None:
    """The record of a service has `flapping`, that of a task does not."""
    with daemon.lock:
        tasks.upsert_task(daemon.db, "flaps", "service", "{}")
    assert daemon.get("/api/tasks/flaps").json["flapping"] is False
    with daemon.lock:
        tasks.update_task(daemon.db, "flaps", flapping_since=1)
        tasks.upsert_task(daemon.db, "plain", "task", "{}")
    assert daemon.get("/api/tasks/flaps").json["flapping"] is True
    assert "flapping" not in daemon.get("/api/tasks/plain").json


def test_progress_of_a_rolling_restart(daemon: Daemon) -> None:
    """The record of the service shows the progress of a rolling restart."""
    with daemon.lock:
        tasks.upsert_task(daemon.db, "rolls", "service", "{}")
        tasks.update_task(daemon.db, "rolls", rolling="[1, 3]")
    assert daemon.get("/api/tasks/rolls").json["rolling"] == {"done": 1, "total": 3}
    with daemon.lock:
        tasks.update_task(daemon.db, "rolls", rolling=None)
    assert "rolling" not in daemon.get("/api/tasks/rolls").json


_OPENING = {"name": "release", "since": 0, "until": 3_600_000, "by": "anna", "note": "version 5"}
_WINDOW = {
    "name": "release",
    "cron": ["0 20 * * thu"],
    "duration": "2h",
    "match": {"groups": ["shop"]},
    "instants": "skip",
    "running": "continue",
    "alarms": "hold",
    "open": None,
    "next": None,
}


def test_windows(daemon: Daemon) -> None:
    """The list has the keys of windows, and when each is open now or next."""
    daemon.scheduler.operations["windows"] = lambda _args: {
        "windows": [
            {**_WINDOW, "open": _OPENING},
            {**_WINDOW, "name": "x", "duration": None, "match": {}, "next": {**_OPENING, "until": None, "by": None}},
        ]
    }
    first, second = daemon.get("/api/windows").json["items"]
    keys = {key: _WINDOW[key] for key in ("cron", "instants", "running", "alarms")}
    assert first == {
        **keys,
        "name": "release",
        "duration": "2h",
        "match": {"groups": ["shop"]},
        "open": {
            "since": "1970-01-01T00:00:00.000Z",
            "until": "1970-01-01T01:00:00.000Z",
            "by": "anna",
            "note": "version 5",
        },
    }
    assert second == {
        **keys,
        "name": "x",
        "match": {},
        "next": {"since": "1970-01-01T00:00:00.000Z", "note": "version 5"},
    }


def test_open_windows_of_the_daemon(daemon: Daemon) -> None:
    """The record of the daemon has the open windows."""
    assert daemon.get("/api/daemon").json["windows"] == []


def test_windows_start_and_end(daemon: Daemon) -> None:
    """People open a window, perhaps until a time, and close it; the scheduler learns who did it."""
    daemon.scheduler.operations |= {"window_start": lambda _args: {}, "window_end": lambda _args: {}}
    body = '{"until": "2099-01-01T00:00:00Z", "note": "version 5"}'
    assert daemon.ask("POST", "/api/windows/release/start", body, JSON).status == 204
    assert daemon.ask("POST", "/api/windows/release/start").status == 204
    assert daemon.ask("POST", "/api/windows/release/end").status == 204
    first, second, third = daemon.scheduler.calls[-3:]
    assert (first[0], first[1]["window"], first[1]["note"]) == ("window_start", "release", "version 5")
    assert first[1]["until"] > now_ms()
    assert {"until", "note"}.isdisjoint(second[1])
    assert (third[0], third[1]["window"], third[1]["by"][:4]) == ("window_end", "release", "uid ")
    past = daemon.ask("POST", "/api/windows/release/start", '{"until": "2020-01-01T00:00:00Z"}', JSON)
    assert (past.status, past.json["errors"][0]["location"]) == (422, "body.until")


@pytest.mark.parametrize("status", [404, 409])
def test_refusals_about_windows(daemon: Daemon, status: int) -> None:
    """A refusal of the scheduler is the answer."""

    def refuse(_args: object) -> dict[str, object]:
        raise Refusal(status, "no")

    daemon.scheduler.operations["window_end"] = refuse
    assert daemon.ask("POST", "/api/windows/release/end").status == status


def test_upcoming(daemon: Daemon) -> None:
    """The answer has times in RFC 3339, and only what is known; the span is at most 35 days."""
    entry = {"kind": "run", "task": "t", "at": 0, "starts_at": 0, "local": "x", "usual_ms": None}
    many = {"kind": "runs", "task": "t", "at": 0, "until": 1000, "count": 30, "starts_at": 1, "usual_ms": 5}
    daemon.scheduler.operations["upcoming"] = lambda _args: {
        "items": [entry, many],
        "windows": [_OPENING],
        "pause": {"by": "anna", "at": 0, "until": None, "note": None},
        "clock_changes": [[0, 3600, 7200]],
        "next": 2000,
    }
    answer = daemon.get("/api/upcoming?to=9999-01-01T00:00:00Z&limit=5").json
    at = "1970-01-01T00:00:00.000Z"
    assert answer["items"] == [
        {"kind": "run", "taskName": "t", "at": at, "local": "x"},
        {
            "kind": "runs",
            "taskName": "t",
            "at": at,
            "startsAt": "1970-01-01T00:00:00.001Z",
            "until": "1970-01-01T00:00:01.000Z",
            "count": 30,
            "usualMs": 5,
        },
    ]
    assert [window["name"] for window in answer["windows"]] == ["release"]
    assert answer["pause"] == {"by": "anna", "at": at}
    assert answer["clockChanges"] == [{"at": at, "beforeS": 3600, "afterS": 7200}]
    assert answer["nextFrom"] == "1970-01-01T00:00:02.000Z"
    _, arguments = daemon.scheduler.calls[-1]
    assert (arguments["end"] - arguments["start"], arguments["limit"], arguments["reach"]) == (35 * 86_400_000, 5, None)
