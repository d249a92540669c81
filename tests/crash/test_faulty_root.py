"""A root that raises an error, or that is killed during a trial."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.crash import faulty
from tests.support.daemon import PYTHON, Daemon, gone
from tests.support.waiting import until

_EX_SOFTWARE = 70


class FaultyDaemon(Daemon):
    """A daemon that runs under faulty.py instead of Python."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.plan = directory / "plan"
        self._python = directory / "python"
        self._python.write_text(f'#!/bin/sh\nexec "{PYTHON}" -I "{faulty.__file__}" "{self.plan}" "$@"\n')
        self._python.chmod(0o700)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "FAULTY_PYTHON": str(self._python)}

    def command(self) -> list[str]:
        code = f"import sys; sys.executable = {str(self._python)!r}; from supervisor.cli.entry import main; main()"
        return [str(PYTHON), "-I", "-c", code]

    def trial(self) -> psutil.Process:
        """Start a trial of the version; return its process, which hangs."""
        hangs = self.directory / "plan.hangs"
        hangs.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR2)
        until(hangs.exists, "the trial to hang")
        return psutil.Process(int(hangs.read_text()))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FaultyDaemon]:
    new_daemon = FaultyDaemon(tmp_path)
    yield new_daemon
    new_daemon.clean()


def test_fault_in_any_thread_ends_the_root(daemon: FaultyDaemon) -> None:
    """A fault in any thread of the root ends the daemon with status 70 and a traceback. The next start recovers."""
    daemon.write('[services.s]\nrun = "exec sleep 1000"\n')
    before = ""
    for thread in ("control", "pump", "file"):
        daemon.plan.write_text(thread)
        daemon.start()
        running = until(lambda: [run for run in daemon.runs("s") if run["status"] == "running"], "the service")
        assert len(running) == 1
        if before:
            assert daemon.run(before)["endReason"] == "crashed"
        before = running[0]["id"]
        defects = daemon.output.read_text().count("RuntimeError: a defect, as planned")
        assert daemon.stop(signal.SIGUSR1) == _EX_SOFTWARE
        assert daemon.output.read_text().count("RuntimeError: a defect, as planned") == defects + 1


def test_root_killed_during_a_hanging_trial(daemon: FaultyDaemon) -> None:
    """A trial ends with its root. A trial that hangs too early for that holds nothing that the next daemon needs."""
    daemon.write('[services.s]\nrun = "exec sleep 1000"\n')

    def serves(*statuses: str) -> None:
        until(lambda: [run["status"] for run in daemon.runs("s")] == [*statuses, "running"], "the service")

    daemon.plan.write_text("late")
    daemon.start()
    serves()
    trial = daemon.trial()
    daemon.stop(signal.SIGKILL)
    until(lambda: gone(trial), "its end")
    daemon.plan.write_text("early")
    daemon.start()
    serves("ended")
    trial = daemon.trial()
    daemon.stop(signal.SIGKILL)
    try:
        daemon.start()
        assert trial.is_running()
        serves("ended", "ended")
    finally:
        trial.kill()
