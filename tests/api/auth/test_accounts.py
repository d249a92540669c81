"""Accounts of people: created, used, limited, removed."""

import json
from typing import Any

import pytest

from api.auth.passwords import hash_password, verify
from store import accounts
from tests.api.support.client import Answer
from tests.api.support.credentials import JSON, basic, cookie, make_token
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until

SECRET = "hunter2-hunter2"


def add(daemon: Daemon, name: str, role: str = "operator", **fields: Any) -> Answer:
    """Create an account; one of that name that an earlier test created is removed."""
    daemon.ask("DELETE", f"/api/users/{name}")
    body = {"name": name, "role": role, "password": SECRET, **fields}
    return daemon.ask("POST", "/api/users", json.dumps(body), JSON)


def login_as(daemon: Daemon, user: str, password: str = SECRET) -> Answer:
    body = json.dumps({"username": user, "password": password})
    return daemon.ask("POST", "/api/auth/login", body, JSON, unix=False)


def status(daemon: Daemon, headers: dict[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = daemon.get("/api/auth/status", headers, unix=False).json
    body.pop("$schema", None)
    return body


def test_hashes() -> None:
    """Two hashes of one password differ, contain their parameters, and match only this password."""
    first, other = hash_password("pass\udcff"), hash_password("pass\udcff")
    assert first != other
    assert first.split("$")[:4] == ["scrypt", "16384", "8", "5"]
    assert verify("pass\udcff", first)
    assert not verify("pass", first)


def test_an_account_is_listed_without_its_password(daemon: Daemon) -> None:
    """Answers, the database and the log do not contain the password."""
    made = add(daemon, "listed", tasks="web-*")
    assert made.status == 201
    (listed,) = (item for item in daemon.get("/api/users").json["items"] if item["name"] == "listed")
    assert (listed["role"], listed["tasks"]) == ("operator", "web-*")
    assert listed["createdBy"].startswith("uid ")
    with daemon.lock:
        dump = str(daemon.db.rows("SELECT * FROM accounts")) + str(daemon.db.rows("SELECT * FROM audit"))
    assert SECRET not in dump + daemon.log.read_text() + made.body.decode()
    assert "scrypt" not in made.body.decode() + daemon.get("/api/users").body.decode()


def test_basic_and_session_name_the_person(daemon: Daemon) -> None:
    """With HTTP Basic or a session, runs and the audit contain the account's name."""
    add(daemon, "alice@example.org")
    session = cookie(login_as(daemon, "alice@example.org"))
    for headers, method in ((session, "session"), (basic(SECRET, "alice@example.org"), "password")):
        expected = {"authenticated": True, "method": method, "user": "alice@example.org", "role": "operator"}
        assert status(daemon, headers) == expected
        assert daemon.ask("POST", "/api/tasks/job/run", headers=headers, unix=False).status == 201
        assert daemon.scheduler.calls[-1][1]["by"] == "user alice@example.org"
        assert daemon.scheduler.calls[-1][1]["triggered_by"] == "api"
    assert daemon.ask("POST", "/api/auth/logout", headers=session, unix=False).status == 204
    assert status(daemon, session) == {"authenticated": False}

    def logins() -> list[tuple[str, str]]:
        entries = [(entry.operation, entry.who) for entry in daemon.scheduler.audit]
        return [entry for entry in entries if entry[1] == "user alice@example.org"]

    until(lambda: [operation for operation, _ in logins()] == ["login", "runTask", "runTask", "logout"], "the audit")


@pytest.mark.parametrize("user", ["", "admin"])
def test_the_password_of_the_daemon(daemon: Daemon, user: str) -> None:
    """The daemon's password belongs to the account admin; an empty name means the same."""
    for headers, method in (
        (cookie(login_as(daemon, user, PASSWORD)), "session"),
        (basic(PASSWORD, user), "password"),
    ):
        assert status(daemon, headers) == {"authenticated": True, "method": method, "user": "admin", "role": "admin"}


@pytest.mark.parametrize("user", ["ringward", "Admin", "root", "x" * 200, "a\0b", "\u00e4", "a\nb"])
def test_other_names_are_refused(own: Daemon, user: str) -> None:
    """The daemon's password is refused under any other name, like a wrong password."""
    answer = login_as(own, user, PASSWORD)
    assert answer.status == 401
    wrong = login_as(own, "admin", "wrong")
    assert (answer.status, answer.json["detail"]) == (wrong.status, wrong.json["detail"])
    assert own.get("/api/runs", basic(PASSWORD, user), unix=False).status == 401
    assert own.scheduler.failures == {"127.0.0.1": 3}


def test_a_token_needs_no_name(daemon: Daemon) -> None:
    """A token in place of the password is accepted with any name."""
    secret = make_token(daemon, "named")
    assert login_as(daemon, "anybody", secret).status == 204
    assert status(daemon, basic(secret, "anybody"))["method"] == "token"


def test_roles_and_tasks(daemon: Daemon) -> None:
    """A viewer changes nothing, an operator does not see accounts, and tasks outside the scope do not exist."""
    add(daemon, "reader", "viewer")
    assert daemon.ask("POST", "/api/tasks/job/run", headers=basic(SECRET, "reader"), unix=False).status == 403
    add(daemon, "some", tasks="web-*")
    credentials = basic(SECRET, "some")
    assert daemon.get("/api/users", credentials, unix=False).status == 403
    assert daemon.ask("POST", "/api/tasks/job/run", headers=credentials, unix=False).status == 404
    answer = daemon.get("/api/daemon", credentials, unix=False)
    assert (answer.status, answer.json["detail"]) == (403, "This account is limited to tasks that match 'web-*'")


def test_a_foreign_page_cannot_use_an_account(daemon: Daemon) -> None:
    """A browser sends cookies and passwords by itself, so only pages of the daemon may use them."""
    add(daemon, "browsing")
    foreign = {"Origin": "http://evil.example"}
    for headers in (cookie(login_as(daemon, "browsing")), basic(SECRET, "browsing")):
        assert daemon.ask("POST", "/api/tasks/job/run", headers=headers | foreign, unix=False).status == 403


@pytest.mark.parametrize("change", ["password", "removal"])
def test_a_change_ends_sessions_connections_and_streams(own: Daemon, change: str) -> None:
    """A new password or a removal ends the account's sessions, authenticated connections and streams, but no others."""
    add(own, "leaving")
    add(own, "staying")
    session, other = cookie(login_as(own, "leaving")), cookie(login_as(own, "staying"))
    run = own.insert(make_run(task="watched"))
    path = f"/api/runs/{run.id}/log/stream"
    streams = [own.stream(path, headers, unix=False) for headers in (session, basic(SECRET, "leaving"))]
    connection = own.connect()

    def proven() -> int:
        connection.request("GET", "/api/runs", headers=basic(SECRET, "leaving"))
        response = connection.getresponse()
        response.read()
        return response.status

    assert proven() == 200
    if change == "password":
        body = '{"password": "another-password"}'
        assert own.ask("POST", "/api/users/leaving/password", body, JSON).status == 204
    else:
        assert own.ask("DELETE", "/api/users/leaving").status == 204
    assert own.get("/api/runs", session, unix=False).status == 401
    assert own.get("/api/runs", other, unix=False).status == 200
    assert proven() == 401
    connection.close()
    for stream in streams:
        assert list(stream.events()) == []
        stream.close()
    renewed = own.get("/api/runs", basic("another-password", "leaving"), unix=False).status
    assert renewed == (200 if change == "password" else 401)


def test_a_removed_account_gets_no_session(own: Daemon) -> None:
    """A new account does not revive the sessions of a removed account with the same name."""
    add(own, "again")
    session = cookie(login_as(own, "again"))
    add(own, "again")
    assert own.get("/api/runs", session, unix=False).status == 401


def test_existing_names(daemon: Daemon) -> None:
    """A new account with an existing name gets 409; admin can be neither created nor changed nor removed."""
    add(daemon, "twice")
    body = json.dumps({"name": "twice", "role": "admin", "password": SECRET})
    assert daemon.ask("POST", "/api/users", body, JSON).status == 409
    for name in ("admin", "Admin"):
        assert add(daemon, name).status == 422
    assert daemon.ask("DELETE", "/api/users/admin").status == 409
    assert daemon.ask("POST", "/api/users/admin/password", '{"password": "12345678"}', JSON).status == 409
    assert daemon.ask("DELETE", "/api/users/nobody").status == 404
    assert daemon.ask("POST", "/api/users/nobody/password", '{"password": "12345678"}', JSON).status == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "a b"},
        {"name": "a:b"},
        {"name": ""},
        {"name": ".."},
        {"name": "x" * 101},
        {"role": "root"},
        {"role": "cloud"},
        {"password": "1234567"},
        {"password": "x" * 1001},
        {"tasks": "a/b"},
        {"hash": "x"},
    ],
)
def test_invalid_accounts(daemon: Daemon, fields: dict[str, Any]) -> None:
    """An invalid account gets 422 with the field's name, and the answer does not repeat the password."""
    body = {"name": "ok", "role": "viewer", "password": SECRET, **fields}
    answer = daemon.ask("POST", "/api/users", json.dumps(body), JSON)
    assert answer.status == 422
    assert answer.json["errors"][0]["location"] == f"body.{next(iter(fields))}"
    assert body["password"] not in answer.body.decode()


