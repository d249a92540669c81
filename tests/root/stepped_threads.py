"""The threads of the root as steps of a test's thread: time passes only while all of them are idle."""

import os
import select
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from logring.log_paths import ring_path
from logring.reader import LogReader
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Message, Spawn
from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.handover.run_records import RunRecords
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.process_manager import ProcessManager
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.transitions import ALIVE
from tests.root.loop.test_shortage import BOOT
from tests.scheduler.fake_clock import FakeClock
from tests.support.waiting import until

T = TypeVar("T")

_MOST_ROUNDS = 10_000


class SteppedClock(FakeClock):
    """A clock on which waits end at once: it notes when they would have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        """Whether the last wait found work."""
        self.due_s: float | None = None
        """When the last wait would have ended without an event; None: never."""

    def wait(self, epoll: select.epoll, until_s: float | None) -> list[tuple[int, int]]:
        ready = epoll.poll(0)
        self._note(until_s, found=bool(ready))
        return ready

    def take(self, items: SimpleQueue[T], until_s: float) -> T:
        self._note(until_s, found=not items.empty())
        return items.get_nowait()

    def _note(self, until_s: float | None, *, found: bool) -> None:
        self.busy = found or (until_s is not None and until_s <= self.monotonic)
        self.due_s = until_s


class Steps:
    """The rounds of several threads, each with one wait."""

    def __init__(self, clock: SteppedClock, *rounds: Callable[[], None]) -> None:
        self._clock = clock
        self._rounds = rounds

    def run(self) -> float | None:
        """Run rounds in turn until all threads are idle; return when the first of them is due."""
        for _ in range(_MOST_ROUNDS):
            busy = False
            times: list[float] = []
            for one in self._rounds:
                one()
                busy |= self._clock.busy
                times += [] if self._clock.due_s is None else [self._clock.due_s]
            if not busy:
                return min(times, default=None)
        raise AssertionError("a thread of the root spins")

    def let_pass(self, seconds: float) -> None:
        """Let time pass, with all steps that become due."""
        end_s = self._clock.monotonic + seconds
        while (due_s := self.run()) is not None and due_s <= end_s:
            self._clock.advance_to(due_s)
        self._clock.advance_to(end_s)

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Run rounds, without letting time pass, until real processes have made a condition true."""

        def met() -> T | None:
            self.run()
            return condition()

        return until(met, what)


class SteppedRoot:
    """A process manager, a pump and a file thread without threads, and real processes on a clock that the test sets."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.clock = SteppedClock()
        self.sent: list[Message] = []
        """Messages to the scheduler."""
        log = Log("test", "error")
        self.bell = DoorbellServer(str(directory / "bell"), "token")
        self.files = FileThread(log, 2, DiskSpace(str(directory), 0), self.clock)
        self.pump = Pump(str(directory), "D", self.bell, self.files)
        self.files.connect(self.pump)
        self.watch = EpollWatch(self.clock)
        self.trees = ProcessTrees("D", set, print, self.clock)
        records = RunRecords(replace(BOOT, runtime_dir=str(directory)), DescriptorStore(""), log)
        environ = {"PATH": os.environ["PATH"]}
        self.manager = ProcessManager("D", self.watch, self.pump, log, environ, self.sent.append, self.trees, records)
        self.pump.connect(self.manager.notices)
        self.steps = Steps(self.clock, self._control, self.pump.round, self.files.round)
        self.let_pass, self.until = self.steps.let_pass, self.steps.until

    def _control(self) -> None:
        self.watch.round(self.manager.next_s())
        self.manager.run_timers(self.clock.monotonic_s())

    def start(self, command: str, **more: Any) -> ManagedProcess:
        """Start the run R, and wait until it prints "ready"."""
        spawn = Spawn(
            run="R",
            task="t",
            argv=["/bin/sh", "-c", command],
            env={},
            log=self.log_path,
            stop_signal=15,
            **{"log_max_bytes": 64 << 20, "grace_ms": 3_600_000, "stdin_open": True, **more},
        )
        self.manager.spawn({"op": "spawn", "spawn": asdict(spawn)})
        process = self.process = self.manager.live["R"]
        self.until(lambda: "ready" in self.lines(), "the first line")
        return process

    @property
    def log_path(self) -> str:
        return str(self._directory / "logs" / "R.log")

    def lines(self) -> list[str]:
        """Return the lines of the log, with the lines of the daemon."""
        ring = ring_path(str(self._directory), "R")
        if not (os.path.exists(ring) or os.path.exists(self.log_path)):
            return []
        reader = LogReader(ring, self.log_path)
        try:
            return [line.text.decode() for line in reader.read(0, 1000).lines]
        finally:
            reader.close()

    def ended(self) -> Message:
        """Wait for the exit of the main process at the present time; return the report of the run's end soon after."""
        self.until(lambda: self.process.state not in ALIVE, "the exit")

        def soon() -> Message | None:
            self.let_pass(0.1)
            return self.report()

        return until(soon, "the report")

    def report(self) -> Message | None:
        """Return the report of the run's end, if it was sent."""
        return next((message for message in self.sent if message["op"] == "exited"), None)

    def close(self) -> None:
        if "R" in self.manager.live:
            self.manager.stop({"run": "R", "cause": "stop", "force": True})
            self.ended()
        self.manager.close()
        self.bell.close()
