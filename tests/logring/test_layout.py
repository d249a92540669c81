"""The format: packed values survive parsing, and damage is noticed."""

import struct

import pytest

from logring.errors import Corrupt, ForeignFile, NewerFormat
from logring.layout import (
    KIND_FILE,
    KIND_RING,
    MAGIC,
    PUBLICATION_SIZE,
    STATIC_SIZE,
    BlockHeader,
    Publication,
    State,
    Static,
    newer,
    pack_pending,
    parse_pending,
)


def make_static() -> Static:
    return Static(
        kind=KIND_RING,
        block_size=65536,
        ring_blocks=8,
        file_blocks=1600,
        writer_pid=4711,
        first_line=7,
        created_ms=1_700_000_000_123,
        run_id=b"01ARZ3NDEKTSV4RRFFQ69G5FAV",
        boot_id=bytes(range(16)),
    )


def make_publication(seq: int, lines: int = 10) -> Publication:
    state = State((3, lines, 1, 2, 3000, 4000, 8, 1, 0, 9))
    header = BlockHeader(seq, *(3, 6, 4, 200, 1, 7, 65536, 1_700_000_000_000, 5, 1, 2, 0, 1, 0, 0))
    return Publication(seq, state, header)


def test_static_part_round_trip() -> None:
    """The static part has 256 bytes and is parsed to the packed values."""
    packed = make_static().pack()
    assert len(packed) == STATIC_SIZE
    parsed = Static.parse(packed, "x")
    assert all(getattr(parsed, name) == getattr(make_static(), name) for name in Static._fields)


def test_static_part_damage() -> None:
    """A foreign file, a newer format, a damaged page and the wrong kind are distinguished."""
    packed = make_static().pack()
    with pytest.raises(ForeignFile):
        Static.parse(b"\x7fELF" + packed[4:], "x")
    with pytest.raises(NewerFormat):
        Static.parse(MAGIC + struct.pack("<H", 2) + packed[10:], "x")
    with pytest.raises(Corrupt):
        Static.parse(packed[:100], "x")
    with pytest.raises(Corrupt):
        Static.parse(packed[:40] + b"?" + packed[41:], "x")
    with pytest.raises(ForeignFile):
        Static.parse(packed, "x", KIND_FILE)


def test_publication_round_trip() -> None:
    """A publication has 128 bytes and is parsed to the packed values; any changed byte makes it invalid."""
    packed = make_publication(5).pack()
    assert len(packed) == PUBLICATION_SIZE
    parsed = Publication.parse(packed, 0)
    assert parsed is not None
    assert parsed.pack() == packed
    assert (parsed.state.lines, parsed.state.bytes, parsed.state.sealed) == (10, (3000, 4000), True)
    for at in range(len(packed)):
        assert Publication.parse(packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :], 0) is None


@pytest.mark.parametrize(("older", "later"), [(1, 2), (2, 3), (0xFFFFFFFF, 0), (0xFFFFFFFE, 0xFFFFFFFF)])
def test_newer_copy_counts(older: int, later: int) -> None:
    """The newer valid copy of two counts, whatever their order and even if numbers wrap."""
    old, new = make_publication(older, 10).pack(), make_publication(later, 11).pack()
    for pair in (old + new, new + old):
        latest = Publication.latest(pair)
        assert latest is not None
        assert latest.state.lines == 11
    torn = new[:50] + bytes(78)
    latest = Publication.latest(torn + old)
    assert latest is not None
    assert latest.state.lines == 10
    assert Publication.latest(torn + torn) is None
    assert Publication.latest(bytes(256)) is None
    assert newer(later, older)
    assert not newer(older, later)


def test_block_header_round_trip() -> None:
    """A block header has 64 bytes; a torn header or contradictory numbers make it invalid."""
    header = make_publication(5).header
    packed = header.pack()
    assert len(packed) == 64
    parsed = BlockHeader.parse(b"..." + packed, 3)
    assert parsed is not None
    assert parsed.pack() == packed
    assert BlockHeader.parse(packed[:32] + bytes(32)) is None
    assert BlockHeader.parse(bytes(64)) is None
    assert BlockHeader.parse(packed[:63]) is None
    header.text_end = header.extent
    assert BlockHeader.parse(header.pack()) is None


def test_pending_round_trip() -> None:
    """The header of a pending text has 64 bytes and reveals damage."""
    packed = pack_pending(3, 1000, 1_700_000_000_000, b"text", 1)
    assert len(packed) == 64
    parsed = parse_pending(packed)
    assert parsed is not None
    assert parsed[:4] == (3, 1000, 1_700_000_000_000, 4)
    assert parse_pending(packed[:20] + b"?" + packed[21:]) is None
