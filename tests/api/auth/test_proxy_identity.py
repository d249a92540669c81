"""People whom a proxy has authenticated, and forged headers from everywhere else."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from api.auth import proxy_identity
from api.auth.identity import Identity
from api.errors import ApiError
from supervisor.ipc.messages import IdentityHeaders
from tests.api.support.credentials import basic, bearer, cookie, login, make_token
from tests.api.support.harness import PASSWORD, Daemon
from tests.support.client import UnixConnection

SECRET = "0123456789abcdef0123456789abcdef"
HEADERS = IdentityHeaders(
    user="Remote-User",
    groups="Remote-Groups",
    secret="Ringward-Proxy-Secret",
    expected=SECRET,
    roles={"admins": "admin", "ops": "operator", "readers": "viewer"},
)
PROVEN = {"Ringward-Proxy-Secret": SECRET, "X-Forwarded-For": "203.0.113.7"}
ALICE = {"Remote-User": "alice", "Remote-Groups": "staff,ops"}
FORGED = {"Remote-User": "mallory", "Remote-Groups": "admins"}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A server behind a proxy on this host that authenticates people."""
    path = tmp_path_factory.mktemp("behind")
    daemon = Daemon(
        path, behind_proxy=["127.0.0.1/32"], identity=HEADERS, proxy_socket=str(path / "proxy.sock"), hosts=["d"]
    )
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A server whose proxy is on another host."""
    daemon = Daemon(tmp_path_factory.mktemp("elsewhere"), behind_proxy=["192.0.2.1/32"], identity=HEADERS)
    yield daemon
    daemon.close()


def status(daemon: Daemon, headers: dict[str, str]) -> dict[str, Any]:
    answer = daemon.get("/api/auth/status", headers, unix=False)
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    body.pop("$schema", None)
    return body


def raw(daemon: Daemon, headers: list[tuple[str, str]]) -> tuple[int, dict[str, Any]]:
    """Send headers in any spelling and number; return the status and the answer."""
    with socket.create_connection(("127.0.0.1", daemon.port)) as sock:
        lines = [f"{name}: {value}" for name, value in (("Host", "localhost"), ("Connection", "close"), *headers)]
        sock.sendall("\r\n".join(("GET /api/auth/status HTTP/1.1", *lines, "", "")).encode("utf-8"))
        response = http.client.HTTPResponse(sock)
        response.begin()
        return response.status, json.loads(response.read())


def test_identity_from_the_proxy(behind: Daemon) -> None:
    """Secret, name and groups from the proxy make a person with the role of the group, whose name runs record."""
    assert status(behind, PROVEN | ALICE) == {
        "authenticated": True,
        "method": "proxy",
        "user": "alice",
        "role": "operator",
    }
    answer = behind.ask("POST", "/api/tasks/job/run", headers=PROVEN | ALICE, unix=False)
    assert answer.status == 201
    _, arguments = behind.scheduler.calls[-1]
    assert (arguments["by"], arguments["triggered_by"]) == ("proxy user alice", "api")
    assert behind.get("/api/tokens", PROVEN | ALICE, unix=False).status == 403
    assert behind.get("/api/tokens", PROVEN | ALICE | {"Remote-Groups": "admins"}, unix=False).status == 200


@pytest.mark.parametrize(
    "secret",
    [None, "", SECRET[:-1], SECRET + "0", SECRET.upper(), f"{SECRET}, {SECRET}", "\u00e9" * 32, "x" * 5000],
)
def test_without_the_secret(behind: Daemon, secret: str | None) -> None:
    """Headers from the address of the proxy mean nothing without its secret."""
    proof = [] if secret is None else [("Ringward-Proxy-Secret", secret)]
    assert raw(behind, [*proof, *FORGED.items()])[1]["authenticated"] is False
    if secret is None:
        assert behind.get("/api/runs", FORGED, unix=False).status == 401


def test_from_a_peer_that_is_not_the_proxy(elsewhere: Daemon) -> None:
    """Headers of a local process that is not the proxy mean nothing, even with the secret."""
    assert status(elsewhere, PROVEN | FORGED) == {"authenticated": False}
    assert elsewhere.get("/api/runs", PROVEN | FORGED, unix=False).status == 401


def unix(path: str, headers: dict[str, str]) -> int:
    connection = UnixConnection(path)
    try:
        connection.request("GET", "/api/runs", headers={"Host": "localhost", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_on_the_unix_sockets(behind: Daemon) -> None:
    """Headers name no user on the Unix sockets; on the trusting socket, they remove the trust."""
    assert unix(behind.settings.http_socket, {}) == 200
    for proof in ({}, PROVEN):
        assert unix(str(behind.settings.proxy_socket), FORGED | proof) == 401
        assert unix(behind.settings.http_socket, FORGED | proof) == 401
    for name in ("Remote-User", "Remote-Groups", "Ringward-Proxy-Secret"):
        assert unix(behind.settings.http_socket, {name: "x"}) == 401


@pytest.mark.parametrize("spelling", ["remote-user", "REMOTE-USER", "rEmOtE-uSeR"])
def test_case_of_headers(behind: Daemon, spelling: str) -> None:
    """Header names are case-insensitive, and each spelling needs the secret."""
    sent = [(spelling, "alice"), ("REMOTE-groups", "ops")]
    assert raw(behind, [("ringward-PROXY-secret", SECRET), *sent])[1]["user"] == "alice"
    assert raw(behind, sent)[1]["authenticated"] is False


@pytest.mark.parametrize("spelling", ["Remote_User", "REMOTE_USER", "remote_user"])
def test_underscores(behind: Daemon, spelling: str) -> None:
    """A spelling with underscores is dropped, and adds neither a name nor groups."""
    proof = ("Ringward-Proxy-Secret", SECRET)
    assert raw(behind, [proof, (spelling, "mallory")])[1]["authenticated"] is False
    identity = raw(behind, [proof, *ALICE.items(), (spelling, "mallory"), ("Remote_Groups", "admins")])[1]
    assert (identity["user"], identity["role"]) == ("alice", "operator")
    assert raw(behind, [("Ringward_Proxy_Secret", SECRET), *FORGED.items()])[1]["authenticated"] is False


@pytest.mark.parametrize("repeated", ["Remote-User", "Remote-Groups", "remote-groups"])
def test_repeated_headers(behind: Daemon, repeated: str) -> None:
    """A request with two such headers is refused, because the client has forged one of them."""
    sent = [("Ringward-Proxy-Secret", SECRET), *ALICE.items(), (repeated, "admins")]
    code, answer = raw(behind, sent)
    assert code == 400
    assert f"The proxy sent {repeated.title()} more than once" in answer["detail"]
    assert raw(behind, sent[1:])[1]["authenticated"] is False


@pytest.mark.parametrize("forged", ["forged", SECRET])
def test_repeated_secret(behind: Daemon, forged: str) -> None:
    """A secret that the proxy adds to the client's header gets 400 like the other headers, whatever the client sent."""
    secrets = [("Ringward-Proxy-Secret", forged), ("Ringward-Proxy-Secret", SECRET)]
    for sent in (secrets, secrets[::-1]):
        code, answer = raw(behind, [*sent, *ALICE.items()])
        assert code == 400
        assert "The proxy sent Ringward-Proxy-Secret more than once" in answer["detail"]
    assert raw(behind, [secrets[0], secrets[0], *ALICE.items()])[0] == (200 if forged == "forged" else 400)


