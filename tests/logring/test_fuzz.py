"""Reading any damaged ring or log file ends, within bounds, with lines or a documented error.

`tests.logring.support.fuzz` has the mutations and the checks; `make fuzz` runs for longer.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from logring.errors import Corrupt, ForeignFile, LogError
from logring.layout import HEADER_SIZE, PUBLICATION_AT, PUBLICATION_SIZE, STATIC_SIZE, BlockHeader
from logring.logfile.leftover_ring import save_leftover_ring
from logring.reader import LogReader
from tests.logring.support.fuzz import bounded_memory, examine, fuzz_one
from tests.logring.support.mutations import Mutant, cut_short
from tests.logring.support.specimens import KINDS, Specimen, specimen

MUTANTS = 25
OF_TEXT = 5
"""Only one of so many bytes of a text is tried, because one checksum covers all text of a block."""
SMALL = ("ring before its file", "short sealed file", "short unsealed file")


@pytest.fixture(scope="module")
def specimens() -> dict[str, Specimen]:
    return {kind: specimen(kind) for kind in KINDS}


@pytest.fixture(autouse=True)
def _memory_is_bounded() -> Iterator[None]:
    with bounded_memory():
        yield


def used(original: Specimen) -> list[int]:
    """Return positions of used bytes: in the first page, also zeros within records; in texts, only some."""
    (data,) = original.parts.values()
    there = [at for at, byte in enumerate(data) if (byte or at < 900) and not is_like_others(data, at)]
    return [at for at in there if at % OF_TEXT == 0 or not is_text(original, at)]


def is_text(original: Specimen, at: int) -> bool:
    """Return whether the byte belongs to the text of a block, and not to a record."""
    (data,) = original.parts.values()
    for place in original.places:
        if place.begin <= at < place.end:
            header = BlockHeader.parse(data[place.begin : place.end])
            return header is not None and place.begin + HEADER_SIZE <= at < place.begin + header.text_end
    return False


def is_like_others(data: bytes, at: int) -> bool:
    """Return whether the byte is far from any record, in a range of the same byte."""
    return at >= 1024 and data[at - 8 : at + 9] == data[at : at + 1] * 17


@pytest.mark.parametrize("kind", SMALL)
def test_every_changed_byte(kind: str, specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """If any byte of a record, or some byte of the text, is changed, the lines of all other blocks are readable."""
    original = specimens[kind]
    (part,) = original.parts
    data = original.parts[part]
    original.spread(str(tmp_path))
    with open(tmp_path / part, "r+b", buffering=0) as file:
        for at in used(original):
            flipped = data[at] ^ 1 << at % 8
            for value in {flipped, (0xFF, 0)[at % 2]} - {data[at]} if at < 1024 else (flipped,):
                file.seek(at)
                file.write(bytes((value,)))
                changed = data[:at] + bytes((value,)) + data[at + 1 :]
                examine(
                    str(tmp_path),
                    original,
                    Mutant({part: changed}, [(part, at, at + 1)], repaired=False),
                    thorough=False,
                )
            file.seek(at)
            file.write(data[at : at + 1])


def test_unused_bytes(specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """Unused space can hold anything."""
    for original in (specimens[kind] for kind in SMALL):
        (part,) = original.parts
        data = bytearray(original.parts[part])
        for gap in re.finditer(rb"\0{200,}", bytes(data[900:])):  # the records have shorter runs of zeros
            data[900 + gap.start() + 64 : 900 + gap.end() - 64] = b"\xa5" * (gap.end() - gap.start() - 128)
        original.write(str(tmp_path), part, bytes(data))
        examine(str(tmp_path), original, Mutant({part: bytes(data)}, [], repaired=False), thorough=False)
        (tmp_path / part).unlink()


@pytest.mark.parametrize("kind", SMALL)
def test_every_truncation(kind: str, specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """After a cut at any place, also at the edges of records, earlier blocks are readable; a cut ring is not read."""
    original = specimens[kind]
    (part,) = original.parts
    original.spread(str(tmp_path))
    data = original.parts[part]
    lengths = range(len(data) - 1, -1, -1)
    telling = [
        length
        for length in lengths
        if length < 256
        or length % 64 == 0
        or (length % 16 in (15, 0, 1) and not is_text(original, length) and not is_like_others(data, length))
    ]
    with open(tmp_path / part, "r+b", buffering=0) as file:
        for length in telling if part == "file" else (*lengths[::97], *range(70, -1, -1)):
            file.truncate(length)
            examine(str(tmp_path), original, cut_short(original, part, length), thorough=length % 256 == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_any_damage(kind: str, specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """For bit flips, losses, swaps, splices and bad records, every read has right lines or a documented error."""
    for seed in range(MUTANTS):
        fuzz_one(str(tmp_path), random.Random(seed), [specimens[kind]], list(specimens.values()))


def static_of(data: bytes, offset: int, value: bytes) -> bytes:
    """Return a first page with another value and a right crc."""
    head = data[:offset] + value + data[offset + len(value) : STATIC_SIZE - 4]
    return head + crc32(head).to_bytes(4, "little") + data[STATIC_SIZE:]


def state_of(data: bytes, offset: int, value: bytes) -> bytes:
    """Return a first page with another value in both copies of the state, and right crcs."""
    for at in PUBLICATION_AT:
        copy = data[at : at + offset] + value + data[at + offset + len(value) : at + PUBLICATION_SIZE]
        crc = crc32(copy[8:], int.from_bytes(copy[:4], "little"))
        data = data[:at] + copy[:4] + crc.to_bytes(4, "little") + copy[8:] + data[at + PUBLICATION_SIZE :]
    return data


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (12, (0xFFFFF000).to_bytes(4, "little")),
        (12, (0).to_bytes(4, "little")),
        (12, (4095).to_bytes(4, "little")),
        (16, (0xFFFFFFFF).to_bytes(4, "little")),
        (16, (0).to_bytes(4, "little")),
        (32, (2**64 - 1).to_bytes(8, "little")),
        (40, (2**63 - 1).to_bytes(8, "little")),
        (48, b"\xff" * 32),
    ],
    ids=["huge blocks", "no blocks", "odd blocks", "many slots", "no slots", "first line", "time", "run id"],
)
def test_invalid_first_page(offset: int, value: bytes, specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """Impossible sizes and counts are refused before use, and a rescue loses nothing."""
    ring = static_of(specimens["ring before its file"].parts["ring"], offset, value)
    path = tmp_path / "ring"
    path.write_bytes(ring)
    with pytest.raises((Corrupt, ForeignFile)):
        LogReader(str(path), None).head()
    with pytest.raises((Corrupt, ForeignFile)):
        save_leftover_ring(str(path), str(tmp_path / "file"))
    assert path.read_bytes() == ring


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (8, (2**64 - 1).to_bytes(8, "little")),
        (16, (0).to_bytes(8, "little")),
        (16, (2**64 - 1).to_bytes(8, "little")),
        (24, (2**40).to_bytes(8, "little")),
        (56, (0).to_bytes(2, "little")),
        (56, (3).to_bytes(2, "little")),
        (64 + 28, (4097).to_bytes(4, "little")),
        (64 + 32, (256).to_bytes(2, "little")),
        (64 + 36, (8192).to_bytes(4, "little")),
        (64 + 40, (2**62).to_bytes(8, "little")),
    ],
    ids=[
        *("head block", "no lines", "too many lines", "first available", "no slots", "more slots than there are"),
        *("text beyond the block", "table beyond the block", "block beyond its slot", "time"),
    ],
)
def test_invalid_state(offset: int, value: bytes, specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """A state that contradicts itself or its ring is refused."""
    ring = state_of(specimens["ring before its file"].parts["ring"], offset, value)
    path = tmp_path / "ring"
    path.write_bytes(ring)
    reader = LogReader(str(path), None)
    for action in (reader.head, reader.pending, lambda: reader.read(0, 10), lambda: list(reader.blocks())):
        with pytest.raises(Corrupt):
            action()
    with pytest.raises(LogError):
        save_leftover_ring(str(path), str(tmp_path / "file"))
    assert path.read_bytes() == ring


def test_ring_beside_an_invalid_file(specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """Lines in the ring are readable whatever the file contains; other reads say where to resume."""
    original = specimens["ring and file"]
    in_ring = [place for place in original.places if place.part == "ring"]
    first = in_ring[0].first_line
    for content in (b"#!/bin/sh\n" * 1000, original.parts["file"][:3000], b"RINGWARD\x63" + bytes(5000)):
        original.spread(str(tmp_path))
        (tmp_path / "file").write_bytes(content)
        reader = LogReader(str(tmp_path / "ring"), str(tmp_path / "file"))
        assert reader.read(first, 1).lines == [original.lines[first]]
        with pytest.raises(Corrupt) as caught:
            reader.read(3, 10)
        assert (caught.value.first, caught.value.next) == (3, first)
        reader.close()


def test_missing_blocks_are_reported_once(specimens: dict[str, Specimen], tmp_path: Path) -> None:
    """A truncated file reports its missing lines once, however many blocks it claims to have."""
    data = specimens["sealed file"].parts["file"]
    data = static_of(data, 20, (0xFFFFFFFF).to_bytes(4, "little"))
    for offset in (8, 64 + 8):
        data = state_of(data, offset, (2**31).to_bytes(8, "little"))
    path = tmp_path / "file"
    path.write_bytes(data)
    reader = LogReader(None, str(path))
    blocks = list(reader.blocks())
    damaged = [block for block in blocks if isinstance(block, LogError)]
    # The other one is the last block, which has the lines of the head according to the current state.
    assert len(damaged) == 2
    assert blocks[-2:] == damaged
    reader.close()
