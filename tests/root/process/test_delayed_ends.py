"""Runs whose end or output is delayed: real processes on a clock that the test sets."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from logring.logfile import log_file
from supervisor.root.process.transitions import ALIVE
from tests.root.stepped_root import SteppedRoot
from tests.support.waiting import until_environment


@pytest.fixture
def root(tmp_path: Path) -> Iterator[SteppedRoot]:
    stepped = SteppedRoot(tmp_path)
    yield stepped
    stepped.close()


@pytest.fixture
def leftover(root: SteppedRoot) -> Iterator[str]:
    """A process that outlives the main process of its run, and is a child of the root then."""
    process = root.start("echo ready; exec sleep 1000")
    with subprocess.Popen(["sleep", "1000"], env={"RINGWARD_DAEMON": "D", "RINGWARD_RUN_ID": "R"}) as child:
        until_environment(child)
        os.kill(process.main.pid, signal.SIGTERM)
        root.until(lambda: process.state not in ALIVE, "the exit")
        yield f"sleep ({child.pid})"
        child.kill()


def test_leftovers_may_end_by_themselves(root: SteppedRoot, leftover: str) -> None:
    """Processes that outlive the main process are killed after a quarter of a second, and the log names them."""
    root.let_pass(0.249)
    assert root.live["R"].outcome.leftovers == {}
    root.let_pass(0.001)
    assert root.ended()["leftovers"] == [leftover]
    assert root.lines()[1:] == [f"killed processes that outlived the main process: {leftover}"]


def test_run_ends_without_an_unkillable_process(
    root: SteppedRoot, leftover: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run waits 10 s for killed processes to end. It then ends without them, and the log names them."""
    monkeypatch.setattr(root.control._trees, "kill", lambda _process: None)
    root.let_pass(0.25 + 9.99)
    assert root.report() is None
    root.let_pass(0.11)
    assert "leftovers" not in root.ended()
    assert root.lines()[1:] == [f"still there 10 s after SIGKILL (uninterruptible?): {leftover}"]


def test_run_that_waits_for_its_log(root: SteppedRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose log cannot be written waits, which is reported after 5 s; it continues once the disk works again."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "pwritev", refuse)
        root.start("echo ready; seq 1000000; exit 3")
        root.until(lambda: root.pump._by_run["R"].stalled, "the ring to fill")
        root.let_pass(4.9)
        assert states(root) == []
        root.let_pass(0.1)
        assert states(root) == [("waiting", "its log file accepts no data")]
    root.let_pass(1.0)
    assert states(root)[1:] == [("ok", None)]
    report = root.ended()
    assert (report["status"], report["lines"]) == (3 << 8, 1_000_001)


def states(root: SteppedRoot) -> list[tuple[str, str | None]]:
    """Return the reported states of the run's log, with their reasons."""
    return [(message["state"], message["reason"]) for message in root.sent if message["op"] == "log"]
