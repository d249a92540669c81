"""Tokens: made, used, limited, revoked."""

import json
import re
from typing import Any

import pytest

from api.auth.identity import hash_secret
from tests.api.support.credentials import JSON, basic, bearer, cookie, login, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms
from tests.support.waiting import until


def listed(daemon: Daemon, name: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = daemon.get("/api/tokens").json["items"]
    return next(item for item in items if item["name"] == name)


def test_a_token_is_shown_once(daemon: Daemon) -> None:
    """Its secret stands in the answer that makes it, and neither in the list, nor in the store, nor in the log."""
    secret = make_token(daemon, "once", "operator", tasks="web-*", expiresInMs=3_600_000)
    assert re.fullmatch("rw_[A-Za-z0-9_-]{43}", secret)
    found = listed(daemon, "once")
    assert (found["role"], found["tasks"], found["expired"]) == ("operator", "web-*", False)
    assert secret not in daemon.get("/api/tokens").body.decode()
    with daemon.lock:
        dump = str(daemon.db.rows("SELECT * FROM tokens")) + str(daemon.db.rows("SELECT * FROM audit"))
    assert hash_secret(secret) in dump
    assert secret not in dump
    assert secret not in daemon.log.read_text()


def test_bearer_and_basic(daemon: Daemon) -> None:
    """Both authenticate; the user name does not matter."""
    secret = make_token(daemon, "both")
    for headers in (bearer(secret), basic(secret), basic(secret, "x")):
        status = daemon.get("/api/auth/status", headers, unix=False).json
        assert (status["method"], status["role"]) == ("token", "viewer")
        assert daemon.get("/api/runs", headers, unix=False).status == 200


@pytest.mark.parametrize("secret", ["", "rw_", "rw_" + "A" * 43, "x" * 5000])
def test_an_invalid_token(daemon: Daemon, secret: str) -> None:
    """It gets 401, and is not counted as a wrong password: 256 bits cannot be guessed."""
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 401
    assert daemon.scheduler.failures == {}


def test_a_login_with_a_token(daemon: Daemon) -> None:
    """A login accepts a token; its cookie has the role of the token, needs an origin of ours, and ends with it."""
    answer = login(daemon, make_token(daemon, "reader"))
    assert answer.status == 204
    session = cookie(answer)
    status = daemon.get("/api/auth/status", session, unix=False).json
    assert (status["method"], status["role"]) == ("token", "viewer")
    assert daemon.ask("POST", "/api/tasks/job/run", headers=session, unix=False).status == 403
    operator = cookie(login(daemon, make_token(daemon, "doer", "operator")))
    foreign = {**operator, "Origin": "http://elsewhere.example"}
    assert daemon.ask("POST", "/api/tasks/job/run", headers=foreign, unix=False).status == 403
    assert daemon.ask("DELETE", "/api/tokens/reader").status == 204
    assert daemon.get("/api/runs", session, unix=False).status == 401


def test_a_revoked_token_is_none(daemon: Daemon) -> None:
    """At once; revoking again is a 404."""
    secret = make_token(daemon, "short")
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 200
    assert daemon.ask("DELETE", "/api/tokens/short").status == 204
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 401
    assert daemon.ask("DELETE", "/api/tokens/short").status == 404


def test_revocation_ends_streams(daemon: Daemon) -> None:
    """Streams opened with the token end, without done."""
    secret = make_token(daemon, "streaming")
    run = daemon.insert(make_run(task="watched"))
    stream = daemon.stream(f"/api/runs/{run.id}/log/stream", bearer(secret), unix=False)
    assert daemon.ask("DELETE", "/api/tokens/streaming").status == 204
    assert list(stream.events()) == []
    stream.close()


def test_an_expired_token_is_none(daemon: Daemon) -> None:
    """401; it stays in the list until it is revoked."""
    secret = make_token(daemon, "expiring", expiresInMs=1000)
    with daemon.lock:
        daemon.db.execute("UPDATE tokens SET expires_at = ? WHERE name = 'expiring'", [now_ms() - 1])
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 401
    assert listed(daemon, "expiring")["expired"] is True


def test_a_name_is_taken(daemon: Daemon) -> None:
    """409: a token does not silently replace another one."""
    make_token(daemon, "twice")
    answer = daemon.ask("POST", "/api/tokens", '{"name": "twice", "role": "admin"}', JSON)
    assert answer.status == 409
    assert listed(daemon, "twice")["role"] == "viewer"


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a b", "role": "viewer"},
        {"name": "line\n", "role": "viewer"},
        {"name": "", "role": "viewer"},
        {"name": ".", "role": "viewer"},
        {"name": "..", "role": "viewer"},
        {"name": "x" * 101, "role": "viewer"},
        {"name": "ok", "role": "root"},
        {"name": "ok"},
        {"name": "ok", "role": "viewer", "tasks": ""},
        {"name": "ok", "role": "viewer", "tasks": "a\n"},
        {"name": "ok", "role": "viewer", "tasks": "*" * 101},
        {"name": "ok", "role": "viewer", "expiresInMs": 0},
        {"name": "ok", "role": "viewer", "expiresInMs": 10**15},
        {"name": "ok", "role": "viewer", "hash": "x"},
    ],
)
def test_what_no_token_can_be(daemon: Daemon, body: dict[str, Any]) -> None:
    """422, and the scheduler is not even asked."""
    assert daemon.ask("POST", "/api/tokens", json.dumps(body), JSON).status == 422
    assert daemon.scheduler.calls == []


