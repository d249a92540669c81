"""Lines of the writer, read in the same process."""

import os
from collections.abc import Callable

import pytest

from logring.layout import MAX_LINE, STDERR, STDOUT, SYSTEM, RingShape, max_line
from logring.reader import Head, Line
from logring.ring.writer import RingWriter
from tests.logring.support.rings import T0, Log, read_all, texts

MakeLog = Callable[..., Log]


def test_silent_run_leaves_nothing(make_log: MakeLog) -> None:
    """A run that never printed has neither ring nor file, and reads as an empty log."""
    log = make_log()
    assert log.reader.head() == Head(0, 0, 0, sealed=False, region_epoch=0)
    log.finish()
    assert log.writer.blocks.sealed
    assert not log.writer.blocks.created
    assert not os.path.exists(log.ring_path)
    assert not os.path.exists(log.log_path)
    page = log.reader.read(0, 100)
    assert (page.lines, page.next, page.skipped) == ([], 0, 0)
    assert log.reader.resolve(-10) == 0
    assert list(log.reader.raw()) == []
    assert log.reader.pending() == []


def test_ring_appears_with_its_readers(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring has its name only once its readers can read it, so that none of them is refused."""
    log = make_log()
    named = []
    monkeypatch.setattr("logring.ring.ring.share_file", lambda _fd, path: named.append(os.path.exists(path)))
    log.feed(STDOUT, b"line\n")
    assert named[0] is False
    assert os.path.exists(log.ring_path)


def test_end_of_file_creates_no_ring(make_log: MakeLog) -> None:
    """The ring is created at the first byte of output, not by a read that finds none."""
    log = make_log()
    reading, writing = os.pipe()
    os.close(writing)
    assert log.writer.readv(reading, STDOUT, T0) == 0
    os.close(reading)
    assert not log.writer.blocks.created


def test_lines_have_numbers_times_and_streams(make_log: MakeLog) -> None:
    """Each line has its number, the time of its read and its stream; only the owner can read the ring."""
    log = make_log()
    log.feed(STDOUT, b"one\ntwo\n", T0)
    log.feed(STDERR, b"three\n", T0 + 1)
    log.writer.system_line("four\nfive", T0 + 2)
    log.feed(STDOUT, b"\n", T0 + 2)
    assert log.lines() == [
        Line(0, T0, STDOUT, b"one", continued=False, frames=False),
        Line(1, T0, STDOUT, b"two", continued=False, frames=False),
        Line(2, T0 + 1, STDERR, b"three", continued=False, frames=False),
        Line(3, T0 + 2, SYSTEM, b"four\\nfive", continued=False, frames=False),
        Line(4, T0 + 2, STDOUT, b"", continued=False, frames=False),
    ]
    assert log.reader.head() == Head(5, 0, 0, sealed=False, region_epoch=0)
    assert os.stat(log.ring_path).st_mode & 0o777 == 0o600


def test_same_time_and_stream_share_an_entry(make_log: MakeLog) -> None:
    """Reads of the same stream and millisecond share an entry."""
    log = make_log()
    for _ in range(50):
        log.feed(STDOUT, b"line\n", T0)
    for _ in range(50):
        log.feed(STDOUT, b"line\n", T0 + 1)
    (block,) = log.reader.blocks()
    assert not isinstance(block, Exception)
    assert len(list(block.entries())) == 2


def test_any_bytes_survive(make_log: MakeLog) -> None:
    """NULs, carriage returns, tabs and invalid UTF-8 are stored unchanged."""
    data = bytes(range(256)) * 40 + b"\r\n\0\n\xff\xfe\n"
    log = make_log()
    log.feed(STDOUT, data)
    assert b"".join(log.reader.raw()) == data
    log.finish()
    assert b"".join(log.reader.raw()) == data
    assert texts(log.lines()) == data.split(b"\n")[:-1]


def test_unfinished_lines_are_pending(make_log: MakeLog) -> None:
    """An unfinished line is not a line yet, but is visible from its mirroring until it is finished."""
    log = make_log()
    log.feed(STDOUT, b"done\nhalf", T0)
    log.feed(STDERR, b"err", T0 + 1)
    assert log.reader.pending() == []
    log.writer.mirror_pending()
    assert [tuple(p) for p in log.reader.pending()] == [(STDOUT, b"half", T0), (STDERR, b"err", T0 + 1)]
    assert texts(log.lines()) == [b"done"]
    log.feed(STDOUT, b" and half\nnext", T0 + 2)
    assert [tuple(p) for p in log.reader.pending()] == [(STDERR, b"err", T0 + 1)]
    log.writer.mirror_pending()
    assert [p.text for p in log.reader.pending()] == [b"next", b"err"]
    assert log.lines()[1] == Line(1, T0 + 2, STDOUT, b"half and half", continued=False, frames=False)
    log.finish(T0 + 3)
    assert log.reader.pending() == []
    assert [(line.stream, line.text) for line in log.lines()][2:] == [(STDOUT, b"next"), (STDERR, b"err")]
    assert b"".join(log.reader.raw([STDOUT])) == b"done\nhalf and half\nnext"
    assert b"".join(log.reader.raw([STDERR])) == b"err"


def test_interleaved_partial_lines(make_log: MakeLog) -> None:
    """Lines of two streams that alternate byte by byte stay separate, and are ordered by their ends."""
    log = make_log()
    for first_byte, two in zip(b"aaaa\naaaa\n" * 30, b"bbb\nbbbbb\n" * 30, strict=True):
        log.feed(STDOUT, bytes([first_byte]))
        log.feed(STDERR, bytes([two]))
    assert texts(line for line in log.lines() if line.stream == STDOUT) == [b"aaaa"] * 60
    assert texts(line for line in log.lines() if line.stream == STDERR) == [b"bbb", b"bbbbb"] * 30


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE, 3 * MAX_LINE + 5])
@pytest.mark.parametrize("chunk", [1000, 60000])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_long_lines_are_split(make_log: MakeLog, length: int, chunk: int, end: bytes) -> None:
    """Lines over 16 KiB are split, every part but the first is `continued`, and no byte is lost or added."""
    log = make_log(block_size=65536)
    data = b"before\n" + b"x" * length + end
    for start in range(0, len(data), chunk):
        log.feed(STDOUT, data[start : start + chunk])
    if end:
        log.feed(STDOUT, b"after\n")
        data += b"after\n"
    log.finish()
    lines = log.lines()
    parts = lines[1 : -1 if end else None]
    assert [len(part.text) for part in parts] == [min(MAX_LINE, length - start) for start in range(0, length, MAX_LINE)]
    assert [part.continued for part in parts] == [False] + [True] * (len(parts) - 1)
    assert lines[0].text == b"before"
    assert not lines[-1].continued or not end
    assert b"".join(log.reader.raw()) == data


def test_split_respects_characters(make_log: MakeLog) -> None:
    """A line is split before a character that does not fit, never within it."""
    log = make_log(block_size=65536)
    text = "x" + "😀" * 20000
    log.feed(STDOUT, text.encode() + b"\n")
    lines = log.lines()
    assert len(lines) == 5
    assert "".join(line.text.decode() for line in lines) == text


def test_other_stream_between_parts(make_log: MakeLog) -> None:
    """A line of the other stream between the parts of a long one neither joins nor ends it."""
    log = make_log(block_size=65536)
    log.feed(STDOUT, b"x" * (MAX_LINE + 10))
    log.feed(STDERR, b"err\n")
    log.feed(STDOUT, b"y" * 5 + b"\nz\n")
    assert [(line.stream, len(line.text), line.continued) for line in log.lines()] == [
        (STDOUT, MAX_LINE, False),
        (STDERR, 3, False),
        (STDOUT, 15, True),
        (STDOUT, 1, False),
    ]


def test_clock_set_back(make_log: MakeLog) -> None:
    """If the clock is set back, lines get the new time; times never decrease within a block."""
    log = make_log()
    times = [T0, T0 + 5, T0 + 3, T0 + 3, T0 - 1000, T0, T0 + 2**33]
    for now_ms in times:
        log.feed(STDOUT, b"line\n", now_ms)
    assert [line.ts for line in log.lines()] == times
    assert log.writer.blocks.closed_blocks == 3
    log.finish(T0)
    assert [line.ts for line in log.lines()] == times


def test_appended_lines(make_log: MakeLog) -> None:
    """`append` takes whole lines and parts of any length by the same rules, but not after the seal."""
    log = make_log(block_size=4096, blocks=1, file_blocks=0)
    log.writer.append(STDOUT, b"a" * 10, T0)
    log.writer.append(STDOUT, b"b\n" + b"c\n" * 3000, T0)
    assert log.reader.head().lines == 3001
    assert log.lines()[-1].text == b"c"
    log.finish()
    with pytest.raises(ValueError, match="sealed"):
        log.writer.append(STDOUT, b"late\n", T0)


def test_memory_only_log_drops_the_oldest(make_log: MakeLog) -> None:
    """Without a log file the oldest block is dropped at once, and the remaining blocks are readable."""
    log = make_log(block_size=4096, blocks=2, file_blocks=0, first_line=500)
    for number in range(500, 3000):
        log.writer.append(STDOUT, b"%d\n" % number, T0 + number)
        assert log.writer.writable
    head = log.reader.head()
    assert head.lines == 3000
    assert 500 < head.first_available < 3000
    assert texts(log.lines()) == [b"%d" % number for number in range(head.first_available, 3000)]
    page = log.reader.read(0, 10)
    assert page.skipped == head.first_available
    assert page.lines[0].n == head.first_available


def test_replaced_ring(make_log: MakeLog) -> None:
    """A reader notices that a ring was replaced, as by a restarted process."""
    log = make_log(file_blocks=0)
    log.feed(STDOUT, b"old\n")
    assert texts(log.lines()) == [b"old"]
    successor = RingWriter.new(log.ring_path, "events", RingShape(0), first_line=1)
    successor.append(STDOUT, b"new\n", T0)
    assert log.reader.head().lines == 2
    assert texts(log.lines()) == [b"new"]
    assert log.reader.read(0, 10).skipped == 1
    successor.close()


def test_anchors(make_log: MakeLog) -> None:
    """Anchors count from the start or from the end and stay within the kept lines."""
    log = make_log()
    log.feed(STDOUT, b"x\n" * 100)
    for anchor, line in ((0, 0), (7, 7), (100, 100), (1000, 100), (-1, 99), (-100, 0), (-1000, 0)):
        assert log.reader.resolve(anchor) == line


def test_pages(make_log: MakeLog) -> None:
    """A page has at least one line, at most `limit` lines and `max_bytes` of text, and the next position."""
    log = make_log(block_size=65536)
    log.feed(STDOUT, b"".join(b"%05d\n" % n for n in range(5000)))
    assert texts(log.reader.read(2000, 3).lines) == [b"02000", b"02001", b"02002"]
    page = log.reader.read(4998, 10)
    assert (len(page.lines), page.next) == (2, 5000)
    page = log.reader.read(10, 1000, max_bytes=52)
    assert (len(page.lines), page.next) == (10, 20)
    page = log.reader.read(10, 1000, max_bytes=1)
    assert (len(page.lines), page.next) == (1, 11)
    page = log.reader.read(6000, 10)
    assert (page.lines, page.next, page.skipped) == ([], 6000, 0)
    assert texts(read_all(log.reader, limit=7)) == [b"%05d" % n for n in range(5000)]


def test_small_blocks_have_short_lines() -> None:
    """Lines of small blocks are split earlier, so a block holds several lines of the greatest length."""
    assert max_line(65536) == MAX_LINE
    assert max_line(4096) == 1024
