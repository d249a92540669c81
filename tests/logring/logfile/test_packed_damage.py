"""Damage to a packed log file costs only the lines of the damaged blocks."""

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import pytest

from logring.errors import Corrupt, ForeignFile, LogError, NewerFormat
from logring.layout import (
    CODEC_LOST,
    HEADER_SIZE,
    INDEX_RECORD_AT,
    PACKED_BLOCKS_AT,
    STATIC_SIZE,
    STDERR,
    STDOUT,
    BlockHeader,
)
from logring.logfile import zstd
from logring.logfile.compress import compress
from logring.logfile.open_log import open_log_file
from logring.logfile.packed_file import Index
from logring.reader import Line, LogReader
from tests.logring.logfile.test_packed_file import damage, walked
from tests.logring.support.rings import T0, Log, read_all

MakeLog = Callable[..., Log]
OF_FRAMES = 8
"""Within a frame, only one of so many bytes is tried, because its checksum covers the whole frame."""


def small_packed(make_log: MakeLog) -> tuple[str, list[Line], list[range]]:
    """A packed log of a few blocks: its path, its lines, and the lines of each block."""
    log = make_log(block_size=4096)
    for number in range(450):
        log.feed(STDERR if number % 5 == 0 else STDOUT, b"line %d of all\n" % number, T0 + number // 10)
    log.finish(T0 + 100)
    assert compress(log.log_path)
    reader = LogReader(None, log.log_path)
    lines = read_all(reader)
    blocks = []
    for block in reader.blocks():
        assert not isinstance(block, LogError)
        blocks.append(range(block.header.first_line, block.header.end_line))
    reader.close()
    assert len(blocks) > 2
    return log.log_path, lines, blocks


def readable(path: str) -> dict[int, Line] | None:
    """Return the readable lines, or None if reading the log raises a documented error."""
    reader = LogReader(None, path)
    try:
        return walked(reader, reader.head())[0]
    except LogError:
        return None
    finally:
        reader.close()


def relevant_offsets(good: bytes, edges: Sequence[int]) -> list[int]:
    """Return all offsets except most of those inside frames."""
    near = {edge + step for edge in edges for step in range(-HEADER_SIZE, HEADER_SIZE)}
    return [at for at in range(1, len(good)) if at < PACKED_BLOCKS_AT or at in near or at % OF_FRAMES == 0]


def test_every_flipped_byte(make_log: MakeLog) -> None:
    """A flipped byte costs only its own block; in the index or one of the states it costs nothing."""
    path, lines, blocks = small_packed(make_log)
    good = Path(path).read_bytes()
    index = Index.parse(good[INDEX_RECORD_AT:])
    assert index is not None
    (*offsets,) = struct.unpack_from(f"<{index.blocks + 1}Q", good, index.at)
    for at in (0, *relevant_offsets(good, offsets)):
        Path(path).write_bytes(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :])
        lost: range | list[int] = []
        for number in range(index.blocks):
            if offsets[number] <= at < offsets[number + 1]:
                lost = blocks[number]
        read_limit = readable(path)
        if read_limit is None:
            assert at < STATIC_SIZE
        else:
            intact_lines = {line.n: line for line in lines if line.n not in lost}
            assert read_limit in (intact_lines, {line.n: line for line in lines})  # some bits of a frame are unused


def test_every_truncation(make_log: MakeLog) -> None:
    """Truncation loses the cut block and all later ones; the rest is readable."""
    path, lines, blocks = small_packed(make_log)
    good = Path(path).read_bytes()
    index = Index.parse(good[INDEX_RECORD_AT:])
    assert index is not None
    (*offsets,) = struct.unpack_from(f"<{index.blocks + 1}Q", good, index.at)
    for length in reversed(relevant_offsets(good, offsets)):
        os.truncate(path, length)
        whole = sum(end <= length for end in offsets[1:])
        read_limit = readable(path)
        if read_limit is None:
            assert length < INDEX_RECORD_AT
        else:
            assert read_limit == {line.n: line for line in lines if any(line.n in block for block in blocks[:whole])}


