"""Shutdowns of the root: real processes on a clock that the test sets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.root.stepped_root import SteppedRoot


@pytest.fixture
def root(tmp_path: Path) -> Iterator[SteppedRoot]:
    one = SteppedRoot(tmp_path)
    yield one
    one.close()


def test_supervisor_stops_runs_of_a_hung_scheduler(root: SteppedRoot) -> None:
    """The supervisor stops the runs that a hung scheduler did not stop, early enough for their grace."""
    root.ask({"op": "ready"})
    root.start("trap 'echo bye; exit 5' TERM; echo ready; read line")
    begin_s = root.clock.monotonic
    root.control._shut_down("SIGTERM")
    root.let_pass(44.9)
    assert root.lines() == ["ready"]
    root.let_pass(0.1)  # three quarters of the time-out
    report = root.ended()
    assert (report["cause"], os.waitstatus_to_exitcode(report["status"])) == ("shutdown", 5)
    assert root.lines() == ["ready", "bye"]
    root.clock.advance_to(begin_s + 60.9)
    assert not root.control._is_over()
    root.clock.advance_to(begin_s + 61)
    assert root.control._is_over()
    assert root.control._exit_status == 1  # the end of the run is not stored


def test_shutdown_waits_for_a_scheduler_at_work(root: SteppedRoot) -> None:
    """Each message of the scheduler is progress, so a slow store loses no end; a silent scheduler is given up."""
    root.ask({"op": "ready"})
    root.start("echo ready; read line")
    root.control._shut_down("SIGTERM")
    root.let_pass(60)
    root.ended()
    for _ in range(10):
        root.ask({"op": "ack", "runs": []})
        root.let_pass(4.9)
        assert not root.control._is_over()
    root.clock.advance_ms(200)
    assert root.control._is_over()
    assert root.control._exit_status == 1  # the end of the run is not stored


def test_shutdown_waits_only_so_long(root: SteppedRoot) -> None:
    """Without a service manager, a scheduler that never stores an end is given up after ten times the time-out."""
    root.ask({"op": "ready"})
    root.start("echo ready; read line")
    begin_s = root.clock.monotonic
    root.control._shut_down("SIGTERM")
    root.let_pass(60)
    root.ended()
    while root.clock.monotonic + 4 < begin_s + 600:
        root.ask({"op": "ack", "runs": []})
        root.let_pass(4)
        assert not root.control._is_over()
    root.clock.advance_to(begin_s + 600)
    assert root.control._is_over()


def test_run_that_ignores_the_shutdown_is_killed(root: SteppedRoot) -> None:
    """A run that a shutdown does not end in time is killed when its time-out has passed."""
    root.ask({"op": "ready"})
    root.start("trap '' TERM; echo ready; read line")
    root.control._shut_down("SIGTERM")
    root.let_pass(59.9)
    assert root.lines() == ["ready"]
    root.let_pass(0.1)
    report = root.ended()
    assert (report["cause"], os.waitstatus_to_exitcode(report["status"])) == ("shutdown", -9)
    assert root.lines() == ["ready", "sending SIGKILL"]
    root.ask({"op": "ack", "runs": ["R"]})
    root.ask({"op": "ready_to_end"})
    assert root.control._is_over()
    assert root.control._exit_status == 0
