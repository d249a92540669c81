"""Each role against each operation."""

import re

import pytest

from api.auth.identity import ROLES, Role
from api.auth.permission import UNSAFE
from api.operation_table import OPERATIONS
from api.operations.operation import Access, Operation
from tests.api.support.credentials import basic, bearer, make_token
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import make_run

PLACES = {
    "taskName": "job",
    "runId": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "lineNumber": "0",
    "schemaName": "Run.json",
    "tokenName": "nobody",
    "userName": "nobody",
    "notifierName": "nobody",
    "hookName": "nobody",
    "windowName": "nobody",
    "notificationId": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
}
GUARDED = [operation for operation in OPERATIONS if operation.access in (Access.PRIVATE, Access.METRICS)]
OPEN = {
    "login",
    "logout",
    "getAuthStatus",
    "getHealth",
    "getReadiness",
    "getOpenapi",
    "getSchema",
    "getStatusPage",
    "getBadge",
    "receiveHook",
    "ping",
    "reportPing",
}


def path_of(operation: Operation) -> str:
    return re.sub(r"{(\w+)}", lambda match: PLACES[match[1]], operation.path)


def required_query(operation: Operation) -> str:
    """Return the required query of an operation, for any role."""
    names = [param.name for param in operation.query if param.required]
    return "?" + "&".join(f"{name}=x" for name in names) if names else ""


def ids(operation: Operation) -> str:
    return operation.id


def ask(daemon: Daemon, operation: Operation, headers: dict[str, str], query: str = "") -> int:
    """The status; requests that could not be undone have an invalid body, so that nothing happens."""
    method = "HEAD" if operation.method == "GET" else operation.method
    body = b"no JSON" if operation.body is not None else None
    if body is not None:
        headers = {"Content-Type": "application/json", **headers}
    return daemon.ask(method, path_of(operation) + query, body, headers, unix=False).status


def test_every_operation_names_its_role() -> None:
    """Only the listed operations are public, and viewers have no operation that changes something."""
    assert {operation.id for operation in OPERATIONS if operation.role is Role.ANYBODY} == OPEN
    for operation in OPERATIONS:
        assert isinstance(operation.role, Role)
        open_to_all = operation.access in (Access.PUBLIC, Access.PROBE, Access.LOGIN, Access.HOOK)
        assert open_to_all == (operation.role is Role.ANYBODY), operation.id
        assert operation.method not in UNSAFE or open_to_all or operation.role >= Role.OPERATOR, operation.id


def test_operations_for_admins_only() -> None:
    """Only admins may use tokens, the audit, the daemon's log and reload."""
    admins = {operation.path for operation in OPERATIONS if operation.role is Role.ADMIN}
    assert {"/api/tokens", "/api/tokens/{tokenName}", "/api/audit", "/api/daemon/log/stream"} <= admins
    assert "/api/daemon/reload" in admins


@pytest.mark.parametrize("operation", GUARDED, ids=ids)
def test_without_authentication(daemon: Daemon, operation: Operation) -> None:
    """Without authentication, each operation gets 401 and the scheduler is not asked."""
    daemon.scheduler.calls.clear()
    assert ask(daemon, operation, {}) == 401
    assert ask(daemon, operation, bearer("rw_" + "A" * 43)) == 401
    assert daemon.scheduler.calls == []


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("operation", GUARDED, ids=ids)
def test_each_role_and_each_operation(daemon: Daemon, operation: Operation, role: str) -> None:
    """An insufficient role is refused before any other check; a sufficient role is not refused."""
    secret = bearer(make_token(daemon, f"role-{role}", role))
    daemon.scheduler.calls.clear()
    status = ask(daemon, operation, secret)
    if ROLES[role] >= operation.role:
        assert status not in (401, 403)
    else:
        assert status == 403
        assert daemon.scheduler.calls == []


def test_local_operations_refuse_all_tokens(daemon: Daemon) -> None:
    """No token gets the password of this start, not even an admin's: it is for the daemon's user on the Unix socket."""
    secret = bearer(make_token(daemon, "local", "admin"))
    assert daemon.get("/api/local/credentials", secret, unix=False).status == 403
    assert daemon.get("/api/local/credentials", {**secret, "Via": "x"}).status == 403


def test_token_cannot_gain_a_role(daemon: Daemon) -> None:
    """A token gains no role by a header, by a second credential of a lower role, or by creating another token."""
    for role in ("viewer", "operator", "cloud"):
        secret = bearer(make_token(daemon, "climber", role))
        body = '{"name": "mine", "role": "admin"}'
        json = {"Content-Type": "application/json"}
        assert daemon.ask("POST", "/api/tokens", body, secret | json, unix=False).status == 403
        assert daemon.get("/api/audit", {**secret, "X-Role": "admin"}, unix=False).status == 403
        assert daemon.get("/api/audit?role=admin", secret, unix=False).status == 403


def test_password_session_and_peer_are_admins(daemon: Daemon) -> None:
    """The password, a session and the trusted peer are admins; a token has its own role on the Unix socket too."""
    assert daemon.get("/api/audit", basic(PASSWORD), unix=False).status == 200
    assert daemon.get("/api/audit").status == 200
    viewer = bearer(make_token(daemon, "viewer", "viewer"))
    assert daemon.get("/api/audit", {**viewer, "Via": "x"}).status == 403


def test_undeclared_methods(daemon: Daemon) -> None:
    """Undeclared methods get 405 from every client; a method that Falcon reserves gets 400."""
    run = daemon.insert(make_run())
    for method in ("PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND"):
        assert daemon.ask(method, "/api/tasks").status == 405
        assert daemon.ask(method, f"/api/runs/{run.id}/log").status == 405
        assert daemon.ask(method, "/api/tasks", headers={"Host": "foreign.example"}, unix=False).status == 421
    assert daemon.ask("WEBSOCKET", "/api/tasks").status == 400
