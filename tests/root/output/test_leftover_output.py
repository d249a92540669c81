"""Output of processes that outlived their run."""

import json
import os
import select

from logring.state_json import from_json, to_json
from supervisor.root.handover.state_schema import LeftoverOutputState
from supervisor.root.output.leftover_output import LeftoverPipe, LeftoverPipes
from tests.scheduler.fake_clock import FakeClock


def texts(lines: bytes) -> list[str]:
    """Return the lines without their time stamps."""
    return [line.split(" ", 1)[1] for line in lines.decode().splitlines()]


def test_lines_are_marked_and_masked() -> None:
    """Each line has the task and the id of its run; secrets are replaced, even if two reads split them."""
    output = LeftoverPipe("t", "R", ["secret"], 0.0)
    assert texts(output.take(b"one\r\nthe sec", 0.0)) == ["INFO left-running: t R: one"]
    assert texts(output.take(b"ret\x1b[0m\n", 0.0)) == ["INFO left-running: t R: the ***\\x1b[0m"]
    assert output.take(b"end", 0.0) == b""
    assert texts(output.take(b"", 0.0)) == ["INFO left-running: t R: end"]


def test_flood_is_limited() -> None:
    """A hundred lines at once are written, then ten a second; the next line has the number of dropped ones."""
    output = LeftoverPipe("t", "R", [], 0.0)
    assert len(texts(output.take(b"x\n" * 150, 0.0))) == 100
    all_texts = texts(output.take(b"y\n" * 30, 1.0))
    assert all_texts == ["INFO left-running: t R: 50 lines dropped", *["INFO left-running: t R: y"] * 10]
    assert texts(output.take(b"", 1.0)) == ["INFO left-running: t R: 20 lines dropped"]


def test_endless_line_is_cut() -> None:
    """A line without an end uses no more memory than one read."""
    output = LeftoverPipe("t", "R", [], 0.0)
    (line,) = texts(output.take(b"x" * 20_000, 0.0))
    assert line == f"INFO left-running: t R: {'x' * 8192}"


def test_next_root_continues() -> None:
    """The next root gets an unfinished line, the start of a secret and the count of dropped lines."""
    output = LeftoverPipe("t", "R", ["secret"], 0.0)
    output.take(b"x\n" * 101 + b"begun sec", 0.0)
    after = LeftoverPipe.load(from_json(LeftoverOutputState, json.loads(json.dumps(to_json(output.dump())))), 9.0)
    all_texts = texts(after.take(b"ret\n", 9.0))
    assert all_texts == ["INFO left-running: t R: 1 lines dropped", "INFO left-running: t R: begun ***"]


def test_pipe_is_closed_at_its_end() -> None:
    """The rest of a pipe is written before the pipe is closed."""
    written: list[bytes] = []
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    with select.epoll() as epoll:
        outputs = LeftoverPipes(epoll, written.append, FakeClock())
        outputs.add(reading, LeftoverPipe("t", "R", [], 0.0))
        outputs.read(reading)
        os.write(writing, b"last\n")
        os.close(writing)
        outputs.read(reading)
        assert reading in outputs
        outputs.read(reading)
        assert reading not in outputs
    assert texts(b"".join(written)) == ["INFO left-running: t R: last"]
