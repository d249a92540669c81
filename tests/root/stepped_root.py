"""The root on a clock that a test sets."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

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
from tests.scheduler.fake_clock import SteppedClock, Steps
from tests.support.waiting import until


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
