"""Requests of API workers about tokens, accounts, sessions and failed logins."""

import time
from collections.abc import Callable
from typing import Any

from store import accounts, audit, sessions, tokens
from store.audit import AuditEntry
from store.errors import StoreError
from supervisor.scheduler.control.access_operations import AccessOperations
from supervisor.scheduler.loop.loop import Loop
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.fake_clock import FakeClock

Make = Callable[[str], Bench]
TOKEN = {
    "name": "n",
    "hash": "h",
    "role": "viewer",
    "tasks": None,
    "created_at": 1,
    "created_by": "me",
    "expires_at": None,
    "last_used_at": None,
}

ACCOUNT = {
    "name": "n",
    "password_hash": "h",
    "tag": "t",
    "role": "viewer",
    "tasks": None,
    "created_at": 1,
    "created_by": "me",
    "password_changed_at": 1,
}


def ask(harness: Bench, op: str, **arguments: Any) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    operations_of(AccessOperations(harness.loop, harness.committer, "", {}))[op](arguments, answers.append)
    harness.store.work_all()
    (answer,) = answers
    return answer


def stored_sessions(harness: Bench) -> list[str]:
    return [name for (name,) in harness.store.database.rows("SELECT hash FROM sessions ORDER BY hash")]


def test_tokens(bench: Make) -> None:
    """A token is created once, refused under a taken name, touched when used, and deleted."""
    harness = bench("")
    assert ask(harness, "token_create", **TOKEN)["ok"]
    assert ask(harness, "token_create", **TOKEN)["ok"]
    assert ask(harness, "token_create", **{**TOKEN, "hash": "other"})["status"] == 409
    assert ask(harness, "token_touch", hash="h")["ok"]
    (stored,) = tokens.all_tokens(harness.store.database)
    assert stored.last_used_at is not None
    assert ask(harness, "token_delete", name="n")["result"] == {"found": True}
    assert ask(harness, "token_delete", name="n")["result"] == {"found": False}


def test_sessions(bench: Make) -> None:
    """A new session removes the sessions of another password, and a logout deletes it."""
    harness = bench("")
    sessions.create(harness.store.database, "old", "former", 1)
    assert ask(harness, "session_create", hash="new", password_tag="tag")["ok"]
    assert harness.store.database.rows("SELECT hash FROM sessions") == [("new",)]
    assert ask(harness, "session_delete", hash="new")["ok"]
    assert sessions.get(harness.store.database, "new", time.time_ns() // 1_000_000) is None


def test_accounts(bench: Make) -> None:
    """An account is created once and refused under a taken name; its password can change, and it can be deleted."""
    harness = bench("")
    assert ask(harness, "account_create", **ACCOUNT)["ok"]
    assert ask(harness, "account_create", **ACCOUNT)["ok"]
    assert ask(harness, "account_create", **{**ACCOUNT, "tag": "other"})["status"] == 409
    assert ask(harness, "account_password", name="n", password_hash="h2", tag="t2")["result"] == {"found": True}
    assert accounts.by_tag(harness.store.database, "t2") is not None
    assert ask(harness, "account_delete", name="n")["result"] == {"found": True}
    assert ask(harness, "account_delete", name="n")["result"] == {"found": False}
    assert ask(harness, "account_password", name="n", password_hash="h2", tag="t3")["result"] == {"found": False}


def test_sessions_of_accounts(bench: Make) -> None:
    """A session of an account ends no other session. A former password and a deleted account get none."""
    harness = bench("")
    assert ask(harness, "session_create", hash="admin", password_tag="tag")["ok"]
    assert ask(harness, "account_create", **ACCOUNT)["ok"]
    assert ask(harness, "session_create", hash="n", password_tag="t", account=True)["ok"]
    assert stored_sessions(harness) == ["admin", "n"]
    assert ask(harness, "account_password", name="n", password_hash="h2", tag="t2")["ok"]
    assert ask(harness, "session_create", hash="late", password_tag="t", account=True)["status"] == 401
    assert ask(harness, "session_create", hash="n2", password_tag="t2", account=True)["ok"]
    assert stored_sessions(harness) == ["admin", "n2"]
    assert ask(harness, "account_delete", name="n")["ok"]
    assert ask(harness, "session_create", hash="late", password_tag="t2", account=True)["status"] == 401
    assert stored_sessions(harness) == ["admin"]


def test_audit(bench: Make) -> None:
    """Audit entries are stored unchanged and in order."""
    harness = bench("")
    entries = [AuditEntry(n, "who", "unix", "runTask", "job", 201, "", failed_login=False) for n in range(3)]
    assert ask(harness, "audit", entries={str(entry.at): list(entry) for entry in entries})["ok"]
    assert [stored.entry for stored in audit.entries(harness.store.database, None, 9)] == entries[::-1]


def test_failing_store(bench: Make) -> None:
    """If nothing can be stored, a request gets 503 and changes nothing."""
    harness = bench("")
    answers: list[dict[str, Any]] = []
    operations_of(AccessOperations(harness.loop, harness.committer, "", {}))["token_create"](TOKEN, answers.append)
    harness.store.fail(StoreError("full"))
    assert answers[0]["status"] == 503
    assert tokens.all_tokens(harness.store.database) == []


def test_wrong_passwords(bench: Make) -> None:
    """A client may send ten wrong passwords a minute, and then learns when it may try again."""
    clock = FakeClock()
    operations = operations_of(AccessOperations(Loop(clock), bench("").committer, "", {}))
    answers: list[dict[str, Any]] = []

    def attempt(client: str) -> object:
        operations["login_attempt"]({"client": client}, answers.append)
        return answers[-1]["result"]

    now = {"allowed": True, "retry_after_s": 0}
    for _ in range(10):
        assert attempt("c") == now
        operations["login_failed"]({"client": "c"}, answers.append)
    clock.advance(59.5)
    assert attempt("c") == {"allowed": False, "retry_after_s": 1}
    assert attempt("d") == now
    clock.advance(0.5)
    assert attempt("c") == now
