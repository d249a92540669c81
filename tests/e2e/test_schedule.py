"""Schedules through the real daemon."""

import sqlite3
import time

from tests.e2e.daemon import Daemon
from tests.waiting import until

MINUTE_MS = 60_000


def test_an_instant_fires(daemon: Daemon) -> None:
    """A task runs within a second of its instant, is told the instant, and its next run is announced."""
    daemon.write('[tasks.t]\nrun = "echo $RINGWARD_SCHEDULED_AT"\ncron = "* * * * *"\n')
    daemon.start()
    announced = daemon.task("t")["nextRunAt"]
    run = until(lambda: daemon.runs("t"), "the next minute", deadline_s=90)[0]
    assert (run["triggeredBy"], daemon.ended(run["id"])["endReason"]) == ("cron", "succeeded")
    assert daemon.texts(run["id"]) == [announced]
    assert announced.endswith(":00.000Z")
    assert daemon.task("t")["nextRunAt"] > announced


def test_what_passed_while_the_daemon_was_down(daemon: Daemon) -> None:
    """The newest instant that was missed runs, the others are one missed run; no instant twice, none backfilled."""
    daemon.write('[tasks.t]\nrun = "true"\ncron = "*/10 * * * *"\n[tasks.new]\nrun = "true"\ncron = "*/10 * * * *"\n')
    daemon.start()
    assert daemon.runs("t") == []
    daemon.stop()
    now_ms = int(time.time() * 1000)
    with sqlite3.connect(daemon.data / "ringward.db") as db:
        db.execute("UPDATE tasks SET last_instant = ? WHERE name = 't'", [now_ms - 55 * MINUTE_MS])
        db.execute("DELETE FROM tasks WHERE name = 'new'")
    db.close()
    daemon.start()
    runs = until(lambda: [one for one in daemon.runs("t") if one["status"] == "ended"][1:] and daemon.runs("t"), "both")
    assert sorted(run["endReason"] for run in runs) == ["missed", "succeeded"]
    assert {run["triggeredBy"] for run in runs} == {"cron"}
    daemon.stop()
    daemon.start()
    assert len(daemon.runs("t")) == 2
    assert daemon.runs("new") == []
