"""Skipped scheduled times, through the whole daemon."""

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until


@pytest.mark.lent
def test_skipped_times_are_no_alarm(daemon: Daemon) -> None:
    """A task that skips many times because it is busy raises one event for the day, and nothing that needs a person."""
    daemon.write('[tasks.busy]\nrun = "exec sleep 1000"\nevery = "1s"\non_overlap = "skip"\n')
    daemon.start()
    until(lambda: sum(run.get("endReason") == "skipped" for run in daemon.runs("busy")) > 1, "two skipped times")
    items = daemon.get("/api/notifications").json()["items"]
    raised = {(item["kind"], item["severity"]) for item in items if item.get("taskName") == "busy"}
    assert raised == {("run.skipped", "info")}
