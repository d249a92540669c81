"""``ringward ack``: its requests."""

import json

import pytest

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.fake_daemon import RUN, Answer, FakeDaemon, problem, run

UNIT = {"name": "backup", "kind": "task"}


@pytest.fixture(autouse=True)
def _known(daemon: FakeDaemon) -> None:
    daemon.on("GET", "/api/tasks/backup", UNIT)
    daemon.on("GET", f"/api/runs/{RUN}", {**run(), "taskName": "backup"})
    for path in ("tasks/backup/acknowledge", "tasks/backup/unacknowledge", f"runs/{RUN}/acknowledge"):
        daemon.on("POST", f"/api/{path}", Answer(204))


@pytest.mark.parametrize(
    ("arguments", "path", "body"),
    [
        (["backup"], "tasks/backup/acknowledge", None),
        (
            ["backup", "--for", "2h", "--note", "known"],
            "tasks/backup/acknowledge",
            {"forMs": 7_200_000, "note": "known"},
        ),
        (
            ["backup", "--note", "we know", "--public"],
            "tasks/backup/acknowledge",
            {"note": "we know", "public": True},
        ),
        ([RUN], f"runs/{RUN}/acknowledge", None),
        (["backup", "--undo"], "tasks/backup/unacknowledge", None),
        ([RUN, "--undo"], "tasks/backup/unacknowledge", None),
    ],
)
def test_request(
    ringward: Ringward, daemon: FakeDaemon, arguments: list[str], path: str, body: dict[str, object] | None
) -> None:
    """A failure is acknowledged by its task or last run; the command prints nothing, or the record as JSON."""
    result = ringward("ack", *arguments)
    assert (result.exit_code, result.output) == (0, "")
    (request,) = [request for request in daemon.requests if request.method == "POST"]
    assert request.path == f"/api/{path}"
    assert (json.loads(request.body) if request.body else None) == body
    assert json.loads(ringward("ack", "--json", *arguments).stdout) == UNIT


def test_healthy_unit(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A unit that needs no attention cannot be acknowledged."""
    daemon.on("POST", "/api/tasks/backup/acknowledge", problem(409, "backup needs no attention"))
    result = ringward("ack", "backup")
    assert result.exit_code == exit_codes.REFUSED
    assert "backup needs no attention" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["backup", "--for", "soon"], '--for must be a duration such as "2h"'),
        (["backup", "--for", "0"], "--for must be between 1s and 366d: '0'"),
        (["backup", "--for", "400d"], "--for must be between 1s and 366d: '400d'"),
        (["backup", "--note", "x" * 1001], "--note can have up to 1000 characters, it has 1001"),
        (["backup", "--undo", "--note", "x"], "--undo cannot be combined with --for, --note or --public"),
        (["backup", "--public"], "--public needs --note, which the status page shows"),
    ],
)
def test_invalid_options(ringward: Ringward, daemon: FakeDaemon, arguments: list[str], message: str) -> None:
    """The command names invalid options without a request to the daemon."""
    result = ringward("ack", *arguments)
    assert result.exit_code == exit_codes.USAGE
    assert message in " ".join(result.stderr.split())
    assert daemon.requests == []
