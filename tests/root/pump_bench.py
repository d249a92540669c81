"""A pump that a test runs step by step."""

import os
from pathlib import Path

from logring.layout import BLOCK_SIZE
from logring.log_paths import ring_path
from logring.reader import LogReader
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Spawn
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump
from supervisor.root.output.run_log import RunLog
from tests.scheduler.fake_clock import SteppedClock, Steps

LINE = b"x" * 99 + b"\n"


class RecordedReports:
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.silent: list[str] = []
        self.lines: list[tuple[str, int]] = []
        self.overflows: list[str] = []
        self.news: list[tuple[str, str, str | None]] = []
        self.short = 0
        self.woken = 0

    def at_end(self, run: str, *, silent: bool) -> None:
        self.ended.append(run)
        self.silent += [run] if silent else []

    def sealed(self, run: str, lines: int) -> None:
        self.lines.append((run, lines))

    def overflowed(self, run: str) -> None:
        self.overflows.append(run)

    def log_changed(self, run: str, state: str, reason: str | None) -> None:
        self.news.append((run, state, reason))

    def wake(self) -> None:
        self.woken += 1

    def ran_short(self, err: BaseException) -> None:
        self.short += isinstance(err, MemoryError)


class PumpBench:
    """A pump and a file thread that a test runs step by step, and a run with two pipes."""

    def __init__(self, directory: Path) -> None:
        self.clock = SteppedClock()
        self.log_path = str(directory / "logs" / "R.log")
        self.ring_path = ring_path(str(directory), "R")
        self.reports = RecordedReports()
        self.bell = DoorbellServer(str(directory / "bell"), "token")
        self.files = FileThread(Log("test"), 2, DiskSpace(str(directory), 0), self.clock)
        self.pump = Pump(str(directory), "D", self.bell, self.files)
        self.pump.connect(self.reports)
        self.files.connect(self.pump)
        pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(2)]
        self.out, self.err = (write_end for _, write_end in pipes)
        self.spawn = Spawn(
            run="R",
            task="t",
            argv=[],
            env={},
            log=self.log_path,
            log_max_bytes=100 * BLOCK_SIZE,
            stop_signal=15,
            grace_ms=0,
        )
        out, err = (read_end for read_end, _ in pipes)
        self.pump.add(self.spawn, out, err)
        self.pump.round()
        self.log: RunLog = self.pump._by_run["R"]
        self.steps = Steps(self.clock, self.pump.round, self.files.round)

    def obey(self) -> None:
        """Let the pump execute its commands, without reading."""
        self.pump.catch_up()

    def read(self) -> int:
        """Run one round of the pump; return the number of bytes read."""
        self.pump.round()
        return self.pump._round_bytes

    def stalled(self) -> bool:
        return self.log.stalled

    def fill(self, *pipes: int) -> int:
        """Write lines until the pipes are full; return the number of bytes."""
        written = 0
        for pipe in pipes:
            try:
                while True:
                    written += os.write(pipe, LINE)
            except BlockingIOError:
                pass
        return written

    def write_files(self) -> None:
        """Let the file thread process its queue."""
        Steps(self.clock, self.files.round).run()

    def tick(self) -> None:
        """Let the second pass after which the file thread writes unfinished blocks."""
        self.clock.advance(1.0)
        self.write_files()

    def seal(self) -> bytes:
        """End the log, and return its content."""
        self.pump.seal("R", [])
        while not self.log.finished:
            self.obey()
            self.write_files()
        reader = LogReader(self.ring_path, self.log_path)
        try:
            return b"".join(reader.raw())
        finally:
            reader.close()

    def close(self) -> None:
        self.bell.close()
        for fd in [*self.pump._by_fd, self.out, self.err]:
            os.close(fd)
