"""Time limits of runs: real processes on a clock that the test sets."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.root.process.transitions import State
from tests.root.stepped_root import SteppedRoot

MINUTE_MS = 60_000
MINUTE_S = 60.0
DEAF = "trap '' TERM INT; echo ready; read line"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[SteppedRoot]:
    stepped = SteppedRoot(tmp_path)
    yield stepped
    stepped.close()


def test_timeout(root: SteppedRoot) -> None:
    """A run is stopped once its time-out has passed, not before, and its end names the time-out as its cause."""
    process = root.start("echo ready; read line", timeout_ms=MINUTE_MS)
    root.let_pass(MINUTE_S - 1)
    assert (process.state, root.lines()) == (State.RUNNING, ["ready"])
    root.let_pass(1)
    assert root.lines() == ["ready", f"timed out after {MINUTE_MS} ms: stopping"]
    report = root.ended()
    assert (report["cause"], report["status"]) == ("timeout", signal.SIGTERM)
    assert report["ended_at"] - report["started_at"] == MINUTE_MS


def test_sleep_of_the_host(root: SteppedRoot) -> None:
    """The time-out of a run does not count the time that the host sleeps, but its duration does."""
    process = root.start("echo ready; read line", timeout_ms=MINUTE_MS)
    root.clock.suspend(10 * MINUTE_S)
    root.let_pass(MINUTE_S - 1)
    assert process.state is State.RUNNING
    root.let_pass(1)
    report = root.ended()
    assert (report["cause"], report["ended_at"] - report["started_at"]) == ("timeout", 11 * MINUTE_MS)


def test_stop_ladder(root: SteppedRoot) -> None:
    """A run that ignores its stop signals gets each of them after its grace period, and SIGKILL at the end."""
    process = root.start(DEAF, stop_then=[[signal.SIGINT, MINUTE_MS]])
    root.ask({"op": "stop", "run": "R", "cause": "stop"})
    root.let_pass(MINUTE_S - 1)
    assert root.lines() == ["ready"]
    root.let_pass(1)
    assert root.lines()[1:] == ["did not exit in time: sending SIGINT"]
    root.let_pass(MINUTE_S - 1)
    assert (process.state, len(root.lines())) == (State.STOPPING, 2)
    root.let_pass(1)
    assert root.lines()[2:] == ["did not exit in time: sending SIGKILL"]
    assert root.ended()["status"] == signal.SIGKILL


def test_forced_stop_skips_the_grace_periods(root: SteppedRoot) -> None:
    """A forced stop kills a run at once, even during the grace period of an earlier stop."""
    root.start(DEAF)
    root.ask({"op": "stop", "run": "R", "cause": "stop"})
    root.let_pass(1)
    root.ask({"op": "stop", "run": "R", "cause": "stop", "force": True})
    root.let_pass(0)
    assert root.lines()[1:] == ["sending SIGKILL"]
    assert root.ended()["status"] == signal.SIGKILL