def test_no_group_has_a_role(behind: Daemon) -> None:
    """A person without a role gets 403 with the received groups, also at the login state: a password would not help."""
    for path in ("/api/runs", "/api/auth/status"):
        answer = behind.get(path, PROVEN | {"Remote-User": "bob", "Remote-Groups": "staff, sales"}, unix=False)
        assert answer.status == 403
        assert answer.json["detail"] == (
            'No group of bob has a role; groups in Remote-Groups: "staff", "sales". Add one to roles in [http.identity]'
        )
    answer = behind.get("/api/runs", PROVEN | {"Remote-User": "bob"}, unix=False)
    assert (answer.status, "Remote-Groups: none" in answer.json["detail"]) == (403, True)


def test_request_without_a_user_name(behind: Daemon) -> None:
    """If the proxy sends no user name, the client can log in itself."""
    assert status(behind, PROVEN) == {"authenticated": False}
    assert status(behind, PROVEN | {"Remote-User": " "}) == {"authenticated": False}
    session = cookie(login(behind, headers=PROVEN))
    assert status(behind, PROVEN | session)["user"] == "admin"


def test_precedence(behind: Daemon) -> None:
    """An explicit credential precedes the proxy's user, who precedes another user's cookie."""
    session = cookie(login(behind))
    assert status(behind, PROVEN | ALICE | session)["user"] == "alice"
    assert status(behind, PROVEN | ALICE | basic(PASSWORD))["user"] == "admin"
    assert status(behind, PROVEN | ALICE | bearer(make_token(behind, "explicit")))["method"] == "token"
    assert behind.get("/api/runs", PROVEN | ALICE | bearer("rw_" + "A" * 43), unix=False).status == 401