def test_index_and_header_damaged(make_log: MakeLog) -> None:
    """Without the index, the blocks after a damaged header are still found."""
    path, lines, blocks = small_packed(make_log)
    good = Path(path).read_bytes()
    index = Index.parse(good[INDEX_RECORD_AT:])
    assert index is not None
    (*offsets,) = struct.unpack_from(f"<{index.blocks + 1}Q", good, index.at)
    for number, block in enumerate(blocks):
        for record in (INDEX_RECORD_AT + 9, index.at + 8 * number + 1):
            Path(path).write_bytes(good)
            damage(path, record, b"\xee")
            damage(path, offsets[number] + 9, b"\xee")
            assert readable(path) == {line.n: line for line in lines if line.n not in block}


def repaired_header(data: bytes, **fields: int) -> bytes:
    header = BlockHeader.parse(data)
    assert header is not None
    for name, value in fields.items():
        setattr(header, name, value)
    return header.pack()


def test_hostile_lengths(make_log: MakeLog) -> None:
    """A stored length or a frame cannot determine the memory used; such a block is damaged."""
    path, _, blocks = small_packed(make_log)
    good = Path(path).read_bytes()
    header = good[PACKED_BLOCKS_AT : PACKED_BLOCKS_AT + HEADER_SIZE]
    bomb = zstd.pack(bytes(1 << 30), 1)
    wide = b"\x28\xb5\x2f\xfd\x00\x88\x09\x00\x00x"  # a window of 128 MiB for one byte
    frames = [bomb, wide, b"\x50\x2a\x4d\x18" + struct.pack("<I", 2**32 - 1)]
    wrong = [
        repaired_header(header, stored=2**32 - 1),
        repaired_header(header, extent=2**31),
        repaired_header(header, codec=0, stored=5),
        repaired_header(header, codec=CODEC_LOST),
        *(repaired_header(header, stored=len(frame)) + frame for frame in frames[1:]),
    ]
    for data in wrong:
        Path(path).write_bytes(good)
        damage(path, PACKED_BLOCKS_AT, data)
        read_limit = readable(path)
        assert read_limit is not None
        assert not read_limit.keys() & set(blocks[0])
    length = 1 << 16
    assert zstd.unpack(bomb, length) in (None, bytes(length))
    assert zstd.unpack(wide, 1) is None


def test_newer_and_foreign(make_log: MakeLog) -> None:
    """A codec of a later release, a newer version and another kind are not reported as damage."""
    path, _, _ = small_packed(make_log)
    good = Path(path).read_bytes()
    header = good[PACKED_BLOCKS_AT : PACKED_BLOCKS_AT + HEADER_SIZE]
    damage(path, PACKED_BLOCKS_AT, repaired_header(header, codec=7))
    reader = LogReader(None, path)
    with pytest.raises(NewerFormat):
        reader.read(0, 10)
    reader.close()
    Path(path).write_bytes(good[:8] + b"\x02" + good[9:])
    with pytest.raises(NewerFormat):
        LogReader(None, path).head()
    static = bytearray(good[:STATIC_SIZE])
    static[10] = 9
    static[STATIC_SIZE - 4 :] = crc32(static[: STATIC_SIZE - 4]).to_bytes(4, "little")
    Path(path).write_bytes(static + good[STATIC_SIZE:])
    with pytest.raises(ForeignFile):
        open_log_file(path)


def test_unsealed_state_is_damage(make_log: MakeLog) -> None:
    """A packed file without the state of a sealed log is damaged, and nothing is guessed."""
    path, _, _ = small_packed(make_log)
    damage(path, STATIC_SIZE, bytes(256))
    with pytest.raises(Corrupt, match="state"):
        LogReader(None, path).head()
