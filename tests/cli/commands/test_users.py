"""``ringward user``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli import exit_codes
from supervisor.cli.main import cli
from tests.support.command_line import Ringward
from tests.support.fake_daemon import Answer, FakeDaemon, as_json

ACCOUNT = {
    "name": "alice",
    "role": "operator",
    "tasks": "web-*",
    "createdAt": "2026-11-21T03:04:05.678Z",
    "createdBy": "uid 0",
    "passwordChangedAt": "2026-11-22T03:04:05.678Z",
}


def call(data: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Call a command with a standard input; return the exit code and all output."""
    result = CliRunner().invoke(cli, ["--data", str(data), "user", *arguments], prog_name="ringward", input=text)
    return result.exit_code, result.output


def test_add(data: Path, daemon: FakeDaemon) -> None:
    """The command reads the password from the first line of standard input and does not print it."""
    daemon.on("POST", "/api/users", as_json(ACCOUNT, 201))
    arguments = ("add", "alice", "--role", "operator", "--task", "web-*")
    assert call(data, "open sesame \nrest", *arguments) == (0, "")
    (request,) = daemon.requests
    assert json.loads(request.body) == {
        "name": "alice",
        "role": "operator",
        "password": "open sesame ",
        "tasks": "web-*",
    }
    code, output = call(data, "open sesame", *arguments, "--json")
    assert (code, json.loads(output)["name"]) == (0, "alice")


@pytest.mark.parametrize(
    ("arguments", "text", "reason"),
    [
        ("add alice", "12345678", "--role"),
        ("add alice --role cloud", "12345678", "'cloud' is not one of"),
        ("add a:b --role viewer", "12345678", "'a:b' must be letters, digits"),
        ("add Admin --role viewer", "12345678", "the daemon's own password: set RINGWARD_PASSWORD"),
        ("passwd admin", "12345678", "the daemon's own password: set RINGWARD_PASSWORD"),
        ("rm admin", "", "the daemon's own password: set RINGWARD_PASSWORD"),
        ("add alice --role viewer --task a/b", "12345678", "'a/b' must be a glob of names"),
        ("add alice --role viewer", "1234567", "the password must have 8 to 1000 characters; it has 7"),
        ("passwd alice", "", "the password must have 8 to 1000 characters; it has 0"),
    ],
)
def test_usage_errors(data: Path, daemon: FakeDaemon, arguments: str, text: str, reason: str) -> None:
    """The command is refused with the reason, without a request to the daemon and without the password."""
    code, output = call(data, text, *arguments.split())
    assert code == exit_codes.USAGE
    assert reason in " ".join(output.split())
    assert daemon.requests == []
    assert "1234567\n" not in output


def test_passwd_and_rm(ringward: Ringward, data: Path, daemon: FakeDaemon) -> None:
    """A new password is sent in the body of the request; a removal prints nothing."""
    daemon.on("POST", "/api/users/alice/password", Answer(204))
    daemon.on("DELETE", "/api/users/alice", Answer(204))
    assert call(data, "12345678", "passwd", "alice") == (0, "")
    assert json.loads(daemon.requests[0].body) == {"password": "12345678"}
    assert ringward("user", "rm", "alice").exit_code == 0
    assert json.loads(ringward("user", "rm", "alice", "--json").stdout) == {"removed": "alice"}
    assert ringward("user", "rm", "none").exit_code == exit_codes.REFUSED


def test_list(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Each account is one line."""
    daemon.on("GET", "/api/users", {"items": [ACCOUNT]})
    lines = [line.split("\t") for line in ringward("user", "list").stdout.splitlines()]
    assert lines == [
        ["NAME", "ROLE", "TASKS", "PASSWORD CHANGED", "CREATED", "BY"],
        ["alice", "operator", "web-*", "2026-11-22T03:04:05.678Z", "2026-11-21T03:04:05.678Z", "uid 0"],
    ]
    assert len(json.loads(ringward("user", "list", "--json").stdout)["items"]) == 1
