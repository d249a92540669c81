"""Disabled services, through the whole daemon."""

import signal
from contextlib import closing

import pytest

from store.daemon_values import set_meta
from store.database import open_writer
from tests.support.daemon import Daemon
from tests.support.waiting import until


@pytest.mark.own
def test_disabled_over_restarts(daemon: Daemon) -> None:
    """A disabled service stays stopped when the daemon or the host restarts, and says who disabled it and why."""
    daemon.write('[services.web]\nrun = "exec sleep 1000"\n[services.other]\nrun = "exec sleep 1000"\n')
    daemon.start()
    until(lambda: daemon.task("web")["state"] == "running", "the service to run")
    assert daemon.cli("stop", "--disable", "--note", "moving the disk", "web").returncode == 0
    for number in (signal.SIGTERM, signal.SIGKILL):
        daemon.stop(number)
        with closing(open_writer(str(daemon.data / "ringward.db"))) as db:
            set_meta(db, "boot_id", "another")  # as if the host had booted
        daemon.start()
        until(lambda: daemon.task("other")["state"] == "running", "the other service to run")
        web = daemon.task("web")
        assert web["state"] == "stopped"
        assert web["withheld"]["note"] == "moving the disk"
    assert "moving the disk" in daemon.cli("ps").stdout
    assert "disabled" in daemon.cli("status").stdout
    refused = daemon.cli("start", "web")
    assert refused.returncode == 1
    assert "web did not start: it is disabled by uid " in refused.stderr
    assert daemon.cli("start", "--enable", "web").returncode == 0
    assert "withheld" not in daemon.task("web")
    daemon.stop()
    daemon.start()
    until(lambda: daemon.task("web")["state"] == "running", "the enabled service to run")
