"""Schedules, through the real daemon."""

import sqlite3
import time
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

MINUTE_MS = 60_000


@pytest.mark.lent
def test_task_runs_at_its_announced_instant(daemon: Daemon) -> None:
    """A task runs at the announced instant and gets it as a variable; then the next instant is announced."""
    daemon.write('[tasks.t]\nrun = "echo $RINGWARD_SCHEDULED_AT"\ncron = "*/5 * * * * *"\ncatch_up = 100\n')
    daemon.start()
    announced = daemon.task("t")["nextRunAt"]
    assert datetime.fromisoformat(announced).second % 5 == 0
    assert announced.endswith(".000Z")

    def fired() -> list[dict[str, Any]]:
        return [run for run in daemon.runs("t") if daemon.texts(daemon.ended(run["id"])["id"]) == [announced]]

    (run,) = until(fired, "the announced instant")
    assert (run["triggeredBy"], run["createdAt"] >= announced) == ("cron", True)
    assert daemon.task("t")["nextRunAt"] > announced


@pytest.mark.lent
def test_every_and_at(daemon: Daemon) -> None:
    """``every`` runs exactly one interval after another; ``at`` waits for its time, or reports that it is past."""
    daemon.write(
        '[tasks.often]\nrun = "echo $RINGWARD_SCHEDULED_AT"\nevery = "1s"\nmax_concurrent = 100\ncatch_up = 100\n'
        '[tasks.once]\nrun = "true"\ntimezone = "UTC"\nat = 2126-01-01T00:00:00+01:00\n'
        '[tasks.never]\nrun = "true"\nat = 2026-01-01T00:00:00Z\n'
    )
    daemon.start()
    assert daemon.get("/api/tasks/once/schedule").json()["items"] == [
        {"at": "2125-12-31T23:00:00.000Z", "local": "2125-12-31T23:00:00+00:00"}
    ]
    assert daemon.task("once")["nextRunAt"] == "2125-12-31T23:00:00.000Z"
    assert until(lambda: daemon.runs("never"), "a record of the past time")[0]["endReason"] == "missed"
    runs = until(lambda: daemon.runs("often")[2:] and daemon.runs("often"), "three runs")
    times = sorted(datetime.fromisoformat(daemon.texts(daemon.ended(run["id"])["id"])[0]) for run in runs)
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(seconds=1)}
    assert "nextRunAt" not in daemon.task("never")


@pytest.mark.lent
def test_catch_up_after_a_downtime(daemon: Daemon) -> None:
    """The newest missed instant runs, the others become one missed run, and no instant runs twice.

    A new task has missed nothing, nor has a task that was not configured in the meantime.
    """
    minute = datetime.now().minute  # noqa: DTZ005 - as a schedule has it: none is due before long
    minutes = ",".join(str((minute - ago) % 60) for ago in (10, 20, 30))
    back = f'[tasks.back]\nrun = "true"\ncron = "{minutes} * * * *"\n'
    daemon.write(f"{back}{back.replace('back', 't')}{back.replace('back', 'new')}")
    complete = daemon.config.read_text()
    daemon.start()
    assert daemon.runs("t") == []
    daemon.stop()
    now_ms = int(time.time() * 1000)
    with sqlite3.connect(daemon.data / "ringward.db") as db:
        db.execute("UPDATE tasks SET last_instant = ? WHERE name <> 'new'", [now_ms - 55 * MINUTE_MS])
        db.execute("DELETE FROM tasks WHERE name = 'new'")
    db.close()
    daemon.config.write_text(complete.replace(back, ""))
    daemon.start()
    runs = until(lambda: [run for run in daemon.runs("t") if run["status"] == "ended"][1:] and daemon.runs("t"), "both")
    assert sorted(run["endReason"] for run in runs) == ["missed", "succeeded"]
    assert {run["triggeredBy"] for run in runs} == {"cron"}
    daemon.stop()
    daemon.config.write_text(complete)
    daemon.start()
    assert len(daemon.runs("t")) == 2
    assert daemon.runs("new") == daemon.runs("back") == []


@pytest.mark.lent
def test_newer_success_supersedes_an_older_retry(daemon: Daemon) -> None:
    """The retry of an older instant is skipped with the reason once a newer one succeeds, even by another scheduler.

    With ``retry_superseded``, the retry remains.
    """
    allowed = daemon.directory / "allowed"
    keys = f'run = "test -e {allowed}"\nevery = "1s"\nretry_attempts = 1\nretry_delay = "1h"\n'
    daemon.write(f"[tasks.latest]\n{keys}[tasks.each]\n{keys}retry_superseded = true\n")
    daemon.start()

    def retries(task: str) -> list[dict[str, Any]]:
        return [run for run in daemon.runs(task) if run["retryAttempt"] == 1]

    (first, *_) = until(lambda: retries("latest"), "a retry")
    assert first["status"] == "pending"
    assert until(lambda: retries("each"), "a retry of the other task")
    daemon.kill_helper("ringward scheduler")
    assert daemon.run(first["id"])["status"] == "pending"
    allowed.touch()
    assert daemon.ended(first["id"])["endReason"] == "skipped"
    requester = daemon.get(f"/api/runs/{first['id']}/ending").json()["requestedBy"]
    assert requester == "retry_superseded: a newer time of the schedule has succeeded"
    until(lambda: all(run["status"] == "ended" for run in retries("latest")), "all of them to be superseded")
    until(
        lambda: any(run.get("endReason") == "succeeded" for run in daemon.runs("each")), "a success of the other task"
    )
    assert {run["status"] for run in retries("each")} == {"pending"}


def test_window_by_hand(daemon: Daemon) -> None:
    """A window that a person opened survives the scheduler and the daemon; what it deferred runs when it is closed."""
    daemon.write('[windows.release]\ninstants = "defer"\n[tasks.t]\nrun = "true"\nevery = "1s"\n')
    daemon.start()
    assert daemon.request("POST", "/api/windows/release/start", {"note": "version 5"}).status == 204
    daemon.kill_helper("ringward scheduler")
    daemon.stop()
    daemon.start()
    before = len(daemon.runs("t"))
    (window,) = daemon.get("/api/daemon").json()["windows"]
    assert (window["name"], window["note"]) == ("release", "version 5")
    opened_s = time.monotonic()
    until(lambda: time.monotonic() > opened_s + 1.5, "a scheduled time")
    assert len(daemon.runs("t")) == before
    assert daemon.request("POST", "/api/windows/release/end").status == 204
    until(lambda: len(daemon.runs("t")) > before, "the deferred run")
    assert daemon.get("/api/daemon").json()["windows"] == []
