"""Start, stop, restart, pause and resume, up to the scheduler."""

import os
import time
from typing import Any

import pytest

from api.schemas.wire_times import rfc3339
from store import tasks
from tests.api.support.credentials import bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
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
