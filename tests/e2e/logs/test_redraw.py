"""Progress bars through the real daemon: live, settled, and their history. The program is cat; the test draws."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from logring.log_paths import frames_path, log_path
from tests.support.client import Event
from tests.support.daemon import Daemon, gone
from tests.support.waiting import until


class Program:
    """A run that prints text from the test."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.run = f'["cat", "{path}"]'
        self._path = path
        self._fd = -1

    def draw(self, data: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY)  # blocks until the run opens it
        os.write(self._fd, data)

    def end(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    printer = Program(tmp_path / "fifo")
    yield printer
    printer.end()


def shows(events: Iterator[Event], rows: list[str]) -> Event:
    """Return the next region with these rows."""
    return next(event for event in events if event.kind == "region" and event.data["rows"] == rows)


@pytest.mark.lent
def test_progress_bar_is_one_line_with_history(daemon: Daemon, program: Program) -> None:
    """Frames arrive as regions, then the line with frameCount; the history is served live and after the end."""
    daemon.write(f"[tasks.t]\nrun = {program.run}\n")
    daemon.start()
    run_id = daemon.trigger("t")
    stream = daemon.stream(f"/api/runs/{run_id}/log/stream")
    events = iter(stream)
    program.draw(b"begin\n 10 %\r 20 %")
    shows(events, [" 20 %"])
    program.draw(b"\r 60 %")
    shows(events, [" 60 %"])
    program.draw(b"\r100 %\n")
    line = next(event for event in events if event.kind == "line")
    assert (line.id, line.data["text"]) == ("1", "100 %")
    count = line.data["frameCount"]
    assert count >= 2
    history = f"/api/runs/{run_id}/log/line/1/history"
    frames = until(
        lambda: len(frames_found := daemon.get(history).json()["frames"]) == count and frames_found, "the history"
    )
    assert frames[-1] == ["100 %"]
    assert [" 60 %"] in frames
    program.end()
    daemon.ended(run_id)
    assert list(events)[-1].kind == "done"
    stream.close()
    assert daemon.get(f"/api/runs/{run_id}/log/raw").body == b"begin\n100 %\n"
    assert [line.get("frameCount") for line in daemon.lines(run_id)] == [None, count]
    assert daemon.get(history).json()["frames"] == frames
    assert daemon.get(f"/api/runs/{run_id}/log/line/2/history").status == 404


@pytest.mark.lent
def test_redraw_off_keeps_every_byte(daemon: Daemon, program: Program) -> None:
    """With redraw off, every byte is kept, without a history or a sidecar."""
    daemon.write(f'[tasks.t]\nrun = {program.run}\nredraw = "off"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    data = b" 10 %\r 20 %\r\n\rend"
    program.draw(data)
    program.end()
    daemon.ended(run_id)
    assert daemon.get(f"/api/runs/{run_id}/log/raw").body == data
    assert daemon.get(f"/api/runs/{run_id}/log/line/0/history").json()["frames"] == []
    assert not os.path.exists(frames_path(log_path(str(daemon.data), "t", run_id)))


def test_killed_supervisor_keeps_the_last_frame(daemon: Daemon, program: Program) -> None:
    """The last frame that a reader saw is the last line of the crashed run; its lines keep their history."""
    daemon.write(f"[tasks.t]\nrun = {program.run}\n")
    daemon.start()
    run_id = daemon.trigger("t")
    stream = daemon.stream(f"/api/runs/{run_id}/log/stream")
    events = iter(stream)
    program.draw(b"1 %\r2 %\n 10 %\r 20 %")
    shows(events, [" 20 %"])
    history = f"/api/runs/{run_id}/log/line/0/history"
    frames = until(lambda: daemon.get(history).json()["frames"], "the history")
    helpers = daemon.children("ringward")
    daemon.stop(signal.SIGKILL)
    stream.close()
    until(lambda: all(map(gone, helpers)), "our helpers to end")
    daemon.start()
    assert daemon.run(run_id)["endReason"] == "crashed"
    assert daemon.texts(run_id) == ["2 %", " 20 %"]
    assert daemon.get(history).json()["frames"] == frames
