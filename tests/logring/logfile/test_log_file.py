"""The log file: back-pressure, reuse, sealing, damage, and the move from the ring to the file."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logring.errors import Corrupt, ForeignFile, LogError, NewerFormat
from logring.layout import FILE_BLOCKS_AT, HEADER_SIZE, PAGE, PUBLICATION_AT, STDERR, STDOUT, BlockHeader, RingShape
from logring.logfile import log_file
from logring.logfile.log_file import LogFileWriter
from logring.reader import Line, LogReader
from logring.ring.writer import RingWriter
from tests.logring.support.rings import T0, Log, read_all, texts

MakeLog = Callable[..., Log]


def fill(log: Log, count: int, start: int = 0) -> list[bytes]:
    """Print numbered lines, each at its own millisecond, and return them."""
    lines = [b"line %d" % number for number in range(start, start + count)]
    for number, line in enumerate(lines, start):
        log.feed(STDOUT if number % 3 else STDERR, line + b"\n", T0 + number)
    return lines


def test_slow_disk_stops_reads(make_log: MakeLog) -> None:
    """While no slot is free, `writable` is False and nothing is read; afterwards nothing is lost."""
    log = make_log(blocks=2, block_size=4096)
    lines = log.fill_ring()
    reading = log.pipes[STDOUT][0]
    assert log.writer.blocks.closed_blocks == 2
    with pytest.raises(BlockingIOError):
        log.writer.readv(reading, STDOUT, T0)
    assert log.file is not None
    assert log.file.write_closed() == 2
    assert log.file.write_closed() == 0
    assert log.writer.writable
    log.feed(STDOUT, b"last\n")
    assert texts(log.lines()) == [*lines, b"last"]


def test_system_lines_wait_for_a_slot(make_log: MakeLog) -> None:
    """System lines and the end of streams never block: they wait until a slot is free, also in `finish`."""
    log = make_log(blocks=1, block_size=4096)
    assert log.file is not None
    log.fill_ring()
    before = log.writer.blocks.lines
    log.writer.system_line("one", T0 + 1)
    log.writer.append(STDOUT, b"two", T0 + 2)
    assert log.writer.blocks.lines == before
    assert not log.writer.seal(T0 + 3)
    assert log.writer.final_lines == before + 2
    assert not log.reader.head().sealed
    log.file.finish()
    assert log.writer.blocks.lines == before + 2
    assert log.reader.head().sealed
    assert texts(log.lines())[-2:] == [b"one", b"two"]
    assert log.lines()[-1].ts == T0 + 3


def test_waiting_lines_precede_later_reads(make_log: MakeLog) -> None:
    """Lines that waited for a slot precede lines printed later."""
    log = make_log(blocks=1, block_size=4096)
    assert log.file is not None
    lines = log.fill_ring()
    before = log.writer.blocks.lines
    log.writer.system_line("waits", T0)
    log.file.write_closed()
    log.feed(STDOUT, b"later\n")
    assert texts(log.lines()) == [*lines[:before], b"waits", *lines[before:], b"later"]


def test_half_a_ring_wants_writing(make_log: MakeLog) -> None:
    """`wants_writing` turns true when half of the ring's blocks are closed, and false when they are written."""
    log = make_log(blocks=4, block_size=4096)
    assert log.file is not None
    while log.writer.blocks.closed_blocks < 2:
        assert not log.writer.wants_writing
        log.feed(STDOUT, b"x" * 99 + b"\n")
    assert log.writer.wants_writing
    log.file.write_closed()
    assert not log.writer.wants_writing


@pytest.mark.parametrize("file_blocks", [1, 2, 5])
def test_drop_old(make_log: MakeLog, file_blocks: int) -> None:
    """If the file is full, its oldest block is dropped, and every reader learns which lines are left."""
    log = make_log(blocks=2, block_size=4096, file_blocks=file_blocks)
    lines = fill(log, 2000)
    log.writer.mirror_pending()
    head = log.reader.head()
    assert head.lines == 2000
    assert 0 < head.first_available < 2000
    assert texts(log.lines()) == lines[head.first_available :]
    log.finish(T0 + 2000)
    for reader in (log.reader, log.open_reader()):
        head = reader.head()
        assert head.sealed
        assert texts(read_all(reader)) == lines[head.first_available :]
        page = reader.read(5, 1)
        assert page.skipped == head.first_available - 5
        reader.close()
    assert os.stat(log.log_path).st_size <= PAGE + file_blocks * 4096


