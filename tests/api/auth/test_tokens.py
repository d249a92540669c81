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


def test_token_is_shown_once(daemon: Daemon) -> None:
    """Only the answer that creates a token contains its secret; the list, the store and the log do not."""
    secret = make_token(daemon, "once", "operator", tasks="web-*", expiresInMs=3_600_000)
    assert re.fullmatch("rw_[A-Za-z0-9_-]{43}", secret)
    token = listed(daemon, "once")
    assert (token["role"], token["tasks"], token["expired"]) == ("operator", "web-*", False)
    assert secret not in daemon.get("/api/tokens").body.decode()
    with daemon.lock:
        dump = str(daemon.db.rows("SELECT * FROM tokens")) + str(daemon.db.rows("SELECT * FROM audit"))
    assert hash_secret(secret) in dump
    assert secret not in dump
    assert secret not in daemon.log.read_text()


def test_bearer_and_basic(daemon: Daemon) -> None:
    """A token works as Bearer and as the password of HTTP Basic, with any user name."""
    secret = make_token(daemon, "both")
    for headers in (bearer(secret), basic(secret), basic(secret, "x")):
        status = daemon.get("/api/auth/status", headers, unix=False).json
        assert (status["method"], status["role"]) == ("token", "viewer")
        assert daemon.get("/api/runs", headers, unix=False).status == 200


@pytest.mark.parametrize("secret", ["", "rw_", "rw_" + "A" * 43, "x" * 5000])
def test_invalid_token(daemon: Daemon, secret: str) -> None:
    """An invalid token gets 401 but does not count as a wrong password, because 256 bits cannot be guessed."""
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 401
    assert daemon.scheduler.failures == {}


def test_login_with_a_token(daemon: Daemon) -> None:
    """A login with a token returns a cookie with its role, which needs our origin and ends with the token."""
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


def test_revoked_token(daemon: Daemon) -> None:
    """A revoked token is refused at once; revoking it again gets 404."""
    secret = make_token(daemon, "short")
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 200
    assert daemon.ask("DELETE", "/api/tokens/short").status == 204
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 401
    assert daemon.ask("DELETE", "/api/tokens/short").status == 404


def test_revocation_ends_streams(daemon: Daemon) -> None:
    """Revoking a token ends its streams, without ``done``."""
    secret = make_token(daemon, "streaming")
    run = daemon.insert(make_run(task="watched"))
    stream = daemon.stream(f"/api/runs/{run.id}/log/stream", bearer(secret), unix=False)
    assert daemon.ask("DELETE", "/api/tokens/streaming").status == 204
    assert list(stream.events()) == []
    stream.close()


def test_expired_token(daemon: Daemon) -> None:
    """An expired token gets 401, but is listed until it is revoked."""
    secret = make_token(daemon, "expiring", expiresInMs=1000)
    with daemon.lock:
        daemon.db.execute("UPDATE tokens SET expires_at = ? WHERE name = 'expiring'", [now_ms() - 1])
    assert daemon.get("/api/runs", bearer(secret), unix=False).status == 401
    assert listed(daemon, "expiring")["expired"] is True


def test_existing_token_name(daemon: Daemon) -> None:
    """A new token with an existing name gets 409 and does not replace it."""
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
def test_invalid_token_definitions(daemon: Daemon, body: dict[str, Any]) -> None:
    """An invalid definition gets 422, and the scheduler is not asked."""
    assert daemon.ask("POST", "/api/tokens", json.dumps(body), JSON).status == 422
    assert daemon.scheduler.calls == []


def test_scheduler_killed_before_it_answers(own: Daemon) -> None:
    """If the token was stored, the answer is 201 with the secret, which would otherwise be lost."""
    own.scheduler.die_after("token_create")
    try:
        secret = make_token(own, "kept")
        assert own.get("/api/tasks", bearer(secret), unix=False).status == 200
        assert own.ask("POST", "/api/tokens", '{"name": "lost", "role": "admin"}', JSON).status == 503
    finally:
        own.scheduler.start()


def test_scheduler_cannot_store(own: Daemon) -> None:
    """The answer is 503 with the reason, but without details for people on the host."""

    def full(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(503, "the database cannot be written: (/secret/place/ringward.db: disk is full)")

    own.scheduler.operations["token_create"] = full
    answer = own.ask("POST", "/api/tokens", '{"name": "late", "role": "admin"}', JSON)
    assert (answer.status, answer.json["detail"]) == (503, "The database cannot be written; nothing was changed")


def test_last_use_is_recorded_once_a_minute(daemon: Daemon) -> None:
    """Recording each use would allow clients to cause a write for each request."""
    secret = make_token(daemon, "used")
    assert "lastUsedAt" not in listed(daemon, "used")
    for _ in range(20):
        assert daemon.get("/api/runs", bearer(secret), unix=False).status == 200
    until(lambda: "lastUsedAt" in listed(daemon, "used"), "the use to be noted")
    assert daemon.scheduler.touched.count(hash_secret(secret)) == 1


def test_last_use_after_a_backward_clock_step(daemon: Daemon) -> None:
    """After a backward step of the clock, uses are recorded as rarely as before."""
    secret = make_token(daemon, "ahead")
    with daemon.lock:
        daemon.db.execute("UPDATE tokens SET last_used_at = ? WHERE name = 'ahead'", [now_ms() + 86_400_000])
    ahead = listed(daemon, "ahead")["lastUsedAt"]
    for _ in range(20):
        assert daemon.get("/api/runs", bearer(secret), unix=False).status == 200
    until(lambda: listed(daemon, "ahead")["lastUsedAt"] < ahead, "the use to be noted")
    assert daemon.scheduler.touched.count(hash_secret(secret)) == 1


@pytest.mark.parametrize(("role", "trigger"), [("operator", "api"), ("admin", "api"), ("cloud", "cloud")])
def test_runs_name_their_token(daemon: Daemon, role: str, trigger: str) -> None:
    """Runs triggered by a cloud token have the trigger ``cloud``, and every run names its token."""
    secret = make_token(daemon, f"by-{role}", role)
    answer = daemon.ask("POST", "/api/tasks/job/run?naming=camel", headers=bearer(secret), unix=False)
    assert (answer.status, answer.json["triggeredBy"]) == (201, trigger)
    _, arguments = next(call for call in daemon.scheduler.calls if call[0] == "trigger")
    assert arguments["by"] == f"token by-{role}"


def test_wrong_passwords_do_not_block_tokens(own: Daemon) -> None:
    """Wrong passwords from an address do not block tokens from the same address."""
    secret = make_token(own, "steady")
    statuses = [own.get("/api/runs", basic("wrong"), unix=False).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]
    assert own.get("/api/runs", basic(secret), unix=False).status == 200
    assert own.get("/api/runs", bearer(secret), unix=False).status == 200
