"""Conditions and gates of tasks, through the real daemon."""

from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

pytestmark = pytest.mark.lent


def with_key(daemon: Daemon) -> str:
    """Trigger a run with a secret parameter; return its id."""
    run_id: str = daemon.request("POST", "/api/tasks/t/run", {"params": {"KEY": "hidden-word"}}).json()["id"]
    return run_id


def test_condition(daemon: Daemon, tmp_path: Path) -> None:
    """A run starts only if its condition is met, which runs as the task's user in its directory and environment."""
    daemon.write(
        f"""
        [tasks.t]
        run = "echo ran"
        working_dir = "{tmp_path}"
        env = {{ WANTED = "ready" }}
        params = [{{ name = "KEY", kind = "env", secret = true }}]
        only_if = "test -e $WANTED && exit 0; echo no $KEY; exit $(cat code)"
        [tasks.path]
        run = "echo ran"
        only_if = {{ path = "{tmp_path}/ready" }}
        """
    )
    daemon.start()
    (tmp_path / "code").write_text("1")
    run = daemon.ended(with_key(daemon))
    ending = daemon.get(f"/api/runs/{run['id']}/ending").json()
    assert (run["endReason"], ending["endCause"], ending["requestedBy"]) == ("skipped", "condition", "only_if: no ***")
    assert daemon.ended(daemon.trigger("path"))["endReason"] == "skipped"
    (tmp_path / "code").write_text("7")
    failed = daemon.ended(with_key(daemon))
    assert failed["endReason"] == "start_failed"
    assert daemon.lines(failed["id"])[-1]["text"].endswith("exited with code 7: no ***")
    (tmp_path / "ready").write_text("")
    for name in ("t", "path"):
        assert daemon.texts(daemon.ended(daemon.trigger(name))["id"]) == ["ran"]


@pytest.mark.own
def test_killed_scheduler(daemon: Daemon, tmp_path: Path) -> None:
    """A run whose condition is asked, or said no, when the scheduler dies is asked again, and starts once."""
    daemon.write(
        f"""
        [tasks.t]
        run = "echo ran"
        working_dir = "{tmp_path}"
        only_if = "echo asked >> asked; test -e slow && sleep 1000; test -e ready"
        only_if_timeout = "20s"
        only_if_retry = "1h"
        only_if_for = "2h"
        """
    )
    daemon.start()
    asked = tmp_path / "asked"

    def is_asked(times: int) -> bool:
        return asked.exists() and asked.read_text().count("asked") == times

    (tmp_path / "slow").write_text("")
    run = daemon.trigger("t")
    until(lambda: is_asked(1), "the first question")
    (reason,) = daemon.get(f"/api/runs/{run}/details").json()["waitingFor"]
    assert reason["kind"] == "condition"
    (tmp_path / "slow").unlink()
    daemon.kill_helper("ringward scheduler")
    until(lambda: is_asked(2), "the question of the second scheduler")
    until(lambda: "its condition said no" in daemon.output.read_text(), "the run to wait")
    (tmp_path / "ready").write_text("")
    daemon.kill_helper("ringward scheduler")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert (daemon.texts(run), is_asked(3)) == (["ran"], True)


def test_requires(daemon: Daemon, tmp_path: Path) -> None:
    """A scheduled run waits until a task has succeeded; one that waits in vain is skipped, and a message tells it."""
    daemon.write(
        f"""
        [tasks.extract]
        every = "1s"
        run = "test -e {tmp_path}/ready"
        [tasks.load]
        every = "1s"
        requires = ["extract"]
        run = "echo loaded"
        [tasks.hasty]
        every = "1s"
        requires = ["extract"]
        gate_wait = "1s"
        run = "true"
        """
    )
    daemon.start()

    until(lambda: daemon.runs("load"), "the run that waits")
    load = daemon.runs("load")[0]["id"]
    (waiting,) = daemon.get(f"/api/runs/{load}/details").json()["waitingFor"]
    assert waiting["kind"] == "gate"

    def closed() -> list[str]:
        """Return what the closed gates required."""
        ended = [run["id"] for run in daemon.runs("hasty") if run.get("endReason") == "skipped"]
        endings = [daemon.get(f"/api/runs/{run_id}/ending").json() for run_id in ended]
        return [ending["requestedBy"] for ending in endings if ending.get("endCause") == "gate"]

    until(closed, "a run that waited in vain")
    assert closed()[0].startswith("requires: extract (")
    told = daemon.get("/api/notifications").json()
    assert "run.gate_closed" in str(told)
    (tmp_path / "ready").touch()
    assert daemon.ended(load)["endReason"] == "succeeded"
    assert daemon.texts(load) == ["loaded"]