def test_small_log_is_small(make_log: MakeLog) -> None:
    """A three-line log occupies 4 KiB + 4 KiB, even if its unfinished block was written before."""
    for early in (False, True):
        log = make_log(block_size=65536)
        for number in range(3):
            log.feed(STDOUT, b"line\n", T0 + number)
        assert log.file is not None
        if early:
            log.file.write_unfinished()
            assert os.stat(log.log_path).st_size == PAGE + 65536
        log.finish(T0 + 3)
        assert os.stat(log.log_path).st_size == 2 * PAGE
        assert os.stat(log.log_path).st_mode & 0o777 == 0o600
        assert os.stat(os.path.dirname(log.log_path)).st_mode & 0o777 == 0o700
        assert not os.path.exists(log.ring_path)
        assert texts(log.lines()) == [b"line"] * 3


def test_last_block_is_packed_afterwards(make_log: MakeLog) -> None:
    """The last block is packed even if it was closed, and written whole, before the log was sealed."""
    log = make_log(block_size=65536)
    log.feed(STDOUT, b"one\n", T0)
    log.writer.append(STDOUT, b"two\n", T0 - 1)  # a clock set back closes a block
    log.writer.append(STDOUT, b"three\n", T0 - 2)
    assert log.file is not None
    assert log.file.write_closed() == 2
    log.finish(T0 - 2)
    assert os.stat(log.log_path).st_size == PAGE + 2 * 65536 + PAGE


@pytest.mark.parametrize("blocks", [1, 2])
def test_no_empty_block_at_the_end(make_log: MakeLog, blocks: int) -> None:
    """A block opened for a read that found nothing does not push an older one out of the file."""
    log = make_log(block_size=4096, blocks=blocks, file_blocks=1)
    log.feed(STDOUT, (b"x" * 699 + b"\n") * 5 + b"y" * 297 + b"\n")
    assert log.writer.blocks.closed_blocks == 1
    assert log.writer.blocks.head_block == 1
    log.finish()
    assert os.stat(log.log_path).st_size == PAGE + 4096
    assert len(log.lines()) == 6


def test_sealed_file_equals_the_ring(make_log: MakeLog) -> None:
    """Lines and raw bytes are the same from the ring, from the file, and for a reader open across the seal."""
    log = make_log()
    fill(log, 1000)
    log.feed(STDERR, b"x" * 5000 + b"\n" + b"no newline", T0 + 1000)
    log.writer.seal(T0 + 1001)
    before, raw = log.lines(), b"".join(log.reader.raw())
    assert log.file is not None
    log.file.finish()
    assert (log.lines(), b"".join(log.reader.raw())) == (before, raw)
    late = log.open_reader()
    assert (read_all(late), b"".join(late.raw())) == (before, raw)
    assert late.head() == log.reader.head()
    for streams in ([STDOUT], [STDERR], []):
        assert b"".join(late.raw(streams)) == b"".join(
            line.text + (b"" if line.text == b"no newline" or len(line.text) == 2048 else b"\n")
            for line in before
            if line.stream in streams
        )
    late.close()


def test_reader_across_the_whole_log(make_log: MakeLog) -> None:
    """A reader opened before the first byte sees every line once, through ring, seal and unlink."""
    log = make_log(blocks=2, block_size=4096)
    seen: list[bytes] = []

    def look() -> None:
        page = log.reader.read(len(seen), 10_000)
        assert page.skipped == 0
        seen.extend(texts(page.lines))

    look()
    lines: list[bytes] = []
    for _ in range(30):
        lines += fill(log, 37, len(lines))
        look()
    log.finish(T0 + len(lines))
    look()
    assert seen == lines
    assert log.reader.head().sealed


def test_newest_lines(make_log: MakeLog) -> None:
    """A reader at the end finds new lines at once, across blocks and wraps; only there does the shortcut apply."""
    log = make_log(blocks=2, block_size=4096)
    end = apart = 0
    for number in range(500):
        log.feed(STDOUT, b"line %d\n" % number * (1 + number % 3), T0 + number)
        newest, lines = log.reader.newest(end, 10, 1000), log.reader.read(end, 10, 1000).lines
        assert len(lines) == 1 + number % 3
        apart += newest is None  # these lines span two blocks
        assert newest in (None, lines)
        assert log.reader.newest(end - 1, 10, 1000) is None
        assert log.reader.newest(end, len(lines) - 1, 1000) is None
        assert log.reader.newest(end, 10, 5) is None
        end += len(lines)
    assert 0 < apart < 20
    log.feed(STDOUT, b"x" * 20_000, T0 + 600)  # its first parts are lines already, which continue
    assert log.reader.head().lines > end
    assert log.reader.newest(end, 10, 1 << 20) is None