def test_scheduler_killed_after_storing_an_account(own: Daemon) -> None:
    """If the account was stored before the scheduler died, the answer is success."""
    own.scheduler.die_after("account_create")
    answer = add(own, "stored")
    assert answer.status == 201
    own.scheduler.start()
    assert own.get("/api/runs", basic(SECRET, "stored"), unix=False).status == 200


def test_a_password_in_the_wrong_field_is_not_recorded(own: Daemon) -> None:
    """The audit records the name with a wrong password only if such an account exists."""
    add(own, "known")
    assert login_as(own, "known", "wrong").status == 401
    assert login_as(own, "my-secret-password", "x").status == 401
    until(lambda: len([entry for entry in own.scheduler.audit if entry.failed_login]) == 2, "the audit")
    assert [(entry.who, entry.target) for entry in own.scheduler.audit if entry.failed_login] == [
        ("", "known"),
        ("", ""),
    ]
    assert "my-secret-password" not in own.log.read_text()


def test_accounts_work_while_the_scheduler_is_away(own: Daemon) -> None:
    """HTTP Basic and existing sessions need no scheduler."""
    add(own, "steady")
    session = cookie(login_as(own, "steady"))
    own.scheduler.stop()
    for headers in (session, basic(SECRET, "steady")):
        assert own.get("/api/runs", headers, unix=False).status == 200
    own.scheduler.start()


def test_an_unknown_role_permits_nothing(own: Daemon) -> None:
    """An account with a role of a newer version is refused."""
    with own.lock:
        accounts.create(own.db, accounts.Account("newer", hash_password(SECRET), "t", "owner", None, 0, "x", 0))
    assert own.get("/api/runs", basic(SECRET, "newer"), unix=False).status == 403