@pytest.mark.parametrize("foreign", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_foreign_page_cannot_use_the_identity(behind: Daemon, foreign: dict[str, str]) -> None:
    """The proxy adds the person to requests of foreign pages too, so the origin is checked (CSRF)."""
    answer = behind.ask("POST", "/api/tasks/job/run", headers=PROVEN | ALICE | foreign, unix=False)
    assert answer.status == 403
    own = {"Origin": f"http://localhost:{behind.port}", "Host": f"localhost:{behind.port}"}
    assert behind.ask("POST", "/api/tasks/job/run", headers=PROVEN | ALICE | own, unix=False).status == 201


def test_names_beyond_ascii(behind: Daemon) -> None:
    """Names and groups are UTF-8; invalid and unprintable ones are refused."""
    proof = ("Ringward-Proxy-Secret", SECRET)
    assert raw(behind, [proof, ("Remote-User", "J\u00fcrgen"), ("Remote-Groups", "ops")])[1]["user"] == "J\u00fcrgen"
    assert raw(behind, [proof, ("Remote-User", "a\u202eb"), ("Remote-Groups", "ops")])[0] == 400
    assert raw(behind, [proof, ("Remote-User", "x" * 201), ("Remote-Groups", "ops")])[0] == 400


def test_secret_is_not_logged(behind: Daemon) -> None:
    """Neither the server's log nor the audit contains the secret."""
    behind.ask("POST", "/api/tasks/job/run", headers=PROVEN | ALICE, unix=False)
    assert SECRET not in behind.log.read_text()
    assert SECRET not in str(behind.scheduler.audit)


def identified(user: str, groups: str, **roles: str) -> Identity | None:
    environ = {
        "HTTP_REMOTE_USER": user,
        "HTTP_REMOTE_GROUPS": groups,
        "HTTP_RINGWARD_PROXY_SECRET": SECRET,
        "ringward.headers": [("RINGWARD-PROXY-SECRET", SECRET)],
    }
    headers = IdentityHeaders(
        user="Remote-User", groups="Remote-Groups", secret="Ringward-Proxy-Secret", expected=SECRET, roles=roles
    )
    proxy_identity.resolve_headers(environ, headers, from_proxy=True)
    assert not [name for name in environ if name.startswith("HTTP_") or name == "ringward.headers"]
    return proxy_identity.identify(environ, headers)


@pytest.mark.parametrize(
    ("groups", "roles", "role"),
    [
        ("a,b", {"a": "viewer", "b": "admin"}, "admin"),
        ("a|b", {"a": "viewer", "b": "operator"}, "operator"),
        ("a,b|c", {"b": "admin", "c": "viewer"}, "viewer"),
        ("big team, x", {"big team": "operator"}, "operator"),
        ("a", {"a": "viewer", "*": "admin"}, "viewer"),
        ("", {"*": "viewer"}, "viewer"),
        ("*", {"*": "viewer", "b": "admin"}, "viewer"),
    ],
)
def test_roles(groups: str, roles: dict[str, str], role: str) -> None:
    """The group with the most powerful role counts; "*" applies to people in none of the listed groups."""
    identity = identified("alice", groups, **roles)
    assert identity is not None
    assert identity.role_name == role


@pytest.mark.parametrize("groups", ["A", "a b", "b"])
def test_groups_match_exactly(groups: str) -> None:
    """A group is compared by its whole name and case."""
    with pytest.raises(ApiError) as refused:
        identified("alice", groups, a="admin")
    assert refused.value.status == 403
