"""POST /api/tasks/{taskName}/run."""

import json
import os
import re
import threading
import time
from typing import Any

import pytest

from api.resources.runs.trigger import IDEMPOTENCY_KEY
from store.runs.ids import is_ulid, new_ulid
from tests.api.support.credentials import bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

JSON = {"Content-Type": "application/json"}


def test_trigger(daemon: Daemon) -> None:
    """A trigger gets 201 with the run in convention B without params; the worker chooses the id."""
    answer = daemon.ask("POST", "/api/tasks/job/run")
    assert answer.status == 201
    body = answer.json
    assert is_ulid(body["id"])
    client = {"by": f"uid {os.getuid()}", "credential": f"uid {os.getuid()}", "from_process": os.getpid()}
    assert daemon.scheduler.calls == [("trigger", {"run": body["id"], "task": "job", "triggered_by": "api", **client})]
    assert (body["status"], body["triggered_by"], body["exit_code"]) == ("pending", "api", -1)
    assert "params" not in body
    assert answer.headers["Location"] == f"/api/runs/{body['id']}"
    assert daemon.get(answer.headers["Location"]).status == 200


def test_naming(daemon: Daemon) -> None:
    """naming=camel gives convention A."""
    assert daemon.ask("POST", "/api/tasks/job/run?naming=camel").json["taskName"] == "job"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (None, {}),
        (b"", {"Content-Type": "text/plain"}),
        (b"{}", JSON),
        (b'{"$schema": "http://localhost/schemas/TriggerBody.json"}', JSON),
        (b'{"params": {}}', JSON),
        (b'{"params": null}', JSON),
    ],
)
def test_no_parameters(daemon: Daemon, body: bytes | None, headers: dict[str, str]) -> None:
    """An empty body of any type, ``{}``, and only ``$schema`` mean no parameters."""
    assert daemon.ask("POST", "/api/tasks/job/run", body, headers).status == 201


@pytest.mark.parametrize(
    ("body", "locations"),
    [
        (b'{"params": {"a": 19734}}', {"body.params.a"}),
        (b'{"params": {"a": null, "b": "19734", "c": {}}}', {"body.params.a", "body.params.c"}),
        (b'{"params": {"a": ["19734"]}}', {"body.params.a"}),
        (b'{"params": "19734"}', {"body.params"}),
        (b'{"params": {' + b",".join(b'"%d": "19734"' % n for n in range(101)) + b"}}", {"body.params"}),
        (b'{"parms": {"a": "19734"}}', {"body.parms"}),
    ],
)
def test_invalid_parameters(daemon: Daemon, body: bytes, locations: set[str]) -> None:
    """422 names the field without repeating the value, which may be a secret; nothing is started."""
    answer = daemon.ask("POST", "/api/tasks/job/run", body, JSON)
    assert answer.status == 422
    assert {error["location"] for error in answer.json["errors"]} == locations
    assert b"19734" not in answer.body
    assert daemon.scheduler.calls == []


