"""Redrawn output through pump and file thread: settled lines in the log, their frames in the sidecar."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logring.layout import BLOCK_SIZE
from logring.log_paths import frames_path
from logring.reader import LogReader
from logring.redraw import history_file, redraw_writer
from supervisor.ipc.messages import Spawn
from supervisor.root.output.run_log import RunLog
from tests.root.pump_bench import PumpBench


class Drawing(PumpBench):
    """A run whose output is reduced."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.sidecar = frames_path(self.log_path)
        reading, self.bar = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        spawn = Spawn(
            run="D",
            task="t",
            argv=[],
            env={},
            log=self.log_path,
            log_max_bytes=100 * BLOCK_SIZE,
            stop_signal=15,
            grace_ms=0,
            redraw=True,
        )
        self.pump.add(spawn, reading, None)
        self.obey()
        self.drawn: RunLog = self.pump._by_run["D"]
        self.reader = LogReader(self.drawn.writer.blocks.path, self.log_path)

    def draw(self, data: bytes) -> None:
        """Run the pump with this output, then the file thread."""
        os.write(self.bar, data)
        while self.read():
            pass
        self.write_files()

    def close(self) -> None:
        self.reader.close()
        os.close(self.bar)
        super().close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Drawing]:
    drawing = Drawing(tmp_path)
    yield drawing
    drawing.close()


def test_lines_settle_and_frames_follow(bench: Drawing) -> None:
    """A line is readable at once, its history after the next tick of the file thread, and both after the end."""
    bench.draw(b"10%\r50%")
    assert [region.rows for region in bench.reader.region()] == [(b"50%",)]
    bench.draw(b"\r90%\n")
    assert bench.reader.region() == []
    assert bench.reader.read(0, 9).lines[0].text == b"90%"
    assert not os.path.exists(bench.sidecar)
    bench.tick()
    assert bench.reader.history(0) == [[b"10%"], [b"50%"], [b"90%"]]
    bench.draw(b"1\r2\n")
    bench.pump.seal("D", [])
    bench.obey()
    bench.write_files()
    assert bench.drawn.finished
    assert bench.reader.history(0) == [[b"10%"], [b"50%"], [b"90%"]]
    assert bench.reader.history(1) == [[b"1"], [b"2"]]


def test_output_without_redraw_is_unchanged(bench: Drawing) -> None:
    """Output is reduced only if the scheduler requests it."""
    os.write(bench.out, b"10%\r50%\n")
    bench.read()
    assert bench.seal() == b"10%\r50%\n"
    assert not os.path.exists(bench.sidecar)


def test_many_frames_wake_the_file_thread(bench: Drawing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file thread is woken before too many frames wait, so none is lost as long as the disk keeps up."""
    limit = 1 << 15
    monkeypatch.setattr(redraw_writer, "MAX_WAITING", limit)
    lines = 50
    for _ in range(lines):
        bench.clock.wall += 1000  # so every line may keep its frames
        bench.draw(b"x" * 2000 + b"\r" + b"y" * 2000 + b"\r\x1b[Kend\n")
    assert bench.drawn.writer.blocks.frames._added > 3 * limit
    bench.tick()
    assert bench.reader.head().lines == lines
    assert all(bench.reader.history(number) for number in range(lines))
    assert not bench.drawn.writer.blocks.frames.waiting


def test_full_disk_loses_no_line(
    bench: Drawing, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On a full disk, history is lost with a single error, and the run continues."""

    def full(_fd: int, _data: bytes, _at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    errors: list[str] = []
    monkeypatch.setattr(bench.files._log, "error", errors.append)
    monkeypatch.setattr(history_file, "pwrite", full)
    for number in range(3):
        bench.draw(b"1\r%d\n" % number)
        bench.tick()
    assert errors == [f"D: the history of redrawn lines is lost: {bench.sidecar}: No space left on device"]
    assert [line.text for line in bench.reader.read(0, 9).lines] == [b"0", b"1", b"2"]
    assert bench.reader.history(2) == []
    assert not bench.drawn.stalled
    assert not capfd.readouterr().err


def test_no_frames_below_the_reserve(bench: Drawing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the reserve of free disk space, no history is written."""
    monkeypatch.setattr(bench.files.disk_space, "shortage", lambda: "too little is free")
    bench.draw(b"1\r2\n")
    bench.tick()
    assert not os.path.exists(bench.sidecar)