def test_reader_that_missed_the_seal(make_log: MakeLog) -> None:
    """A reader that mapped the ring long before its seal and unlink continues in ring and file."""
    log = make_log(blocks=2, block_size=4096)
    lines = fill(log, 10)
    assert len(log.lines()) == 10
    lines += fill(log, 2000, 10)
    log.finish(T0 + 3000)
    assert texts(log.lines()) == lines


def test_unfinished_block_reaches_the_file(make_log: MakeLog) -> None:
    """Lines written each second survive the loss of ring and machine; a changed block is written again."""
    log = make_log()
    assert log.file is not None
    lines = fill(log, 500)
    log.file.write_unfinished()
    reader = LogReader(None, log.log_path)
    assert not reader.head().sealed
    assert texts(read_all(reader)) == lines
    lines += fill(log, 3, 500)
    log.file.write_unfinished()
    assert texts(read_all(reader)) == lines
    before = os.stat(log.log_path).st_mtime_ns
    log.file.write_unfinished()
    assert os.stat(log.log_path).st_mtime_ns == before
    reader.close()


def test_unsealed_file_with_a_torn_block(make_log: MakeLog) -> None:
    """After a machine failure, the last block is cut at the first entry that contradicts its text."""
    log = make_log(block_size=4096)
    assert log.file is not None
    for number in range(20):
        log.feed(STDOUT, b"line %02d\n" % number, T0 + number)
    log.file.write_unfinished()
    with open(log.log_path, "r+b") as file:
        file.seek(FILE_BLOCKS_AT + 64 + 12 * 8 + 3)
        file.write(bytes(100))
    reader = LogReader(None, log.log_path)
    assert texts(read_all(reader)) == [b"line %02d" % number for number in range(12)]
    assert reader.head().lines == 12
    with open(log.log_path, "r+b") as file:
        file.seek(FILE_BLOCKS_AT)
        file.write(bytes(64))
    assert reader.head().lines == 0
    assert reader.read(0, 10).lines == []
    reader.close()


def test_blocks_newer_than_the_state(make_log: MakeLog) -> None:
    """Blocks that reached the disk are read even if the state that describes them did not."""
    log = make_log(blocks=2, block_size=4096)
    assert log.file is not None
    lines = fill(log, 100)
    log.file.write_unfinished()
    for state in (None, b"old"):
        with open(log.log_path, "r+b") as file:
            file.seek(PUBLICATION_AT[0])
            old = file.read(256)
            if state is None:
                file.seek(PUBLICATION_AT[0])
                file.write(bytes(256))
        reader = LogReader(None, log.log_path)
        assert texts(read_all(reader)) == lines
        reader.close()
        with open(log.log_path, "r+b") as file:
            file.seek(PUBLICATION_AT[0])
            file.write(old)


def test_damaged_block(make_log: MakeLog) -> None:
    """A damaged block of a sealed file is an error with the next readable line; everything else is readable."""
    log = make_log(block_size=4096)
    lines = fill(log, 1000)
    log.finish(T0 + 1000)
    whole = list(log.open_reader().blocks())
    with open(log.log_path, "r+b") as file:
        file.seek(FILE_BLOCKS_AT + 2 * 4096 + 500)
        file.write(b"\0" * 8)
    reader = LogReader(None, log.log_path)
    damaged, behind = whole[2], whole[3]
    assert not isinstance(damaged, LogError)
    assert not isinstance(behind, LogError)
    first = damaged.header.first_line
    assert texts(read_all_up_to(reader, first)) == lines[:first]
    with pytest.raises(Corrupt, match="damaged") as caught:
        reader.read(first, 10)
    assert (caught.value.first, caught.value.next) == (first, behind.header.first_line)
    assert texts(read_all(reader, start=caught.value.next)) == lines[caught.value.next :]
    chunks: list[bytes] = []
    with pytest.raises(Corrupt):
        chunks.extend(reader.raw())
    assert b"".join(chunks) == b"".join(line + b"\n" for line in lines[:first])
    reader.close()


