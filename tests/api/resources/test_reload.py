"""POST /api/daemon/reload: requests to the scheduler, and its answers."""

from typing import Any

import pytest

from tests.api.support.credentials import bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.support.waiting import until

REPORT = {
    "added": ["a"],
    "changed": [{"name": "b", "reasons": ["run: applies to the next run"]}],
    "removed": ["c"],
    "warnings": ["c is removed: 1 run continues to its end"],
}
VALUE = {"file": "/etc/ringward.toml", "line": 3, "key": "tasks.x.run", "message": "must not be empty"}
ERROR = {"location": "/etc/ringward.toml:3: tasks.x.run", "message": "must not be empty", "value": VALUE}


@pytest.mark.parametrize(("query", "dry_run"), [("", False), ("?dry_run=true", True), ("?dry_run=0", False)])
def test_report(daemon: Daemon, query: str, dry_run: bool) -> None:
    """The scheduler is asked for the reload by name, and its report is the answer."""
    calls: list[dict[str, Any]] = []

    def reload(args: dict[str, Any]) -> dict[str, Any]:
        calls.append(args)
        return REPORT

    daemon.scheduler.operations["reload"] = reload
    answer = daemon.ask("POST", f"/api/daemon/reload{query}")
    assert answer.status == 200
    body = answer.json
    assert body.pop("$schema").endswith("/schemas/Reloaded.json")
    assert body == REPORT
    assert [arguments["dry_run"] for arguments in calls] == [dry_run]
    assert calls[0]["by"]


@pytest.mark.parametrize("status", [409, 422])
def test_refusal_names_each_error(daemon: Daemon, status: int) -> None:
    """A problem document has file, line and key of each error, and the audit has them as well."""

    def reload(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(status, "The configuration is invalid: 1 problem", [ERROR])

    daemon.scheduler.operations["reload"] = reload
    answer = daemon.ask("POST", "/api/daemon/reload")
    assert answer.status == status
    assert answer.json["errors"] == [ERROR]
    until(
        lambda: ("reloadDaemon", status) in {(entry.operation, entry.status) for entry in daemon.scheduler.audit},
        "the entry",
    )


def test_only_for_admins(daemon: Daemon) -> None:
    """The right to start and stop units does not include the right to define them."""
    daemon.scheduler.calls.clear()
    secret = make_token(daemon, "operates", "operator")
    assert daemon.ask("POST", "/api/daemon/reload", headers=bearer(secret), unix=False).status == 403
    assert "reload" not in {name for name, _args in daemon.scheduler.calls}