def test_parameters_are_handed_on(daemon: Daemon) -> None:
    """Parameters reach the scheduler unchanged, and its verdict on each is the answer."""
    given = {"a": "x\n$(y)", "b": ""}
    answer = daemon.ask("POST", "/api/tasks/job/run", json.dumps({"params": given}), JSON)
    assert answer.status == 201
    assert daemon.scheduler.calls[-1][1]["params"] == given

    def refuse(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(422, "not valid", [{"location": "body.params.a", "message": "is required"}])

    daemon.scheduler.operations["trigger"] = refuse
    answer = daemon.ask("POST", "/api/tasks/job/run", json.dumps({"params": given}), JSON)
    assert (answer.status, answer.json["errors"]) == (422, [{"location": "body.params.a", "message": "is required"}])


def test_later_time(daemon: Daemon) -> None:
    """A time of the request reaches the scheduler in milliseconds, and an idempotency key belongs to it too."""
    fingerprints = set()
    for body in ({}, {"run_at": "2100-01-01T00:00:00Z"}, {"run_at": "2100-01-01T01:00:00+01:00"}):
        key = {**JSON, "Idempotency-Key": "nightly"}
        assert daemon.ask("POST", "/api/tasks/job/run", json.dumps(body), key).status == 201
        arguments = daemon.scheduler.calls[-1][1]
        assert arguments.get("run_at") == (4_102_444_800_000 if body else None)
        fingerprints.add(arguments["request"])
    assert len(fingerprints) == 2


@pytest.mark.parametrize(("text", "message"), [("2020-01-01T00:00:00Z", "has passed"), ("tomorrow", "")])
def test_invalid_time(daemon: Daemon, text: str, message: str) -> None:
    """A time that has passed, and a text that is no time, get 422; nothing is started."""
    answer = daemon.ask("POST", "/api/tasks/job/run", json.dumps({"run_at": text}), JSON)
    assert answer.status == 422
    (error,) = answer.json["errors"]
    assert error["location"] == "body.run_at"
    assert message in error["message"]
    assert daemon.scheduler.calls == []


def test_secret_parameter(daemon: Daemon) -> None:
    """A record does not contain a parameter whose value is not stored."""
    hidden = daemon.insert(make_run(task="job", params={"TOKEN": None, "A": "x"}))
    only = daemon.insert(make_run(task="job", params={"TOKEN": None}))
    for naming in ("camel", "snake"):
        assert daemon.get(f"/api/runs/{hidden.id}?naming={naming}").json["params"] == {"A": "x"}
        assert "params" not in daemon.get(f"/api/runs/{only.id}?naming={naming}").json


@pytest.mark.parametrize(("task", "status"), [("unknown", 404), ("web", 409), ("locked", 403), ("a%20b", 422)])
def test_refusals(daemon: Daemon, task: str, status: int) -> None:
    """An unknown task gets 404, a service 409, a task without api_trigger 403, an invalid name 422."""
    assert daemon.ask("POST", f"/api/tasks/{task}/run").status == status


def test_skipped_at_once(daemon: Daemon) -> None:
    """A run that is skipped for overlap gets 201 too."""
    plain = daemon.scheduler.operations["trigger"]

    def skip(args: dict[str, Any]) -> dict[str, Any]:
        plain(args)
        daemon.end(args["run"], "skipped", exit_code=-1, started_at=None)
        return {}

    daemon.scheduler.operations["trigger"] = skip
    answer = daemon.ask("POST", "/api/tasks/job/run?wait=240")
    assert answer.status == 201
    assert (answer.json["status"], answer.json["end_reason"]) == ("ended", "skipped")


def test_scheduler_killed_before_it_answers(own: Daemon) -> None:
    """The answer is 201 if the run was stored, because 503 would mean that it was not."""
    own.scheduler.die_after("trigger")
    try:
        answer = own.ask("POST", "/api/tasks/job/run")
        assert answer.status == 201
        assert own.get(f"/api/runs/{answer.json['id']}").status == 200
    finally:
        own.scheduler.start()


def test_unreadable_run(own: Daemon) -> None:
    """500 names the run. 503 would invite a repetition, which would start a second run."""
    plain = own.scheduler.operations["trigger"]

    def lose(args: dict[str, Any]) -> dict[str, Any]:
        plain(args)
        os.rename(own.settings.database, f"{own.settings.database}.away")
        return {"found": False}  # so that no audit entry creates the file again

    own.scheduler.operations["trigger"] = lose
    try:
        answer = own.ask("POST", "/api/tasks/job/run")
        assert answer.status == 500
        assert "Retry-After" not in answer.headers
        (args,) = [args for op, args in own.scheduler.calls if op == "trigger"]
        assert args["run"] in answer.json["detail"]
    finally:
        os.rename(f"{own.settings.database}.away", own.settings.database)


def test_unreadable_end_of_a_run(own: Daemon) -> None:
    """A waiting client gets the run as it was stored, because it was triggered for certain."""
    plain = own.scheduler.operations["trigger"]

    def lose(args: dict[str, Any]) -> dict[str, Any]:
        plain(args)
        os.rename(own.settings.database, f"{own.settings.database}.away")
        return {"row": make_run(args["run"], args["task"])._asdict()}

    own.scheduler.operations["trigger"] = lose
    try:
        answer = own.ask("POST", "/api/tasks/job/run?wait=1")
        assert answer.status == 201
        (args,) = [args for op, args in own.scheduler.calls if op == "trigger"]
        assert (answer.json["id"], answer.json["status"]) == (args["run"], "pending")
    finally:
        os.rename(f"{own.settings.database}.away", own.settings.database)


def test_neither_scheduler_nor_database(own: Daemon) -> None:
    """503 if no scheduler accepted the command; otherwise, 500 says that the result is unknown."""

    def die(_args: dict[str, Any]) -> dict[str, Any]:
        own.scheduler.stop()
        raise ConnectionAbortedError

    own.scheduler.operations["trigger"] = die
    os.rename(own.settings.database, f"{own.settings.database}.away")
    try:
        unknown = own.ask("POST", "/api/tasks/job/run")
        assert unknown.status == 500
        assert "may have been triggered" in unknown.json["detail"]
        assert "Retry-After" not in unknown.headers
        refused = own.ask("POST", "/api/tasks/job/run")
        assert refused.status == 503
        assert "nothing was changed" in refused.json["detail"]
    finally:
        os.rename(f"{own.settings.database}.away", own.settings.database)
        own.scheduler.start()


def test_wait(daemon: Daemon) -> None:
    """A waiting trigger is answered when the run has ended."""
    plain = daemon.scheduler.operations["trigger"]

    def run(args: dict[str, Any]) -> dict[str, Any]:
        plain(args)
        daemon.update(args["run"], status="running", started_at=1)
        threading.Timer(0.1, daemon.end, (args["run"], "failed"), {"exit_code": 3}).start()
        return {}

    daemon.scheduler.operations["trigger"] = run
    body = daemon.ask("POST", "/api/tasks/job/run?wait=240").json
    assert (body["status"], body["end_reason"], body["exit_code"]) == ("ended", "failed", 3)


def test_wait_without_an_announcement(daemon: Daemon) -> None:
    """The end is noticed even if no event reports it."""
    plain = daemon.scheduler.operations["trigger"]

    def run(args: dict[str, Any]) -> dict[str, Any]:
        plain(args)
        columns = {"status": "ended", "end_reason": "succeeded", "exit_code": 0}
        threading.Timer(0.1, daemon.update, (args["run"],), columns).start()
        return {}

    daemon.scheduler.operations["trigger"] = run
    assert daemon.ask("POST", "/api/tasks/job/run?wait=240").json["status"] == "ended"


def test_wait_ends(daemon: Daemon) -> None:
    """At the end of the wait, a run that is still running is returned as it is."""
    start = time.monotonic()
    body = daemon.ask("POST", "/api/tasks/job/run?wait=1").json
    assert body["status"] == "pending"
    assert time.monotonic() - start >= 1


@pytest.mark.parametrize("wait", ["241", "-1", "x"])
def test_wait_limits(daemon: Daemon, wait: str) -> None:
    """The wait must be 0 to 240 seconds."""
    assert daemon.ask("POST", f"/api/tasks/job/run?wait={wait}").status == 422


def test_key_is_handed_on(daemon: Daemon) -> None:
    """The scheduler gets a hash of the key and a keyed hash of the request; its answer names the run."""
    run = daemon.insert(make_run(task="job"))
    seen: list[dict[str, Any]] = []

    def answer_again(args: dict[str, Any]) -> dict[str, Any]:
        seen.append(args)
        return {"run": run.id}

    daemon.scheduler.operations["trigger"] = answer_again
    for key, task in (("my key", "job"), ("my key", "job"), ("another", "job"), ("my key", "other")):
        answer = daemon.ask("POST", f"/api/tasks/{task}/run", headers={"Idempotency-Key": key})
        assert (answer.status, answer.json["id"]) == (201, run.id)
    assert "my key" not in str(seen)
    assert [args["key"] == seen[0]["key"] for args in seen] == [True, True, False, True]
    assert [args["request"] == seen[0]["request"] for args in seen] == [True, True, False, False]


def test_clients_do_not_share_keys(daemon: Daemon) -> None:
    """The same key of two tokens means two runs, and neither learns of the other's."""
    seen = set()
    for name in ("one", "two"):
        headers = {"Idempotency-Key": "k", **bearer(make_token(daemon, name, "operator"))}
        assert daemon.ask("POST", "/api/tasks/job/run", headers=headers, unix=False).status == 201
        seen.add(next(args["key"] for op, args in daemon.scheduler.calls[::-1] if op == "trigger"))
    assert len(seen) == 2


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "\xe9", "a\tb"])
def test_invalid_keys(daemon: Daemon, key: str) -> None:
    """422 names the header, and nothing is triggered."""
    answer = daemon.ask("POST", "/api/tasks/job/run", headers={"Idempotency-Key": key})
    assert answer.status == 422
    assert answer.json["errors"][0]["location"] == "header.Idempotency-Key"
    assert daemon.scheduler.calls == []
    assert not re.search(IDEMPOTENCY_KEY[1]["pattern"], key), "nor does the document say that it is one"


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("wait", ["", "?wait=240"])
def test_key_of_a_deleted_run(daemon: Daemon, removed: bool, wait: str) -> None:
    """A repeated request gets 201 and the same id at once, also if the run was deleted or removed since."""
    run = daemon.insert(make_run(task="job"))
    daemon.end(run.id)
    daemon.delete(run.id)
    run_id = new_ulid() if removed else run.id
    daemon.scheduler.operations["trigger"] = lambda _args: {"run": run_id}
    answer = daemon.ask("POST", f"/api/tasks/job/run{wait}", headers={"Idempotency-Key": "k"})
    body = answer.json
    assert (answer.status, body["id"], body["status"]) == (201, run_id, "pending" if removed else "ended")


def test_waiting_with_a_key(daemon: Daemon) -> None:
    """A repeated request waits for the end of the key's run, which may be over."""
    run = daemon.insert(make_run(task="job"))
    daemon.end(run.id)
    daemon.scheduler.operations["trigger"] = lambda _args: {"run": run.id}
    answer = daemon.ask("POST", "/api/tasks/job/run?wait=240", headers={"Idempotency-Key": "k"})
    assert (answer.json["id"], answer.json["status"]) == (run.id, "ended")
