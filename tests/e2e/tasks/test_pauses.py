"""Pauses with an end and of the whole daemon, through the daemon."""

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until


@pytest.mark.own
def test_pause_of_the_daemon(daemon: Daemon) -> None:
    """One switch pauses all schedules over a restart, says who and until when, and leaves runs by hand alone."""
    daemon.write('[tasks.often]\nrun = "true"\nevery = "1s"\n')
    daemon.start()
    until(lambda: daemon.runs("often"), "the first run")
    assert daemon.cli("pause", "--daemon", "--until", "2099-01-01", "--note", "release 4.2").returncode == 0
    paused_at = len(daemon.runs("often"))
    daemon.stop()
    daemon.start()
    assert daemon.get("/api/daemon").json()["pause"]["note"] == "release 4.2"
    assert "release 4.2" in daemon.cli("status").stdout
    assert "nextRunAt" not in daemon.task("often")
    daemon.ended(daemon.trigger("often"))
    assert [run["triggeredBy"] for run in daemon.runs("often")[paused_at:]] == ["api"]
    assert daemon.cli("resume", "--daemon").returncode == 0
    until(lambda: len(daemon.runs("often")) > paused_at + 1, "the schedule to go on")
    assert "pause" not in daemon.get("/api/daemon").json()
    answer = daemon.request("POST", "/api/tasks/often/pause", {"until": "2020-01-01T00:00:00Z"})
    assert answer.status == 422
    assert daemon.request("POST", "/api/tasks/often/pause", {"until": "2099-01-01T00:00:00Z"}).status == 204
    assert daemon.task("often")["withheld"]["until"] == "2099-01-01T00:00:00.000Z"