def test_a_scheduler_that_dies_before_it_answers(own: Daemon) -> None:
    """The answer is 201 with the secret once the token is stored: after a 503 the secret would be lost."""
    own.scheduler.die_after("token_create")
    try:
        secret = make_token(own, "kept")
        assert own.get("/api/tasks", bearer(secret), unix=False).status == 200
        assert own.ask("POST", "/api/tokens", '{"name": "lost", "role": "admin"}', JSON).status == 503
    finally:
        own.scheduler.start()


def test_what_the_scheduler_cannot_do_now(own: Daemon) -> None:
    """503 with its reason, without what only people on the host should see."""

    def full(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(503, "the database cannot be written: (/secret/place/ringward.db: disk is full)")

    own.scheduler.operations["token_create"] = full
    answer = own.ask("POST", "/api/tokens", '{"name": "late", "role": "admin"}', JSON)
    assert (answer.status, answer.json["detail"]) == (503, "The database cannot be written; nothing was changed")


def test_the_last_use_is_noted_once_a_minute(daemon: Daemon) -> None:
    """A write for each request would be a weapon."""
    secret = make_token(daemon, "used")
    assert "lastUsedAt" not in listed(daemon, "used")
    for _ in range(20):
        assert daemon.get("/api/runs", bearer(secret), unix=False).status == 200
    until(lambda: "lastUsedAt" in listed(daemon, "used"), "the use to be noted")
    assert daemon.scheduler.touched.count(hash_secret(secret)) == 1


def test_uses_after_the_clock_was_set_back(daemon: Daemon) -> None:
    """They are noted as seldom as before: not each, by a write, until the clock is there again."""
    secret = make_token(daemon, "ahead")
    with daemon.lock:
        daemon.db.execute("UPDATE tokens SET last_used_at = ? WHERE name = 'ahead'", [now_ms() + 86_400_000])
    ahead = listed(daemon, "ahead")["lastUsedAt"]
    for _ in range(20):
        assert daemon.get("/api/runs", bearer(secret), unix=False).status == 200
    until(lambda: listed(daemon, "ahead")["lastUsedAt"] < ahead, "the use to be noted")
    assert daemon.scheduler.touched.count(hash_secret(secret)) == 1


@pytest.mark.parametrize(("role", "trigger"), [("operator", "api"), ("admin", "api"), ("cloud", "cloud")])
def test_the_trigger_of_a_token(daemon: Daemon, role: str, trigger: str) -> None:
    """Runs that a cloud token triggers say so, and every run says which token it was."""
    secret = make_token(daemon, f"by-{role}", role)
    answer = daemon.ask("POST", "/api/tasks/job/run?naming=camel", headers=bearer(secret), unix=False)
    assert (answer.status, answer.json["triggeredBy"]) == (201, trigger)
    _, arguments = next(call for call in daemon.scheduler.calls if call[0] == "trigger")
    assert arguments["by"] == f"token by-{role}"


def test_tokens_are_never_limited(own: Daemon) -> None:
    """Who guesses passwords from an address does not shut out the tokens that are used from there."""
    secret = make_token(own, "steady")
    statuses = [own.get("/api/runs", basic("wrong"), unix=False).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]
    assert own.get("/api/runs", basic(secret), unix=False).status == 200
    assert own.get("/api/runs", bearer(secret), unix=False).status == 200
