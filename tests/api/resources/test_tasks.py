"""Tasks and services, and the daemon."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from store import daemon_values, tasks
from store.runs.writes import Run, delete_run, insert_run, update_run
from supervisor.version import VERSION
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

TASK = {
    "kind": "task",
    "description": "Backs up",
    "group": "nightly",
    "tags": ["disk"],
    "cron": ["0 3 * * *"],
    "timezone": "Europe/Berlin",
    "run": "backup",
    "retry_delay_ms": 5000,
    "env": {"SECRET_KEY": "***"},
}
SITE = {"kind": "service", "run": "serve", "env": {"MY_NAME": "***"}, "live": {"tcp": "localhost:80", "every_ms": 5000}}


@pytest.fixture(scope="module", autouse=True)
def configured(shared: Daemon) -> None:
    with shared.lock:
        tasks.upsert_task(shared.db, "backup", "task", json.dumps(TASK))
        tasks.upsert_task(shared.db, "site", "service", json.dumps(SITE))
        tasks.upsert_task(shared.db, "old", "task", "{}")
        tasks.upsert_task(shared.db, "plain", "task", '{"run": "true"}')
        tasks.forget_missing(shared.db, ["backup", "site", "plain"])
        tasks.update_task(shared.db, "backup", next_run_at=2000, paused=True)
        tasks.set_instance(shared.db, tasks.StoredInstance("site", 0, "running", None, 1000, 0))
        tasks.set_instance(shared.db, tasks.StoredInstance("site", 1, "backoff", "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1000, 2))


def test_list(daemon: Daemon) -> None:
    """All configured tasks and services are listed; removed ones are not."""
    items = daemon.get("/api/tasks").json["items"]
    assert [task["name"] for task in items] == ["backup", "plain", "site"]
    assert items[0] == {
        name: value for name, value in daemon.get("/api/tasks/backup").json.items() if name != "$schema"
    }


def test_list_after_each_change(daemon: Daemon) -> None:
    """The list shows the state that is stored at that moment, in order."""

    def insert(**columns: Any) -> None:
        run = make_run(**columns)
        insert_run(daemon.db, run)
        inserted.append(run)

    inserted: list[Run] = []
    changes: list[Callable[[], object]] = [
        lambda: tasks.upsert_task(daemon.db, "often", "task", '{"run": "true"}'),
        lambda: tasks.update_task(daemon.db, "often", paused=True),
        lambda: tasks.update_task(daemon.db, "often", paused=False, next_run_at=5),
        lambda: insert(task="often", created_at=7),
        lambda: update_run(daemon.db, inserted[0].id, status="running", started_at=8),
        lambda: update_run(daemon.db, inserted[0].id, status="ended", end_reason="failed", exit_code=3, ended_at=9),
        lambda: insert(task="often", created_at=8, status="ended", end_reason="succeeded", exit_code=0),
        lambda: delete_run(daemon.db, inserted[1].id, 10),
        lambda: tasks.set_instance(daemon.db, tasks.StoredInstance("site", 1, "running", None, 2000, 0)),
        lambda: tasks.update_task(daemon.db, "site", rolling="[1,2]"),
        lambda: tasks.update_task(daemon.db, "site", rolling=None),
        lambda: tasks.upsert_task(daemon.db, "often", "task", '{"run": "other"}'),
        lambda: tasks.upsert_task(daemon.db, "aside", "task", '{"run": "true"}'),
        lambda: tasks.forget_missing(daemon.db, ["backup", "plain", "site"]),
        lambda: tasks.set_instance(
            daemon.db, tasks.StoredInstance("site", 1, "backoff", "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1000, 2)
        ),
    ]
    tag = None
    for change in changes:  # the last ones undo what others do not expect
        with daemon.lock:
            change()
            names = [record.name for record in tasks.all_tasks(daemon.db)]
        answer = daemon.get("/api/tasks")
        ones = [daemon.get(f"/api/tasks/{name}").json for name in names]
        assert answer.json["items"] == [
            {key: shown_task[key] for key in shown_task if key != "$schema"} for shown_task in ones
        ]
        assert answer.headers["etag"] != tag
        tag = answer.headers["etag"]
        assert daemon.get("/api/tasks", headers={"If-None-Match": tag}).status == 304


def test_task(daemon: Daemon) -> None:
    """A task has its schedule, its last run in convention A, its active runs, and its definition."""
    daemon.insert(make_run(task="backup", created_at=11, status="running", started_at=11))
    daemon.insert(make_run(task="backup", created_at=12))
    daemon.insert(make_run(task="backup", created_at=13))
    last = daemon.insert(make_run(task="backup", status="ended", end_reason="succeeded", exit_code=0, created_at=10))
    task = daemon.get("/api/tasks/backup").json
    assert task["kind"] == "task"
    assert (task["description"], task["group"], task["tags"]) == ("Backs up", "nightly", ["disk"])
    assert (task["cron"], task["timezone"]) == (["0 3 * * *"], "Europe/Berlin")
    assert task["nextRunAt"] == "1970-01-01T00:00:02.000Z"
    assert task["paused"] is True
    assert (task["lastRun"]["id"], task["lastRun"]["endReason"]) == (last.id, "succeeded")
    assert task["active"] == {"running": 1, "pending": 2}
    assert task["definition"] == {"run": "backup", "retryDelayMs": 5000, "env": {"SECRET_KEY": "***"}}
    assert "state" not in task
    assert "instances" not in task


@pytest.mark.parametrize(
    ("setting", "taken", "usual"),
    [("learned", [4000] * 10, (4000, 64_000)), ("learned", [4000] * 9, (None, None)), (5000, [], (5000, 65_000))],
)
def test_usual_duration(daemon: Daemon, setting: object, taken: list[int], usual: tuple[int | None, ...]) -> None:
    """The record of a task says how long its runs usually take, once that is known."""
    with daemon.lock:
        tasks.upsert_task(daemon.db, "plain", "task", json.dumps({"run": "true", "expected_duration_ms": setting}))
        tasks.update_task(daemon.db, "plain", promises=json.dumps({"durations": taken}))
    task = daemon.get("/api/tasks/plain").json
    assert (task.get("usualMs"), task.get("slowAfterMs")) == usual
    with daemon.lock:
        tasks.upsert_task(daemon.db, "plain", "task", '{"run": "true"}')
        tasks.update_task(daemon.db, "plain", promises=None)


def test_late_task(daemon: Daemon) -> None:
    """The record of a task has its next deadline, and since when it is late; a late task can be acknowledged."""
    due = [[1_780_000_000_000, 1_779_990_000_000, 1_779_990_000_000]]
    with daemon.lock:
        promises = {"due": [dict(zip(("deadline", "instant", "since"), one, strict=True)) for one in due]}
        tasks.update_task(daemon.db, "plain", promises=json.dumps({**promises, "late": {**promises["due"][0]}}))
    task = daemon.get("/api/tasks/plain").json
    assert (task["doneBy"], task["lateSince"]) == ("2026-05-28T20:26:40.000Z", "2026-05-28T20:26:40.000Z")
    assert 'ringward_task_late{task="plain"} 1' in daemon.get("/metrics").body.decode()
    assert daemon.ask("POST", "/api/tasks/plain/acknowledge").status == 204
    with daemon.lock:
        tasks.update_task(daemon.db, "plain", promises=None)
    assert "lateSince" not in daemon.get("/api/tasks/plain").json


def test_service(daemon: Daemon) -> None:
    """A service has its instances, and the worst of their states."""
    service = daemon.get("/api/tasks/site").json
    assert (service["kind"], service["state"]) == ("service", "backoff")
    assert service["instances"] == [
        {"index": 0, "state": "running", "since": "1970-01-01T00:00:01.000Z", "failures": 0, "ready": False},
        {
            "index": 1,
            "state": "backoff",
            "runId": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "since": "1970-01-01T00:00:01.000Z",
            "failures": 2,
            "ready": False,
        },
    ]
    definition = {"run": "serve", "env": {"MY_NAME": "***"}, "live": {"tcp": "localhost:80", "everyMs": 5000}}
    assert service["definition"] == definition
    assert "lastRun" not in service
    assert "nextRunAt" not in service


def test_task_without_anything(daemon: Daemon) -> None:
    """Missing values are left out, and empty lists are empty."""
    task = daemon.get("/api/tasks/plain").json
    assert set(task) == {"$schema", "name", "kind", "tags", "cron", "active", "paused", "definition"}
    assert task["tags"] == task["cron"] == []


@pytest.mark.parametrize(("name", "status"), [("nowhere", 404), ("old", 404), ("a%20b", 422)])
def test_unknown_tasks(daemon: Daemon, name: str, status: int) -> None:
    """An unknown task gets 404, and an invalid name 422."""
    assert daemon.get(f"/api/tasks/{name}").status == status


def test_daemon(daemon: Daemon) -> None:
    """The daemon is described from its settings and by the scheduler."""
    info = daemon.get("/api/daemon").json
    assert info["version"] == VERSION
    assert info["uptimeMs"] >= 0
    assert info["configPath"] == "/etc/ringward.toml"
    assert info["configLoadedAt"] == "2023-11-14T22:13:20.000Z"
    assert info["configStale"] is False
    assert info["configWarnings"] == ["a warning"]
    assert info["timezone"] == "Europe/Berlin"
    assert (info["tasks"], info["services"]) == (2, 1)
    assert info["schedulerActive"] is True
    assert info["store"] == "sqlite"
    assert info["hostname"]


def test_daemon_without_a_scheduler(own: Daemon) -> None:
    """The state that the scheduler has stored is shown, and marked as stale."""
    with own.lock:
        daemon_values.set_meta(
            own.db,
            "info",
            {
                "config_path": "/etc/other.toml",
                "config_loaded_at": 1000,
                "config_stale": True,
                "config_warnings": [],
                "timezone": "UTC",
                "tasks": 7,
                "services": 0,
            },
        )
    own.scheduler.stop()
    try:
        info = own.get("/api/daemon").json
    finally:
        own.scheduler.start()
    assert info["schedulerActive"] is False
    assert (info["tasks"], info["timezone"], info["configStale"]) == (7, "UTC", True)


def test_daemon_before_the_first_scheduler(own: Daemon) -> None:
    """Before the first scheduler, the root's settings are shown."""
    own.scheduler.stop()
    try:
        info = own.get("/api/daemon").json
    finally:
        own.scheduler.start()
    assert info["configPath"] == own.settings.config_path
    assert info["configWarnings"] == []
