"""The sidecar with frames of redrawn lines is bounded and robust, and never delays lines."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logring.errors import Corrupt, ForeignFile, LogError, NewerFormat
from logring.layout import STDOUT
from logring.log_paths import frames_path
from logring.redraw import history_file
from logring.redraw.history_file import FramesWriter
from logring.redraw.history_format import (
    BLOCK_SIZE,
    BLOCKS_AT,
    HEADER_SIZE,
    Frames,
    blocks_beside,
    pack_header,
    pack_record,
    read_frames,
)
from logring.redraw.redraw_writer import FrameQueue
from tests.logring.support.rings import T0, Log

MakeLog = Callable[..., Log]
RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "logs" / "run.log.frames")


@pytest.fixture
def sidecar(path: str) -> Iterator[tuple[FrameQueue, FramesWriter]]:
    """The queue and the writer of the smallest sidecar, of two blocks."""
    queue = FrameQueue()
    writer = FramesWriter(path, RUN, queue, 1)
    yield queue, writer
    writer.close()


def frames_of(line: int, size: int = 40) -> Frames:
    return tuple((b"%d/%d" % (number, line), b"x" * size, b"") for number in range(1 + line % 5))


def as_lists(frames: Frames) -> list[list[bytes]]:
    return [list(rows) for rows in frames]


def test_sidecar_path() -> None:
    """The path of the sidecar is that of the log with a suffix."""
    assert frames_path("/data/logs/x/1.log") == "/data/logs/x/1.log.frames"


@pytest.mark.parametrize(("log_bytes", "blocks"), [(0, 2), (512 << 10, 2), (100 << 20, 400), (1 << 40, 512)])
def test_capacity(log_bytes: int, blocks: int) -> None:
    """The capacity is an eighth of the log's, within 64 KiB and 16 MiB."""
    assert blocks_beside(log_bytes) == blocks


def test_no_frames_no_file(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> None:
    """A log without redrawn lines has no sidecar, and a reader finds no frames."""
    sidecar[1].write()
    assert not os.path.exists(path)
    assert read_frames(path, 0) == []


def test_frames_of_lines(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> None:
    """Each redrawn line has its rows, including empty ones, oldest frame first; other lines have none."""
    queue, writer = sidecar
    for line in (3, 4, 90):
        queue.add(line, frames_of(line))
    writer.write()
    queue.add(1 << 40, frames_of(7))
    writer.write()
    for line in (3, 4, 90):
        assert read_frames(path, line) == as_lists(frames_of(line))
    assert read_frames(path, 1 << 40) == as_lists(frames_of(7))
    for line in (0, 5, 91, (1 << 40) + 1, (1 << 63) - 1):
        assert read_frames(path, line) == []
    assert os.stat(path).st_mode & 0o777 == 0o600


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.lists(st.lists(st.binary(max_size=300), max_size=4).map(tuple), min_size=1, max_size=6).map(tuple),
        max_size=90,
    ),
    batch=st.integers(1, 20),
)
def test_any_frames(tmp_path_factory: pytest.TempPathFactory, lines: list[Frames], batch: int) -> None:
    """All entries are right, the newest are present, and the file never exceeds its capacity."""
    path = str(tmp_path_factory.mktemp("frames") / "f")
    queue = FrameQueue()
    writer = FramesWriter(path, RUN, queue, 1)
    for number, frames in enumerate(lines):
        queue.add(number, frames)
        if number % batch == 0:
            writer.write()
    writer.write()
    writer.close()
    histories = [read_frames(path, number) for number in range(len(lines))]
    histories_kept = [history for history in histories if history]
    assert histories_kept == [as_lists(frames) for frames in lines[len(lines) - len(histories_kept) :]]
    if lines:
        assert histories_kept
        assert os.stat(path).st_size <= BLOCKS_AT + 2 * BLOCK_SIZE


