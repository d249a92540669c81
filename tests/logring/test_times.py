"""Lines found by their time."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logring.errors import LogError
from logring.layout import FILE_BLOCKS_AT, STDERR, STDOUT
from tests.logring.support.rings import T0, Log

MakeLog = Callable[..., Log]


def fill(log: Log, count: int) -> None:
    for number in range(count):
        log.feed(STDERR if number % 3 else STDOUT, b"line %d\n" % number, T0 + 10 * number)


def test_first_line_at_or_after(make_log: MakeLog) -> None:
    """A time leads to the first line read then or later, in ring and file; a later time leads to the next line."""
    log = make_log(block_size=4096)
    fill(log, 2000)
    for state in ("live", "sealed"):
        if state == "sealed":
            log.finish()
        reader = log.open_reader()
        for number in (0, 1, 500, 1234, 1999):
            assert reader.line_at(T0 + 10 * number) == number
            assert reader.line_at(T0 + 10 * number + 1) == number + 1
            assert reader.line_at(T0 + 10 * number - 1) == number
        assert reader.line_at(-(2**63)) == 0
        assert reader.line_at(2**63) == 2000
        reader.close()


def test_missing_log(make_log: MakeLog) -> None:
    """In a missing log, every time leads to its first line, which is still to come."""
    log = make_log()
    assert log.reader.line_at(T0) == 0


def test_time_before_the_first_line(make_log: MakeLog) -> None:
    """A time before the first kept line leads to that line."""
    log = make_log(blocks=2, block_size=4096, file_blocks=3)
    fill(log, 3000)
    first = log.reader.head().first_available
    assert first > 0
    for number in (0, first - 1, first):
        assert log.reader.line_at(T0 + 10 * number) == first
    assert log.reader.line_at(T0 + 10 * first + 10) == first + 1


def test_damaged_blocks(make_log: MakeLog) -> None:
    """A time in a damaged block leads to its first line or, if its header is damaged, the line after the block."""
    log = make_log(block_size=4096)
    fill(log, 1000)
    log.finish()
    reader = log.open_reader()
    blocks = [block.header for block in reader.blocks() if not isinstance(block, LogError)]
    reader.close()
    for damage, expected in ((500, blocks[2].first_line), (3, blocks[3].first_line)):
        with open(log.log_path, "r+b") as file:
            file.seek(FILE_BLOCKS_AT + 2 * 4096 + damage)
            file.write(b"\0\0\0\0")
        reader = log.open_reader()
        assert reader.line_at(T0 + 10 * blocks[2].first_line + 50) == expected
        assert reader.line_at(T0 + 10 * blocks[3].first_line + 50) == blocks[3].first_line + 5
        reader.close()


def test_few_blocks_are_read(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search in a long log reads only some headers and one block."""
    log = make_log(block_size=4096)
    fill(log, 40_000)
    log.finish()
    reader = log.open_reader()
    reader.head()
    assert log.writer.blocks.head_block > 250
    count = 0
    pread = os.pread

    def counting(fd: int, size: int, at: int) -> bytes:
        nonlocal count
        count += 1
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", counting)
    assert reader.line_at(T0 + 10 * 12_345) == 12_345
    assert count < 20
    monkeypatch.undo()
    reader.close()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 60), st.integers(0, 900)), max_size=30),
    wanted=st.integers(-200, 1500),
    sealed=st.booleans(),
)
def test_clock_set_back(steps: list[tuple[int, int, int]], wanted: int, sealed: bool) -> None:
    """Even if times decrease, the found line was read at the time or later, and the line before it earlier."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), blocks=2, block_size=4096)
        try:
            now = T0
            for later, count, length in steps:
                now += later
                log.feed(STDOUT, (b"x" * length + b"\n") * count, now)
            if sealed:
                log.finish(now)
            lines = log.lines()
            at = log.reader.line_at(T0 + wanted)
            assert at == len(lines) or lines[at].ts >= T0 + wanted
            assert at == 0 or lines[at - 1].ts < T0 + wanted
        finally:
            log.close()
