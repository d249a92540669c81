"""The live region of the ring, which shows the line that is being drawn."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from logring.layout import (
    PREFIX,
    REGION_AT,
    REGION_BODY,
    REGION_SIZE,
    REGION_TEXT_AT,
    REGION_TEXT_SIZE,
    RING_BLOCKS_AT,
    STDERR,
    STDOUT,
)
from logring.reader import LiveRegion, LogReader, UnfinishedLine
from logring.redraw.redraw_writer import Drawing
from logring.ring.live_region import Rows, last_rows, pack_region
from tests.logring.ring.test_shared_memory_is_short import Memory, touched_pages
from tests.logring.support.rings import T0, Log
from tests.support.paths import ROOT
from tests.support.waiting import until

MakeLog = Callable[..., Log]
NOTHING: Rows = ((), 0)


def drawing_log(make_log: MakeLog) -> Log:
    log = make_log()
    log.writer.redraw(STDOUT, full=False)
    log.writer.redraw(STDERR, full=False)
    return log


def test_region_of_a_progress_bar(make_log: MakeLog) -> None:
    """Each mirroring updates the region and its epoch, and the region vanishes when the line settles."""
    log = drawing_log(make_log)
    assert log.reader.region() == []
    log.feed(STDOUT, b"begin\n10%\r20%", T0)
    assert log.reader.region() == []
    log.writer.mirror_pending()
    (first,) = log.reader.region()
    assert first == LiveRegion(STDOUT, log.reader.head().region_epoch, (b"20%",), T0)
    log.feed(STDOUT, b"\r30%", T0 + 5)
    log.writer.mirror_pending()
    (second,) = log.reader.region()
    assert second == LiveRegion(STDOUT, log.reader.head().region_epoch, (b"30%",), T0 + 5)
    assert second.epoch != first.epoch
    assert log.reader.pending() == [UnfinishedLine(STDOUT, b"30%", T0 + 5)]
    log.feed(STDOUT, b"\nnext", T0 + 6)
    log.writer.mirror_pending()
    assert log.reader.region() == []
    assert log.reader.head().region_epoch != second.epoch
    assert log.reader.pending() == [UnfinishedLine(STDOUT, b"next", T0 + 6)]


def test_unchanged_region_keeps_its_epoch(make_log: MakeLog) -> None:
    """A redraw without a change wakes no reader."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"10%\r20%")
    log.writer.mirror_pending()
    head = log.reader.head()
    log.feed(STDOUT, b"\r20%", T0 + 9)
    log.writer.mirror_pending()
    assert log.reader.head() == head


def test_both_streams_draw(make_log: MakeLog) -> None:
    """Each stream has its own region and time, and one may end before the other."""
    log = drawing_log(make_log)
    log.feed(STDERR, b"a\rbb", T0)
    log.feed(STDOUT, b"c\rdd", T0 + 1)
    log.writer.mirror_pending()
    assert [(region.stream, region.rows, region.ts) for region in log.reader.region()] == [
        (STDOUT, (b"dd",), T0 + 1),
        (STDERR, (b"bb",), T0),
    ]
    log.feed(STDOUT, b"\n", T0 + 2)
    log.writer.mirror_pending()
    assert [(region.stream, region.rows) for region in log.reader.region()] == [(STDERR, (b"bb",))]


