"""A database that cannot be written for hours, while schedules are due and a run ends."""

import contextlib
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.database import open_reader
from tests.crash.compressed_day import SimulatedClockDaemon
from tests.support.client import Answer
from tests.support.daemon import program
from tests.support.waiting import until

MINUTE_MS = 60_000
START_MS = 1_764_547_230_000  # 2025-12-01T00:00:30Z
MINUTES = 100
TASKS = ("a", "b", "c", "d", "e")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SimulatedClockDaemon]:
    new_daemon = SimulatedClockDaemon(tmp_path, START_MS)
    yield new_daemon
    new_daemon.clean()


def test_locked_database(daemon: SimulatedClockDaemon) -> None:
    """While another program locks the database, waiting requests are refused, stops act, and no end is lost.

    Schedules pause and catch up. A long wait takes no memory.
    """
    gate = daemon.directory / "gate"
    text = f"[tasks.ends]\nrun = \"until [ -e '{gate}' ]; do sleep 0.01; done; exit 7\"\n"
    text += f'[tasks.stopped]\nrun = {program("obeys_term")}\ngraceful_stop = "1h"\n'
    daemon.write(text + "".join(f'[tasks.{name}]\nrun = "true"\ncron = "* * * * *"\n' for name in TASKS))
    daemon.start()
    ends, stopped = daemon.trigger("ends"), daemon.trigger("stopped")
    until(lambda: daemon.texts(stopped) and daemon.run(ends)["status"] == "running", "both to run")
    [child] = daemon.children("obeys_term")
    other = sqlite3.connect(daemon.data / "ringward.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def refused() -> Answer | None:
        answer = daemon.request("POST", "/api/tasks/ends/run")
        return answer if answer.status == 503 else None

    assert int(until(refused, "it to be noticed").headers["Retry-After"]) > 0
    until(lambda: daemon.get("/readyz").status == 503, "the probe to say so")
    assert daemon.request("POST", f"/api/runs/{stopped}/stop").status == 204
    until(lambda: not child.is_running(), "its end")
    gate.touch()
    for _ in range(MINUTES):
        daemon.clock.pass_to(daemon.clock.now_ms + MINUTE_MS)
        assert refused()  # in the same round as the schedules of that minute
    assert daemon.get("/api/runs").status == 200
    other.execute("ROLLBACK")
    other.close()
    until(lambda: daemon.get("/readyz").status == 200, "it to recover")
    assert (daemon.ended(ends)["endReason"], daemon.ended(ends)["exitCode"]) == ("failed", 7)
    assert (daemon.ended(stopped)["endReason"], daemon.ended(stopped)["exitCode"]) == ("stopped", 5)
    announcement = re.compile(r"the database can be written again; (\d+) more changes")
    assert int(until(lambda: announcement.search(daemon.output.read_text()), "a word about it")[1]) < MINUTES
    until(lambda: accounted(daemon) == dict.fromkeys(TASKS, MINUTES), "all instants to be accounted for")
    assert {daemon.ended(daemon.runs(name)[-1]["id"])["endReason"] for name in TASKS} == {"succeeded"}
    told_people = '"database.failing"'
    until(lambda: told_people in daemon.get("/api/notifications").body.decode(), "people to be told")
    assert daemon.stop(signal.SIGTERM) == 0


def accounted(daemon: SimulatedClockDaemon) -> dict[str, int]:
    """Return the number of instants that the runs of each task record."""
    sql = "SELECT task_name, sum(coalesce(missed_count, 1)) FROM runs WHERE scheduled_at IS NOT NULL GROUP BY task_name"
    with contextlib.closing(open_reader(str(daemon.data / "ringward.db"), limit_s=None)) as database:
        return {str(name): int(str(count)) for name, count in database.rows(sql)}
