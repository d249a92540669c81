"""Batches have the same lines as single reads."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logring.layout import STDERR, STDOUT, SYSTEM
from logring.reader import Batch, Line, LogReader
from tests.logring.support.rings import T0, Log

MakeLog = Callable[..., Log]


def expanded(batches: list[Batch]) -> list[Line]:
    """Return the single lines of batches."""
    return [
        Line(batch.n + number, batch.ts, batch.stream, text, batch.continued, batch.frames)
        for batch in batches
        for number, text in enumerate(batch.text.split(b"\n"))
    ]


def all_batches(reader: LogReader, limit: int, max_bytes: int) -> list[Batch]:
    head, batches = reader.head(), list[Batch]()
    position = head.first_available
    while position < head.lines:
        page = reader.read_batches(position, limit, max_bytes)
        assert page.skipped == 0
        assert page.next > position
        assert sum(batch.lines for batch in page.lines) <= limit
        batches += page.lines
        position = page.next
    return batches


@pytest.fixture
def mixed(make_log: MakeLog) -> Log:
    """A log of both streams, with empty, long, continued and unfinished lines, over several blocks."""
    log = make_log(block_size=4096)
    for number in range(300):
        stream = STDERR if number % 5 == 0 else STDOUT
        log.feed(stream, b"".join(b"%d\n" % line_number for line_number in range(number % 7)) + b"\n", T0 + number)
        if number % 50 == 0:
            log.feed(stream, b"x" * 40_000, T0 + number)
            log.feed(stream, b"end\n", T0 + number)
        if number % 60 == 0:
            log.writer.system_line("a line of the daemon", T0 + number)
    log.feed(STDOUT, b"no newline", T0 + 400)
    log.finish(T0 + 400)
    return log


@given(limit=st.integers(1, 400), max_bytes=st.integers(1, 100_000))
@settings(max_examples=60)
def check(reader: LogReader, lines: list[Line], limit: int, max_bytes: int) -> None:
    assert expanded(all_batches(reader, limit, max_bytes)) == lines


def test_batches_have_the_lines_of_the_log(mixed: Log) -> None:
    """For any page limits, no line is missing, repeated or changed."""
    lines = mixed.lines()
    assert {line.stream for line in lines} == {STDOUT, STDERR, SYSTEM}
    assert any(line.continued for line in lines)
    check(mixed.reader, lines)


def test_any_line_may_be_the_first(mixed: Log) -> None:
    """A page of batches begins at the requested line, even within lines that were read together."""
    lines = mixed.lines()
    for start in range(len(lines)):
        page = mixed.reader.read_batches(start, 10)
        assert expanded(page.lines) == lines[start : start + 10]


def test_lines_of_one_read_are_one_batch(make_log: MakeLog) -> None:
    """A thousand lines of one read are one batch."""
    log = make_log()
    log.feed(STDOUT, b"line\n" * 1000, T0)
    (batch,) = log.reader.read_batches(0, 5000).lines
    assert (batch.n, batch.lines, batch.next, batch.frames) == (0, 1000, 1000, 0)
    assert log.reader.read_batches(1000, 5000).lines == []


def test_redrawn_line_is_its_own_batch(make_log: MakeLog) -> None:
    """A redrawn line is its own batch, with the number of its frames, even among lines of the same read."""
    log = make_log()
    log.writer.redraw(STDOUT, full=False)
    log.feed(STDOUT, b"a\nb\n10%\r20%\r30%\nc\nd\n", T0)
    text_and_frames = [(batch.text, batch.frames) for batch in log.reader.read_batches(0, 5000).lines]
    assert text_and_frames == [(b"a\nb", 0), (b"30%", 3), (b"c\nd", 0)]
