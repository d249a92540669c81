"""``ringward next``."""

import json

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.fake_daemon import FakeDaemon

GAP = {"at": "2026-03-29T01:00:00.000Z", "local": "2026-03-29T03:00:00+02:00", "note": "gap"}
LATER = {
    "at": "2026-03-29T00:00:00.000Z",
    "local": "2026-03-29T01:00:00+01:00",
    "startsAt": "2026-03-29T00:07:00.000Z",
}


def rows(text: str) -> list[list[str]]:
    return [row.split("\t") for row in text.splitlines()]


def test_one_task(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The requested number of times is shown, with effects of clock changes and jitter, and the required slots."""
    definition = {"uses": {"db": 1, "gpu": 2}}
    daemon.on("GET", "/api/tasks/backup", {"name": "backup", "kind": "task", "definition": definition})
    daemon.on("GET", "/api/tasks/backup/schedule", {"items": [LATER, {**GAP, "params": {"full": "true"}}]})
    slots = "slots db, gpu (2)"
    assert rows(ringward("next", "backup", "-n", "2").stdout) == [
        ["TASK", "STARTS", "LOCAL TIME", "NOTE"],
        ["backup", "2026-03-29T00:07:00.000Z", "2026-03-29T01:00:00+01:00", f"needs {slots}"],
        [
            "backup",
            "2026-03-29T01:00:00.000Z",
            "2026-03-29T03:00:00+02:00",
            f"gap: this local time does not exist; with full=true; needs {slots}",
        ],
    ]
    assert daemon.requests_to("/api/tasks/backup/schedule")[0].query == {"count": "2"}
    assert json.loads(ringward("next", "--json", "backup").stdout)[1] == {
        "taskName": "backup",
        **GAP,
        "params": {"full": "true"},
    }


def test_deadline(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A time says when its work is to be done."""
    daemon.on("GET", "/api/tasks/backup", {"name": "backup", "kind": "task"})
    daemon.on("GET", "/api/tasks/backup/schedule", {"items": [{**LATER, "doneBy": "2026-03-29T04:00:00.000Z"}]})
    assert rows(ringward("next", "backup").stdout)[1][3] == "due 2026-03-29T04:00:00.000Z"


def test_all_tasks(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The soonest time is first, and tasks without a next time cause no request."""
    daemon.on(
        "GET",
        "/api/tasks",
        {
            "items": [
                {"name": "b", "kind": "task", "nextRunAt": "2026-03-29T01:00:00.000Z"},
                {"name": "a", "kind": "task", "nextRunAt": "2026-03-29T00:07:00.000Z"},
                {"name": "paused", "kind": "task"},
            ]
        },
    )
    daemon.on("GET", "/api/tasks/a/schedule", {"items": [LATER]})
    daemon.on("GET", "/api/tasks/b/schedule", {"items": [GAP]})
    assert [row[0] for row in rows(ringward("next").stdout)[1:]] == ["a", "b"]
    assert [row[0] for row in rows(ringward("next", "-n", "1").stdout)[1:]] == ["a"]


def test_upcoming_runs(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Many runs of a day are one row; who paused all schedules is said, and tasks that run later follow."""
    entries = [
        {"kind": "closed", "taskName": "b", "at": "2026-03-28T00:00:00.000Z", "cause": "calendar: weekend"},
        {"kind": "run", "taskName": "b", "cause": "after the window release", **GAP},
        {"kind": "runs", "taskName": "a", "count": 288, "until": "2026-03-29T23:55:00.000Z", **LATER},
        {"kind": "run", "taskName": "other", **LATER},
    ]
    pause = {"by": "anna", "at": "2026-03-28T00:00:00.000Z", "note": "release"}
    daemon.on("GET", "/api/upcoming", {"items": entries, "pause": pause, "windows": [{"name": "release"}]})
    tasks = [{"name": name, "kind": "task", "nextRunAt": LATER["at"]} for name in ("a", "b", "rare")]
    daemon.on("GET", "/api/tasks", {"items": tasks})
    daemon.on("GET", "/api/tasks/rare/schedule", {"items": [{"at": "2027-01-01T00:00:00.000Z", "local": "later"}]})
    result = ringward("next", "a", "b", "rare*")
    assert "all schedules are paused by anna" in result.stderr
    assert "the window release is open until someone ends it: ringward window end release" in result.stderr
    assert [(row[0], row[3]) for row in rows(result.stdout)[1:]] == [
        ("a", "288 runs until 2026-03-29T23:55:00.000Z"),
        ("b", "gap: this local time does not exist; after the window release"),
        ("rare", ""),
    ]


def test_requested_run(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A run that was requested for a time is listed with its id, also if its task has no schedule."""
    daemon.on("GET", "/api/tasks", {"items": [{"name": "a", "kind": "task", "active": {"running": 0, "pending": 1}}]})
    run_id = "01M7Y4S5W8ZZEFJCB1RHHNKRSN"
    daemon.on("GET", "/api/tasks/a/schedule", {"items": [{**LATER, "runId": run_id}]})
    assert [row[-1] for row in rows(ringward("next").stdout)[1:]] == [f"requested: run {run_id}"]


def test_unknown_task(ringward: Ringward, daemon: FakeDaemon) -> None:
    """An unknown task is named and refused."""
    units = [{"name": "backup", "kind": "task"}, {"name": "web", "kind": "service"}]
    daemon.on("GET", "/api/tasks", {"items": units})
    result = ringward("next", "bakcup", "web")
    assert result.exit_code == exit_codes.REFUSED
    assert 'no task named "bakcup" (did you mean "backup"?)' in result.stderr
    assert "web is a service without a schedule" in result.stderr
