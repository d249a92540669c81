"""A frozen disk blocks only the file thread."""

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from logring.log_paths import ring_path
from logring.logfile import log_file
from logring.reader import LogReader
from supervisor.host.clock import Clock
from supervisor.ipc.messages import Spawn
from tests.root.pump_bench import PumpBench
from tests.support.waiting import until


class FrozenDisk:
    """A disk on which writes to log files block until it is thawed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.thawed = threading.Event()
        self._pwritev = log_file.pwritev
        monkeypatch.setattr(log_file, "pwritev", self.pwritev)

    def pwritev(self, fd: int, parts: Sequence[bytes | memoryview], at: int) -> int:
        self.reached.set()
        self.thawed.wait()
        return self._pwritev(fd, parts, at)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FrozenDisk]:
    frozen = FrozenDisk(monkeypatch)
    yield frozen
    frozen.thawed.set()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PumpBench]:
    harness = PumpBench(tmp_path)
    harness.files.clock = Clock()  # the file thread is a real one
    yield harness
    harness.close()


def test_only_heavy_writers_wait(bench: PumpBench, disk: FrozenDisk, tmp_path: Path) -> None:
    """The pump never waits: a full ring stops only its own pipes, others are read and seen live; nothing is lost."""
    bench.files.start()
    total = round_bytes = 0
    while not bench.stalled():
        total += bench.fill(bench.out)
        round_bytes += bench.read()
    assert disk.reached.wait(60)
    assert bench.read() == 0
    other_read, other = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    other_path = str(tmp_path / "logs" / "R2.log")
    spawn = Spawn(
        run="R2", task="t", argv=[], env={}, log=other_path, log_max_bytes=1 << 20, stop_signal=15, grace_ms=0
    )
    bench.pump.add(spawn, other_read, None)
    bench.obey()
    reader = LogReader(ring_path(str(tmp_path), "R2"), None)
    for number in range(100):
        os.write(other, b"line %d\n" % number)
        bench.read()
        assert reader.read(number, 1).lines[0].text == b"line %d" % number
    bench.pump.seal("R2", [])
    bench.obey()
    assert reader.head().sealed
    disk.thawed.set()

    def all_taken() -> bool:
        nonlocal round_bytes
        bench.obey()
        round_bytes += bench.read()
        return round_bytes == total

    until(all_taken, "the pipe to be read")
    bench.pump.seal("R", [])

    def finished() -> bool:
        bench.obey()
        return bench.log.finished

    until(finished, "the log file")
    assert bench.files.finish(60)
    whole = LogReader(bench.ring_path, bench.log_path)
    assert sum(map(len, whole.raw())) == total
    whole.close()
    reader.close()
    other_file = LogReader(None, other_path)
    assert (other_file.head().lines, other_file.head().sealed) == (100, True)
    other_file.close()
    os.close(other)
