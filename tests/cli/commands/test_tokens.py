"""``ringward token`` and ``ringward audit``."""

import json

import pytest

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.fake_daemon import Answer, FakeDaemon, as_json, problem

TOKEN = {
    "name": "ci",
    "role": "operator",
    "tasks": "build-*",
    "createdAt": "2026-11-21T03:04:05.678Z",
    "createdBy": "uid 0",
    "expired": False,
}
ENTRY = {
    "id": 7,
    "at": "2026-11-21T03:04:05.678Z",
    "who": "token ci",
    "from": "203.0.113.7",
    "operation": "runTask",
    "target": "build",
    "status": 403,
    "reason": "no \x1b[31mway",
}


def test_create(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The command prints only the token, for scripts; the request has the given options."""
    daemon.on("POST", "/api/tokens", as_json({**TOKEN, "token": "rw_secret"}, 201))
    result = ringward("token", "create", "ci", "--role", "operator", "--task", "build-*", "--expires", "90d")
    assert (result.exit_code, result.stdout) == (0, "rw_secret\n")
    (request,) = daemon.requests
    assert json.loads(request.body) == {
        "name": "ci",
        "role": "operator",
        "tasks": "build-*",
        "expiresInMs": 90 * 86_400_000,
    }
    assert json.loads(ringward("token", "create", "ci", "--role", "viewer", "--json").stdout)["token"] == "rw_secret"
    assert json.loads(daemon.requests[1].body) == {"name": "ci", "role": "viewer"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("ci", "--role"),
        ("ci --role root", "'root' is not one of"),
        ("ci --role viewer --expires soon", 'must be a duration such as "90d"'),
        ("ci --role viewer --expires 0s", "between 1s and 3660d"),
        ("ci --role viewer --expires 10y", "must be a duration"),
        ("ci --role viewer --expires 3661d", "between 1s and 3660d"),
        ("a/b --role viewer", "'a/b' must be letters, digits"),
        (".. --role viewer", "'..' must be letters, digits"),
        ("ci --role viewer --task a/b", "'a/b' must be a glob of names"),
        ("", "NAME"),
    ],
)
def test_invalid_tokens(ringward: Ringward, daemon: FakeDaemon, arguments: str, reason: str) -> None:
    """An invalid token is refused with the reason, without a request to the daemon."""
    result = ringward("token", "create", *arguments.split())
    assert result.exit_code == exit_codes.USAGE
    assert reason in result.stderr
    assert daemon.requests == []


def test_name_in_use(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The error says that the name is in use."""
    daemon.on("POST", "/api/tokens", problem(409, "A token with this name already exists; revoke it first"))
    result = ringward("token", "create", "ci", "--role", "viewer")
    assert result.exit_code == exit_codes.REFUSED
    assert "revoke it first" in result.stderr


def test_list(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Each token is one line, with - for unset values."""
    daemon.on("GET", "/api/tokens", {"items": [TOKEN, {**TOKEN, "name": "old", "expired": True}]})
    lines = ringward("token", "list").stdout.splitlines()
    assert lines[0].split("\t") == ["NAME", "ROLE", "TASKS", "EXPIRES", "LAST USED", "CREATED", "BY"]
    assert lines[1].split("\t") == ["ci", "operator", "build-*", "-", "-", "2026-11-21T03:04:05.678Z", "uid 0"]
    assert lines[2].split("\t")[3] == "expired"
    assert len(json.loads(ringward("token", "list", "--json").stdout)["items"]) == 2


def test_revoke(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A revocation prints nothing, and an unknown token is an error."""
    daemon.on("DELETE", "/api/tokens/ci", Answer(204))
    result = ringward("token", "revoke", "ci")
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(ringward("token", "revoke", "ci", "--json").stdout) == {"revoked": "ci"}
    assert ringward("token", "revoke", "none").exit_code == exit_codes.REFUSED


def test_audit(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Each entry is one line without control characters, and pages are fetched as needed."""
    daemon.on("GET", "/api/audit", {"items": [ENTRY] * 500, "nextCursor": 7}, {"items": [ENTRY] * 3})
    lines = ringward("audit", "-n", "600").stdout.splitlines()
    assert len(lines) == 1 + 503
    assert lines[1].split("\t")[:6] == [ENTRY["at"], "token ci", "203.0.113.7", "run task", "build", "rejected (403)"]
    assert "\x1b" not in lines[1]
    assert [request.query for request in daemon.requests] == [{"limit": "500"}, {"limit": "100", "before": "7"}]
    daemon.on("GET", "/api/audit", {"items": [ENTRY]})
    assert len(json.loads(ringward("audit", "--json").stdout)["items"]) == 1
