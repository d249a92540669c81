"""When a task will run, and what became of its runs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from store.tasks import StoredInstance, set_instance, upsert_task
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms

DAY_MS = 86_400_000


def test_days(daemon: Daemon) -> None:
    """Each day on which a run ended has counts by reason and durations, oldest first, for the requested days."""
    now = now_ms()
    for ago, reason, ran_ms in ((0, "succeeded", 100), (0, "succeeded", 300), (0, "failed", 50), (2, "timeout", 10)):
        at = now - ago * DAY_MS
        run = daemon.insert(make_run(task="daily"))
        daemon.end(run.id, reason, started_at=at - ran_ms, ended_at=at)
    daemon.insert(make_run(task="daily", status="ended", end_reason="missed", ended_at=now))
    items = daemon.get("/api/tasks/daily/days").json["items"]
    today = datetime.fromtimestamp(now / 1000, UTC).date().isoformat()
    assert items[1] == {
        "day": today,
        "total": 4,
        "counts": {"succeeded": 2, "failed": 1, "missed": 1},
        "durationMs": 450,
        "meanMs": 150,
        "longestMs": 300,
    }
    assert items[0]["counts"] == {"timeout": 1}
    latest = daemon.get("/api/tasks/daily/days?days=1").json["items"]
    still_today = datetime.now(UTC).date().isoformat() == today
    assert [day["day"] for day in latest] == [today] or not still_today


def test_days_of_a_task_without_runs(daemon: Daemon) -> None:
    """A task without runs has no days; an unknown task gets 404."""
    with daemon.lock:
        upsert_task(daemon.db, "idle", "task", "{}")
    assert daemon.get("/api/tasks/idle/days").json["items"] == []
    assert daemon.get("/api/tasks/nowhere/days").status == 404
    assert daemon.get("/api/tasks/idle/days?days=367").status == 422


def test_schedule(daemon: Daemon) -> None:
    """The answer has the scheduler's instants with its notes, and the start of a run that is delayed."""
    daemon.scheduler.operations["schedule"] = lambda _arguments: {
        "items": [
            [1000, "1970-01-01T01:00:01+01:00", None, 1000],
            [2000, "1970-01-01T01:00:02+01:00", "gap", 2500],
        ]
    }
    items = daemon.get("/api/tasks/backup/schedule?count=2").json["items"]
    assert daemon.scheduler.calls[-1] == ("schedule", {"task": "backup", "count": 2})
    assert items == [
        {"at": "1970-01-01T00:00:01.000Z", "local": "1970-01-01T01:00:01+01:00"},
        {
            "at": "1970-01-01T00:00:02.000Z",
            "local": "1970-01-01T01:00:02+01:00",
            "note": "gap",
            "startsAt": "1970-01-01T00:00:02.500Z",
        },
    ]
    daemon.get("/api/tasks/backup/schedule")
    assert daemon.scheduler.calls[-1][1]["count"] == 10


@pytest.mark.parametrize("status", [404, 409])
def test_no_schedule(daemon: Daemon, status: int) -> None:
    """An unknown task and a service have no schedule."""

    def refuse(_arguments: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(status, "no")

    daemon.scheduler.operations["schedule"] = refuse
    assert daemon.get("/api/tasks/web/schedule").status == status
    assert daemon.get("/api/tasks/web/schedule?count=0").status == 422


def test_uptime_of_a_compressed_history(daemon: Daemon) -> None:
    """Ninety days of uptime have the time up, down and stopped of each day, and the present state."""
    today = now_ms() // DAY_MS * DAY_MS
    with daemon.lock:
        upsert_task(daemon.db, "shop", "service", "{}")
        upsert_task(daemon.db, "report", "task", "{}")
        for ago in range(100, 0, -1):  # each day: stopped for an hour, and down for another
            at = today - ago * DAY_MS
            for hour, state in ((0, "running"), (5, "stopped"), (6, "starting"), (7, "running")):
                set_instance(daemon.db, StoredInstance("shop", 0, state, None, at + hour * 3_600_000, 0))
        set_instance(daemon.db, StoredInstance("shop", 0, "running", "R", today, 0))
    answer = daemon.get("/api/tasks/shop/uptime?changes=3").json
    assert len(answer["items"]) == 90
    for day in answer["items"][:-1]:
        assert (day["upMs"], day["downMs"], day["stoppedMs"]) == (22 * 3_600_000, 3_600_000, 3_600_000), day
    assert answer["items"][-1]["downMs"] == 0
    [instance] = answer["instances"]
    assert instance["upMs"] == sum(day["upMs"] for day in answer["items"])
    assert [change["state"] for change in instance["changes"]] == ["running", "running", "starting"]
    assert instance["changes"][0]["runId"] == "R"
    assert answer["restarts24h"] == 0
    assert len(daemon.get("/api/tasks/shop/uptime?days=7&changes=0").json["items"]) == 7
    assert daemon.get("/api/tasks/report/uptime").status == 409
    assert daemon.get("/api/tasks/nothing/uptime").status == 404
    with daemon.lock:
        daemon.db.execute("DELETE FROM instances WHERE task_name = 'shop'")
        daemon.db.execute("DELETE FROM tasks WHERE name IN ('shop', 'report')")