def test_sealed_log_has_no_region(make_log: MakeLog) -> None:
    """After the end, neither an open reader nor a later one sees a region."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"10%\r20%")
    log.writer.mirror_pending()
    assert log.reader.region()
    log.finish()
    assert log.reader.region() == []
    late = log.open_reader()
    assert late.region() == []
    late.close()


def test_several_rows(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region keeps all rows, including empty ones at either end."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"10%\r20%")
    for rows in ((b"", b"x", b""), (b"",), tuple(b"%d" % number for number in range(300))):
        monkeypatch.setattr(Drawing, "rows", rows)
        log.feed(STDOUT, b"\r30%")
        log.writer.mirror_pending()
        assert log.reader.region()[0].rows == rows


@pytest.mark.parametrize(
    ("rows", "room", "last"),
    [
        ((), 5, ()),
        ((b"",), 0, (b"",)),
        ((b"ab", b"cd"), 5, (b"ab", b"cd")),
        ((b"ab", b"cd"), 4, (b"cd",)),
        ((b"", b"cd"), 2, (b"cd",)),
        ((b"", b"cd"), 3, (b"", b"cd")),
        ((b"ab", b"abcdef"), 4, (b"abcd",)),
        (("ab€".encode(),), 4, (b"ab",)),
    ],
)
def test_rows_without_room(rows: tuple[bytes, ...], room: int, last: tuple[bytes, ...]) -> None:
    """If rows do not fit, the topmost are dropped first, and the lowest is cut between characters."""
    assert last_rows(rows, room) == last


def test_region_stays_in_its_half() -> None:
    """The text of a region fits its half of the slot, whatever one or both streams draw."""
    wide: Rows = (tuple(b"%d" % number + b"x" * 500 for number in range(100)), T0)
    for out, err in ((wide, NOTHING), (NOTHING, wide), (wide, wide), (wide, ((b"y" * 99999,), T0))):
        _, text = pack_region(1, out, err)
        assert REGION_TEXT_SIZE * 0.9 < len(text) <= REGION_TEXT_SIZE


def test_region_allocates_its_pages(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of the slot are allocated before they are touched, and only if there is a region."""
    memory = Memory(monkeypatch, 1_000_000)
    log = drawing_log(make_log)
    log.feed(STDOUT, b"plain\n")
    log.writer.mirror_pending()
    assert "region" not in memory.steps
    touched = {at // 4096 for at in range(REGION_TEXT_AT[0], RING_BLOCKS_AT)}
    for size in (1, 5000, 14000, 99999):
        monkeypatch.setattr(Drawing, "rows", (b"x" * size,))
        for _ in range(2):
            log.feed(STDOUT, b"1\r2")
            log.writer.mirror_pending()
            monkeypatch.setattr(Drawing, "rows", (b"y" * size,))
    assert touched <= memory.have
    assert memory.touched_early == set()
    assert touched <= touched_pages(log.ring_path) <= memory.have


def test_region_without_memory(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory there is no region and no error, and lines settle as usual."""
    Memory(monkeypatch, 1_000_000, fails=("region",))
    log = drawing_log(make_log)
    log.feed(STDOUT, b"10%\r20%")
    log.writer.mirror_pending()
    assert log.reader.region() == []
    assert log.reader.pending() == [UnfinishedLine(STDOUT, b"20%", T0)]
    log.feed(STDOUT, b"\r30%\n")
    assert [line.text for line in log.lines()] == [b"30%"]


def test_unfinished_publication(make_log: MakeLog) -> None:
    """If a writer dies during a publication of the region, the previous one is left."""
    log = drawing_log(make_log)
    for text in (b"1\rone", b"\rtwo"):
        log.feed(STDOUT, text)
        log.writer.mirror_pending()
    (shown,) = log.reader.region()
    mm = log.writer.blocks.ring.mm
    copy = shown.epoch & 1
    mm[REGION_TEXT_AT[copy]] ^= 1
    assert [region.rows for region in log.reader.region()] == [(b"one",)]
    mm[REGION_AT[1 - copy]] ^= 1
    assert log.reader.region() == []


def test_impossible_lengths(make_log: MakeLog) -> None:
    """A header with impossible lengths is ignored, whatever its crc says, so nothing beyond the slot is read."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"1\rone")
    log.writer.mirror_pending()
    mm = log.writer.blocks.ring.mm
    for at in REGION_AT:
        body = REGION_BODY.pack(0, 65535, 1, 65535, 1, T0, T0)
        mm[at : at + REGION_SIZE] = PREFIX.pack(5, crc32(body, 5)) + body
    assert log.reader.region() == []


_WRITER = """
import itertools, os, sys
from logring.layout import RingShape
from logring.ring.writer import RingWriter
writer = RingWriter.new(sys.argv[1], "01ARZ3NDEKTSV4RRFFQ69G5FAV", RingShape(1))
writer.append(0, b"first\\n", 1)
for number in itertools.count(1):
    if number % 1000 == 0 and number >= 40_000 and os.path.exists(sys.argv[2]):
        break
    row = b"%d," % number * (number % 300 + 1)
    epoch = writer.blocks.ring.write_region(((row, row), number), ((row,), number))
    assert epoch == number
    writer.blocks.region_epoch = epoch
    writer.blocks.publish()
writer.seal(2)
"""


def test_reader_beside_a_writer_at_full_speed(tmp_path: Path) -> None:
    """Each read is consistent, and never older than the previous one."""
    path, enough = str(tmp_path / "r.ring"), tmp_path / "enough"
    with subprocess.Popen([sys.executable, "-c", _WRITER, path, enough], cwd=ROOT) as child:
        reader = LogReader(path, None)
        newest = seen = 0

        def read_on() -> bool:
            nonlocal newest, seen
            for _ in range(100):
                head = reader.head()
                regions = reader.region()
                if head.sealed:
                    return True
                if seen > 1:
                    enough.touch()
                if regions:
                    out, err = regions
                    assert out.epoch == err.epoch >= max(newest, head.region_epoch)
                    if newest < out.epoch:
                        seen += 1
                    newest = out.epoch
                    row = b"%d," % newest * (newest % 300 + 1)
                    assert (out.rows, err.rows, out.ts) == ((row, row), (row,), newest)
            return False

        try:
            until(read_on, "the sealed log")
            assert child.wait() == 0
            assert seen > 1
        finally:
            child.kill()
        reader.close()
