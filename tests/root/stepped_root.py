"""The root on a clock that a test sets."""

import contextlib
import os
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from logring.log_paths import ring_path
from logring.reader import LogReader
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import LOCK, Decoder, Message, Spawn, encode
from supervisor.root.helper_processes import Helper
from supervisor.root.loop.control_thread import ControlThread
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.transitions import ALIVE
from tests.root.loop.test_shortage import BOOT
from tests.scheduler.fake_clock import SteppedClock, Steps
from tests.support.waiting import until


class SteppedRoot:
    """The root without threads, with real runs, on a clock that the test sets. The test acts as the scheduler."""

    def __init__(self, directory: Path) -> None:
        self.settings = replace(BOOT, runtime_dir=str(directory), shutdown_timeout_ms=60_000)
        for name in (LOCK, "listening.json"):
            (directory / name).touch()
        os.mkdir(self.settings.audit_dir)
        self.clock = SteppedClock()
        log = Log("test", "error")
        self.bell = DoorbellServer(self.settings.root_bell, "token")
        files = FileThread(log, 2, DiskSpace(str(directory), 0), self.clock)
        self.pump = Pump(str(directory), "D", self.bell, files)
        files.connect(self.pump)
        scheduler, api = (Helper(name, name, self.settings, []) for name in ("scheduler", "api"))
        scheduler.start_at_s = api.start_at_s = None
        scheduler.sock, self._scheduler = socket.socketpair()
        for sock in (scheduler.sock, self._scheduler):
            sock.setblocking(False)
        self._decoder = Decoder()
        self._sent: list[Message] = []
        environ = {"PATH": os.environ["PATH"]}
        self.control = ControlThread(self.settings, log, self.pump, self.bell, environ, (scheduler, api))
        self.control._watch_helper(scheduler)
        self.live = self.control._processes.live
        self.steps = Steps(self.clock, self.control.round, self.pump.round, files.round)
        self.let_pass, self.until = self.steps.let_pass, self.steps.until

    def ask(self, message: Message) -> None:
        """Send a message as the scheduler, and let the root act on it."""
        self._scheduler.sendall(encode(message))
        self.steps.run()

    @property
    def sent(self) -> list[Message]:
        """Return all messages to the scheduler."""
        with contextlib.suppress(BlockingIOError):
            while data := self._scheduler.recv(65536):
                self._sent += self._decoder.feed(data)
        return self._sent

    def start(self, command: str, **more: Any) -> ManagedProcess:
        """Start the run R, and wait until it prints "ready"."""
        self.spawn(command, **more)
        process = self.live["R"]
        self.until(lambda: "ready" in self.lines(), "the first line")
        return process

    def spawn(self, command: str, **more: Any) -> None:
        """Start the run R."""
        spawn = Spawn(
            run="R",
            task="t",
            argv=["/bin/sh", "-c", command],
            env={},
            log=self.log_path,
            stop_signal=15,
            **{"log_max_bytes": 64 << 20, "grace_ms": 60_000, "stdin_open": True, **more},
        )
        self.ask({"op": "spawn", "spawn": asdict(spawn)})

    @property
    def log_path(self) -> str:
        return f"{self.settings.runtime_dir}/logs/R.log"

    def lines(self) -> list[str]:
        """Return the lines of the log, with the lines of the daemon."""
        ring = ring_path(self.settings.runtime_dir, "R")
        if not (os.path.exists(ring) or os.path.exists(self.log_path)):
            return []
        reader = LogReader(ring, self.log_path)
        try:
            return [line.text.decode() for line in reader.read(0, 1000).lines]
        finally:
            reader.close()

    def ended(self) -> Message:
        """Wait for the exit of the main process at the present time; return the report of the run's end soon after."""
        self.until(lambda: "R" not in self.live or self.live["R"].state not in ALIVE, "the exit")

        def soon() -> Message | None:
            self.let_pass(0.1)
            return self.report()

        return until(soon, "the report")

    def report(self) -> Message | None:
        """Return the report of the run's end, if it was sent."""
        return next((message for message in self.sent if message["op"] == "exited"), None)

    def close(self) -> None:
        if "R" in self.live:
            self.ask({"op": "stop", "run": "R", "cause": "stop", "force": True})
            self.ended()
        self.control._processes.close()
        self.control._scheduler.hang_up()
        self._scheduler.close()
        self.bell.close()