def test_oldest_frames_are_dropped_first(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> None:
    """If the file is full, the block with the oldest frames is dropped."""
    queue, writer = sidecar
    for line in range(1000):
        queue.add(line, frames_of(line, 400))
        writer.write()
    assert os.stat(path).st_size <= BLOCKS_AT + 2 * BLOCK_SIZE
    there = [line for line in range(1000) if read_frames(path, line)]
    assert there == list(range(there[0], 1000))
    assert len(there) > 20


def test_history_after_a_restart(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> None:
    """A later writer of the same run keeps the existing entries and appends."""
    queue, writer = sidecar
    queue.add(1, frames_of(1))
    writer.write()
    writer.close()
    later = FramesWriter(path, RUN, queue, 1)
    queue.add(2, frames_of(2))
    later.write()
    later.close()
    assert read_frames(path, 1) == as_lists(frames_of(1))
    assert read_frames(path, 2) == as_lists(frames_of(2))
    other = FramesWriter(path, RUN[::-1], queue, 1)
    queue.add(3, frames_of(3))
    other.write()
    other.close()
    assert [read_frames(path, line) for line in (1, 2)] == [[], []]
    assert read_frames(path, 3) == as_lists(frames_of(3))


@pytest.mark.parametrize("short", [False, True])
def test_full_disk_costs_only_history(
    sidecar: tuple[FrameQueue, FramesWriter], path: str, monkeypatch: pytest.MonkeyPatch, *, short: bool
) -> None:
    """An entry that cannot be written whole is dropped, and later entries are written."""
    queue, writer = sidecar
    queue.add(1, frames_of(1))
    writer.write()

    def full(fd: int, data: bytes, at: int) -> int:
        if short and len(data) > 20:
            return os.pwrite(fd, data[:20], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(history_file, "pwrite", full)
        queue.add(2, frames_of(2))
        with pytest.raises(OSError, match="No space"):
            writer.write()
    queue.add(3, frames_of(3))
    writer.write()
    histories = [read_frames(path, line) for line in (1, 2, 3)]
    assert histories == [as_lists(frames_of(1)), [], as_lists(frames_of(3))]


def written(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> bytes:
    queue, writer = sidecar
    for line in range(8):
        queue.add(line, frames_of(line))
    writer.write()
    return Path(path).read_bytes()


def test_every_truncation(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> None:
    """Only whole entries of a truncated file are read."""
    whole = written(sidecar, path)
    for size in (*range(HEADER_SIZE + 1), *range(BLOCKS_AT - 1, len(whole), 7)):
        Path(path).write_bytes(whole[:size])
        histories = [read_frames(path, line) for line in range(8)]
        there = sum(map(bool, histories))
        assert histories == [as_lists(frames_of(line)) for line in range(there)] + [[]] * (8 - there)
        assert there < 8


def test_every_flipped_byte(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> None:
    """A damaged record ends its block, a damaged header the file; no false frame is ever read."""
    whole = written(sidecar, path)
    for at in (*range(HEADER_SIZE), *range(BLOCKS_AT, len(whole))):
        broken = bytearray(whole)
        broken[at] ^= 0x41
        Path(path).write_bytes(broken)
        try:
            histories = [read_frames(path, line) for line in range(8)]
        except LogError:
            assert at < HEADER_SIZE
            continue
        assert at >= BLOCKS_AT
        there = sum(map(bool, histories))
        assert histories == [as_lists(frames_of(line)) for line in range(there)] + [[]] * (8 - there)
        assert there < 8


def test_impossible_counts(sidecar: tuple[FrameQueue, FramesWriter], path: str) -> None:
    """Counts beyond the record are ignored, whatever its crc says."""
    whole = bytearray(written(sidecar, path))
    record = pack_record(0, 0, ((b"abcd",),))
    for position in (16, 20):
        forged = bytearray(record)
        forged[position : position + 4] = b"\xff" * 4
        forged[:4] = crc32(bytes(forged[4:]), 0).to_bytes(4, "little")
        whole[BLOCKS_AT + 24 : BLOCKS_AT + 24 + len(forged)] = forged
        Path(path).write_bytes(whole)
        assert read_frames(path, 0) == []


def test_foreign_newer_and_damaged(path: str) -> None:
    """Foreign files, newer formats and damage are distinguished."""
    os.makedirs(os.path.dirname(path))
    header = pack_header(RUN.encode(), 2)
    for data, error in (
        (b"#!/bin/sh\n" * 99, ForeignFile),
        (header[:8] + b"\x09" + header[9:], NewerFormat),
        (header[:20] + b"x" + header[21:], Corrupt),
    ):
        Path(path).write_bytes(data)
        with pytest.raises(error):
            read_frames(path, 0)
    Path(path).write_bytes(header)
    assert read_frames(path, 0) == []


def test_history_of_a_line(make_log: MakeLog) -> None:
    """Redrawn lines have frames during and after writing, other lines have none, and missing lines have None."""
    log = make_log(file_blocks=2, block_size=4096, blocks=2)
    log.writer.redraw(STDOUT, full=False)
    sidecar = FramesWriter(frames_path(log.log_path), RUN, log.writer.blocks.frames, 8192)
    log.feed(STDOUT, b"plain\n10%\r50%\r90%\n", T0)
    assert log.reader.history(0) == []
    assert log.reader.history(1) == []  # not written yet
    assert log.lines()[1].frames == 3
    sidecar.write()
    assert log.reader.history(1) == [[b"10%"], [b"50%"], [b"90%"]]
    assert [log.reader.history(n) for n in (-1, 2, 1 << 62)] == [None, None, None]
    log.finish()
    sidecar.close()
    log.reader.close()
    assert log.reader.history(1) == [[b"10%"], [b"50%"], [b"90%"]]
    assert log.lines()[1].frames == 3
    os.unlink(frames_path(log.log_path))
    assert log.reader.history(1) == []


def test_history_of_a_dropped_line(make_log: MakeLog) -> None:
    """A dropped line has no history, even if frames of it are left."""
    log = make_log(file_blocks=2, block_size=4096, blocks=2)
    log.writer.redraw(STDOUT, full=False)
    sidecar = FramesWriter(frames_path(log.log_path), RUN, log.writer.blocks.frames, 8192)
    log.feed(STDOUT, b"10%\r50%\n")
    sidecar.write()
    assert log.reader.history(0) == [[b"10%"], [b"50%"]]
    log.feed(STDOUT, b"%0100d\n" % 0 * 500)
    assert log.file is not None
    log.file.write_closed()
    log.writer.complete_waiting()
    assert log.reader.head().first_available > 0
    assert log.reader.history(0) is None
    sidecar.close()
