"""Time limits of runs: real processes on a clock that the test sets."""

import os
import signal
from collections.abc import Iterator
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Message, Spawn
from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.handover.run_records import RunRecords
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.process_manager import ProcessManager
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.transitions import ALIVE, State
from tests.root.loop.test_shortage import BOOT
from tests.scheduler.fake_clock import FakeClock
from tests.support.waiting import until

HOUR_MS = 3_600_000
HOUR_S = 3600.0
DEAF = "trap '' TERM INT; echo ready; read line"


class RecordedPump:
    """Keeps the pipes of runs, and the lines of the daemon for their logs."""

    files = SimpleNamespace(draining=0)

    def __init__(self) -> None:
        self.pipes: list[int] = []
        self.notes: list[str] = []

    def add(self, _spawn: Spawn, out: int, err: int, _record: object = None) -> None:
        self.pipes += [out, err]

    def note(self, _run: str, text: str) -> None:
        self.notes.append(text)

    def add_helper(self, fd: int) -> None:
        self.pipes.append(fd)

    def drain(self, _run: str) -> None: ...

    def seal(self, _run: str, _lines: list[str]) -> None: ...


class Runs:
    """A process manager without threads, with one run."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.watch = EpollWatch(self.clock)
        self.pump = RecordedPump()
        self.sent: list[Message] = []
        log = Log("test", "error")
        trees = ProcessTrees("D", set, print, self.clock)
        records = RunRecords(BOOT, DescriptorStore(""), log)
        environ = {"PATH": os.environ["PATH"]}
        self.manager = ProcessManager(
            "D", self.watch, cast(Pump, self.pump), log, environ, self.sent.append, trees, records
        )

    def start(self, command: str, **more: Any) -> ManagedProcess:
        """Start a run, and wait for the first line of its output."""
        spawn = Spawn(
            run="R",
            task="t",
            argv=["/bin/sh", "-c", command],
            env={},
            log="",
            log_max_bytes=1,
            stop_signal=signal.SIGTERM,
            **{"grace_ms": HOUR_MS, "stdin_open": True, **more},
        )
        self.manager.spawn({"op": "spawn", "spawn": asdict(spawn)})
        process = self.manager.live["R"]
        until(self._printed, "the first line")
        return process

    def _printed(self) -> bool:
        try:
            return bool(os.read(self.pump.pipes[0], 100))
        except BlockingIOError:
            return False

    def let_pass(self, seconds: float) -> None:
        """Let time pass, and call the timers."""
        self.clock.advance(seconds)
        self.manager.run_timers(self.clock.monotonic_s())

    def ended(self) -> Message:
        """Wait until the main process has ended; let its pipes end and its log be written, and return the report."""
        process = self.manager.live["R"]

        def exited() -> bool:
            self.watch.round(0)
            return process.state not in ALIVE

        until(exited, "the exit")
        self.manager.notices.at_end("R", silent=False)
        self.manager.notices.sealed("R", 1)
        self.manager.notices.catch_up()
        return next(frame for frame in self.sent if frame["op"] == "exited")

    def close(self) -> None:
        for process in self.manager.live.values():
            os.killpg(process.main.pid, signal.SIGKILL)
            os.waitpid(process.main.pid, 0)
        for fd in self.pump.pipes:
            os.close(fd)


@pytest.fixture
def runs() -> Iterator[Runs]:
    one = Runs()
    yield one
    one.close()


def test_timeout(runs: Runs) -> None:
    """A run is stopped once its time-out has passed, not before, and its end names the time-out as its cause."""
    process = runs.start("echo ready; read line", timeout_ms=HOUR_MS)
    runs.let_pass(HOUR_S - 1)
    assert (process.state, runs.pump.notes) == (State.RUNNING, [])
    runs.let_pass(2)
    assert (process.state, runs.pump.notes) == (State.STOPPING, [f"timed out after {HOUR_MS} ms: stopping"])
    report = runs.ended()
    assert (report["cause"], report["status"]) == ("timeout", signal.SIGTERM)
    assert report["ended_at"] - report["started_at"] == (HOUR_MS + 1000)


def test_sleep_of_the_host(runs: Runs) -> None:
    """The time-out of a run does not count the time that the host sleeps, but its duration does."""
    process = runs.start("echo ready; read line", timeout_ms=HOUR_MS)
    runs.clock.suspend(10 * HOUR_S)
    runs.let_pass(HOUR_S - 1)
    assert process.state is State.RUNNING
    runs.let_pass(1)
    report = runs.ended()
    assert (report["cause"], report["ended_at"] - report["started_at"]) == ("timeout", 11 * HOUR_MS)


def test_stop_ladder(runs: Runs) -> None:
    """A run that ignores its stop signals gets each of them after its grace period, and SIGKILL at the end."""
    process = runs.start(DEAF, stop_then=[[signal.SIGINT, HOUR_MS]])
    runs.manager.stop({"run": "R", "cause": "stop"})
    runs.let_pass(HOUR_S - 1)
    assert runs.pump.notes == []
    runs.let_pass(1)
    assert runs.pump.notes == ["did not exit in time: sending SIGINT"]
    runs.let_pass(HOUR_S - 1)
    assert (process.state, len(runs.pump.notes)) == (State.STOPPING, 1)
    runs.let_pass(1)
    assert runs.pump.notes[1:] == ["did not exit in time: sending SIGKILL"]
    assert runs.ended()["status"] == signal.SIGKILL


def test_forced_stop_skips_the_grace_periods(runs: Runs) -> None:
    """A forced stop kills a run at once, even during the grace period of an earlier stop."""
    runs.start(DEAF)
    runs.manager.stop({"run": "R", "cause": "stop"})
    runs.let_pass(1)
    runs.manager.stop({"run": "R", "cause": "stop", "force": True})
    runs.let_pass(0)
    assert runs.pump.notes == ["sending SIGKILL"]
    assert runs.ended()["status"] == signal.SIGKILL
