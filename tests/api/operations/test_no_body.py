"""Operations that need no body."""

import pytest

from api.operation_table import OPERATIONS
from tests.api.attacks.test_privilege_escalation import path_of
from tests.api.operations.test_errors import JSON, assert_problem
from tests.api.support.harness import Daemon


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"dry_run": true}', JSON, 422),
        (b"{", JSON, 400),
        (b"x", {"Content-Type": "text/plain"}, 415),
        (b'{"more": "' + b"x" * (1 << 20) + b'"}', JSON, 413),
    ],
)
def test_bodies_of_operations_without_one(daemon: Daemon, body: bytes, headers: dict[str, str], status: int) -> None:
    """A body for an operation without one is refused and nothing is done; an empty body is accepted."""
    silent = [
        guarded for guarded in OPERATIONS if guarded.method != "GET" and guarded.body is None and not guarded.media
    ]
    assert {"reloadDaemon", "stopRun", "restartService", "deleteRun", "logout"} <= {guarded.id for guarded in silent}
    for operation in silent:
        problem = assert_problem(daemon.ask(operation.method, path_of(operation), body, headers), status)
        assert status != 422 or [error["location"] for error in problem["errors"]] == ["body.dry_run"]
    assert not daemon.scheduler.calls
    assert daemon.ask("POST", "/api/daemon/reload", b"{}", JSON).status == 200


def test_null_is_no_body(daemon: Daemon) -> None:
    """``null`` counts as no body, since generated Go clients send it; where a body is required, it is refused."""
    assert daemon.ask("POST", "/api/daemon/reload", b"null", JSON).status == 200
    assert daemon.ask("POST", "/api/tasks/job/run", b"null", JSON).status == 201
    assert daemon.ask("POST", "/api/runs/bulk/stop", b"null", JSON).status == 422