def read_all_up_to(reader: LogReader, end: int) -> list[Line]:
    lines: list[Line] = []
    while len(lines) < end:
        lines += reader.read(len(lines), end - len(lines)).lines
    return lines


def test_damaged_header_in_the_middle(make_log: MakeLog) -> None:
    """A block with a damaged header does not prevent the search from finding the others."""
    log = make_log(block_size=4096)
    lines = fill(log, 2000)
    log.finish(T0 + 2000)
    reader = log.open_reader()
    blocks = [block for block in reader.blocks() if not isinstance(block, LogError)]
    reader.close()
    for bad in range(1, len(blocks) - 1):
        with open(log.log_path, "r+b") as file:
            file.seek(FILE_BLOCKS_AT + bad * 4096)
            header = file.read(64)
            file.seek(FILE_BLOCKS_AT + bad * 4096)
            file.write(bytes(64))
        reader = log.open_reader()
        for block in blocks:
            first = block.header.first_line
            if block.header.number == bad:
                with pytest.raises(Corrupt):
                    reader.read(first, 1)
            else:
                assert reader.read(first, 1).lines[0].text == lines[first]
        reader.close()
        with open(log.log_path, "r+b") as file:
            file.seek(FILE_BLOCKS_AT + bad * 4096)
            file.write(header)


def test_truncated_file(make_log: MakeLog) -> None:
    """The present part of a truncated file is readable; the rest is an error."""
    log = make_log(block_size=4096)
    lines = fill(log, 1000)
    log.finish(T0 + 1000)
    os.truncate(log.log_path, FILE_BLOCKS_AT + 3 * 4096 + 100)
    reader = LogReader(None, log.log_path)
    blocks = list(reader.blocks())
    good = [block for block in blocks if not isinstance(block, LogError)]
    assert len(good) == 3
    end = good[-1].header.end_line
    assert texts(reader.read(0, end).lines) == lines[:end]
    with pytest.raises(Corrupt):
        reader.read(end, 1)
    reader.close()


def test_other_files(tmp_path: Path, make_log: MakeLog) -> None:
    """Foreign, newer and truncated files and unknown codecs have their own errors; an empty file is an empty log."""
    path = tmp_path / "x.log"
    reader = LogReader(None, str(path))
    path.write_bytes(b"")
    assert reader.head().lines == 0
    path.write_bytes(b"#!/bin/sh\n" * 1000)
    with pytest.raises(ForeignFile):
        reader.head()
    log = make_log(block_size=4096)
    fill(log, 10)
    log.finish(T0 + 10)
    good = Path(log.log_path).read_bytes()
    path.write_bytes(good[:8] + b"\x63" + good[9:])
    with pytest.raises(NewerFormat):
        reader.head()
    reader.close()
    header = BlockHeader.parse(good, FILE_BLOCKS_AT)
    assert header is not None
    header.codec = 7
    path.write_bytes(good[:FILE_BLOCKS_AT] + header.pack() + good[FILE_BLOCKS_AT + HEADER_SIZE :])
    reader = LogReader(None, str(path))
    with pytest.raises(NewerFormat, match="block 0 has codec 7"):
        reader.read(0, 10)
    reader.close()
    path.write_bytes(good[:1000])
    reader = LogReader(None, str(path))
    assert isinstance(next(reader.blocks()), Corrupt)
    reader.close()


def test_file_of_zeros(tmp_path: Path) -> None:
    """A file of only zeros, left by a machine that died just after its creation, is an empty log."""
    path = tmp_path / "a.log"
    path.write_bytes(bytes(FILE_BLOCKS_AT + PAGE))
    reader = LogReader(None, str(path))
    assert reader.head().lines == 0
    assert reader.read(0, 10).lines == []
    reader.close()


