"""Pages of other origins that use credentials of the browser: a cookie, or a remembered password."""

import pytest

from tests.api.support.credentials import basic, bearer, cookie, login, make_token
from tests.api.support.harness import PASSWORD, Daemon

ORIGINS = [
    ({"Origin": "http://evil.example"}, False),
    ({"Origin": "null"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "same-origin"}, True),
    ({"Sec-Fetch-Site": "none"}, True),
    ({}, True),
]


@pytest.mark.parametrize(("headers", "ours"), ORIGINS)
def test_requests_from_other_origins(daemon: Daemon, headers: dict[str, str], ours: bool) -> None:
    """A page of another origin can use neither the cookie nor the password for an unsafe method, and cannot log in."""
    for credentials in (cookie(login(daemon)), basic(PASSWORD)):
        answer = daemon.ask("POST", "/api/tasks/job/run", headers={**credentials, **headers}, unix=False)
        assert answer.status == (201 if ours else 403)
        assert daemon.get("/api/runs", {**credentials, **headers}, unix=False).status == 200
    assert login(daemon, headers=headers).status == (204 if ours else 403)


def test_own_origin_is_allowed(daemon: Daemon) -> None:
    """The allowed origin has the scheme, host and port of the request."""
    own = {"Origin": f"http://127.0.0.1:{daemon.port}"}
    assert login(daemon, headers=own).status == 204
    assert login(daemon, headers={"Origin": f"http://127.0.0.1:{daemon.port + 1}"}).status == 403


def test_default_port_of_a_scheme(daemon: Daemon) -> None:
    """The scheme's default port may be missing: browsers never send it in Origin, but proxies may add it to Host."""
    assert login(daemon, headers={"Host": "localhost:80", "Origin": "http://localhost"}).status == 204
    for host in ("localhost:443", "localhost:8080"):
        assert login(daemon, headers={"Host": host, "Origin": "http://localhost"}).status == 403


def test_token_as_a_remembered_password(daemon: Daemon) -> None:
    """A token that a browser sends as a password is refused across origins; one in a header of a program is not."""
    secret = make_token(daemon, "remembered", "operator")
    foreign = {"Origin": "http://evil.example"}
    assert daemon.ask("POST", "/api/tasks/job/run", headers=basic(secret) | foreign, unix=False).status == 403
    assert daemon.ask("POST", "/api/tasks/job/run", headers=bearer(secret) | foreign, unix=False).status == 201


def test_other_origins_cannot_read_answers(daemon: Daemon) -> None:
    """No answer, not even to a preflight, allows another origin to read it."""
    foreign = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST", **basic(PASSWORD)}
    for method in ("GET", "OPTIONS"):
        answer = daemon.ask(method, "/api/tasks", headers=foreign, unix=False)
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin" or method == "OPTIONS"
