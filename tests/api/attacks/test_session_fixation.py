"""A session known to an attacker, given to a victim before the log-in."""

from tests.api.support.credentials import cookie, login
from tests.api.support.harness import Daemon


def test_planted_cookie_is_never_adopted(daemon: Daemon) -> None:
    """A login creates its own secret, so a planted cookie stays worthless."""
    name = f"ringward_{daemon.settings.daemon_id.lower()}"
    planted = {"Cookie": f"{name}=planted-by-somebody"}
    answer = login(daemon, headers=planted)
    assert answer.status == 204
    assert "planted" not in answer.headers["Set-Cookie"]
    assert daemon.get("/api/runs", planted, unix=False).status == 401
    assert daemon.get("/api/runs", cookie(answer), unix=False).status == 200


def test_each_login_creates_a_session(daemon: Daemon) -> None:
    """A login creates a new session even if the browser has one; ending one does not end the other."""
    first = cookie(login(daemon))
    second = cookie(login(daemon, headers=first))
    assert first != second
    assert daemon.ask("POST", "/api/auth/logout", headers=second, unix=False).status == 204
    assert daemon.get("/api/runs", second, unix=False).status == 401
    assert daemon.get("/api/runs", first, unix=False).status == 200


def test_a_session_cannot_be_set_by_a_parameter(daemon: Daemon) -> None:
    """Only a cookie with this daemon's name selects a session, never a parameter."""
    name, _, secret = cookie(login(daemon))["Cookie"].partition("=")
    assert daemon.get(f"/api/runs?{name}={secret}", unix=False).status == 401
    assert daemon.get("/api/runs", {"Cookie": f"session={secret}"}, unix=False).status == 401
    assert daemon.get("/api/runs", {"X-Session": secret}, unix=False).status == 401