def test_full_disk(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is an error code; once there is room, the same call succeeds and nothing is lost."""
    log = make_log(blocks=4, block_size=4096)
    assert log.file is not None
    room = [10_000]

    def pwritev(fd: int, parts: list[bytes], at: int) -> int:
        data = b"".join(parts)
        if at >= PAGE:
            data = data[: room[0]]
            room[0] -= len(data)
            if not data:
                raise OSError(errno.ENOSPC, "no space left")
        return os.pwrite(fd, data, at)

    lines = log.fill_ring()
    with monkeypatch.context() as patch:
        patch.setattr(log_file, "pwritev", pwritev)
        for _ in range(3):
            with pytest.raises(OSError, match="no space"):
                log.file.write_closed()
        assert log.writer.blocks.written_blocks == 2
        assert log.writer.writable
    log.feed(STDOUT, b"last\n")
    log.finish()
    assert texts(log.lines()) == [*lines, b"last"]


@pytest.mark.parametrize("place", ["there", "there/below"])
def test_dangling_link(tmp_path: Path, place: str) -> None:
    """A dangling link in the path of the file is an error until its target exists."""
    (tmp_path / "there").symlink_to(tmp_path / "elsewhere")
    writer = RingWriter.new(str(tmp_path / "ring"), "run", RingShape(8))
    file = LogFileWriter(str(tmp_path / place / "file"), writer, 8)
    writer.append(STDOUT, b"hello\n", T0)
    writer.seal(T0)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            file.finish()
    (tmp_path / "elsewhere").mkdir()
    file.finish()
    writer.close()
    reader = LogReader(None, str(tmp_path / place / "file"))
    assert texts(read_all(reader)) == [b"hello"]
    reader.close()


def test_short_writes_are_completed(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial write is continued where it ended."""
    log = make_log(block_size=4096)
    lines = fill(log, 500)

    def pwritev(fd: int, parts: list[bytes], at: int) -> int:
        return os.pwrite(fd, b"".join(parts)[:1000], at)

    monkeypatch.setattr(log_file, "pwritev", pwritev)
    log.finish(T0 + 500)
    reader = log.open_reader()
    assert texts(read_all(reader)) == lines
    reader.close()


def test_finish_needs_a_seal(make_log: MakeLog) -> None:
    """The file of a log that is not sealed cannot be finished."""
    log = make_log()
    fill(log, 3)
    assert log.file is not None
    with pytest.raises(ValueError, match="must not be sealed"):
        log.file.finish()


def test_page_size_in_bytes(make_log: MakeLog) -> None:
    """A page keeps its limit of bytes even if it spans blocks; only its first line may exceed it."""
    log = make_log(block_size=8192)
    log.feed(STDOUT, b"".join(b"%02000d\n" % number for number in range(40)))
    for start in range(40):
        for size, count in ((1, 1), (1999, 1), (2000, 1), (3999, 1), (4000, 2), (5000, 2), (9000, 4)):
            assert len(log.reader.read(start, 10, size).lines) == min(count, 40 - start)


def test_block_with_impossible_lines(make_log: MakeLog) -> None:
    """A block with line numbers that the log has not reached is damaged, even if its crc is right."""
    log = make_log()
    log.feed(STDOUT, b"".join(b"%06d\n" % number for number in range(5000)))
    log.finish()
    with open(log.log_path, "r+b") as file:
        file.seek(FILE_BLOCKS_AT + 8192)
        header = BlockHeader.parse(file.read(HEADER_SIZE))
        assert header is not None
        first, end = header.first_line, header.end_line
        header.first_line = 1 << 31
        file.seek(FILE_BLOCKS_AT + 8192)
        file.write(header.pack())
    reader = log.open_reader()
    assert len(reader.read(0, 10_000).lines) == first
    with pytest.raises(Corrupt) as caught:
        reader.read(first, 10)
    assert caught.value.next == end
    assert len(reader.read(end, 10_000).lines) == 5000 - end
    reader.close()


@pytest.mark.parametrize("how", ["removed", "moved"])
@pytest.mark.parametrize("then", ["written", "finished"])
def test_removed_or_moved_file(make_log: MakeLog, tmp_path: Path, how: str, then: str) -> None:
    """A log file that is removed or moved away is made again, whole, at the next write or at the end."""
    log = make_log(blocks=2, block_size=4096)
    lines = log.fill_ring()
    assert log.file is not None
    log.file.write_closed()
    log.file.write_unfinished()
    path = Path(log.log_path)
    if how == "removed":
        path.unlink()
    else:
        path.rename(tmp_path / "elsewhere")
    if then == "written":
        log.feed(STDOUT, b"last\n")
        lines.append(b"last")
        log.file.write_unfinished()
        assert log.file.made_again
    log.finish()
    assert path.stat().st_mode & 0o777 == 0o600
    assert texts(log.lines()) == lines
