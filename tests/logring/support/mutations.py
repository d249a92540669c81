"""Ways to damage a ring or a log file.

A *repaired* mutation changes a record and corrects its CRC, so that the checks after the CRC are tested: a defect, or
another program, can write a whole record with invalid values.
"""

import random
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from logring.layout import (
    FILE_BLOCKS_AT,
    HEADER_SIZE,
    PENDING_AT,
    PENDING_SIZE,
    PUBLICATION_AT,
    PUBLICATION_SIZE,
    RING_BLOCKS_AT,
    STATIC_SIZE,
)
from logring.redraw.history_format import BLOCK_HEADER_SIZE
from logring.redraw.history_format import BLOCKS_AT as FRAMES_AT
from tests.logring.support.specimens import BLOCK_SIZE, FRAMES, Specimen

INTERESTING = (
    *(0, 1, 2, 3, 4, 7, 63, 64, 65, 0xFF, 0x100, 4095, 4096, 4097, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000),
    *(0xFFFFF000, 0xFFFFFFFF, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 1),
)
STATIC_FIELDS = ((8, 2), (10, 2), (12, 4), (16, 4), (20, 4), (24, 4), (32, 8), (40, 8), (48, 1), (60, 4), (80, 4))
STATE_FIELDS = ((8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8), (56, 2), (58, 1), (59, 1), (60, 4))
HEADER_FIELDS = (
    *((8, 8), (16, 8), (24, 4), (28, 4), (32, 2), (34, 2), (36, 4), (40, 8), (48, 4), (52, 1), (53, 1), (54, 1)),
    *((55, 1), (56, 4), (60, 4)),
)
PENDING_FIELDS = ((8, 8), (16, 8), (24, 4), (28, 4), (32, 4))
ENTRY_FIELDS = ((0, 4), (4, 4), (8, 4), (12, 1), (13, 1), (14, 2))


class Mutant(NamedTuple):
    """A damaged specimen."""

    parts: dict[str, bytes]
    touched: list[tuple[str, int, int]]
    """The parts and ranges of bytes that may differ."""
    repaired: bool
    """Whether a record may have invalid values under a right crc."""


def cut_short(specimen: Specimen, part: str, length: int) -> Mutant:
    """Cut one part at `length`."""
    data = specimen.parts[part]
    return Mutant({**specimen.parts, part: data[:length]}, [(part, length, len(data))], repaired=False)


def flipped(rng: random.Random, specimen: Specimen) -> Mutant:
    """Change some bytes."""
    part, data = _some_part(rng, specimen)
    touched = []
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        at = _somewhere(rng, data)
        data[at] = rng.choice((data[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 0xFF, 10))
        touched.append((part, at, at + 1))
    return Mutant({**specimen.parts, part: bytes(data)}, touched, repaired=False)


def shortened(rng: random.Random, specimen: Specimen) -> Mutant:
    """Cut one part anywhere, or append random bytes."""
    part, data = _some_part(rng, specimen)
    if rng.randrange(4):
        return cut_short(specimen, part, rng.randrange(len(data)))
    rubbish = rng.randbytes(rng.choice((1, 100, 5000)))
    return Mutant({**specimen.parts, part: bytes(data) + rubbish}, [], repaired=False)


def overwritten(rng: random.Random, specimen: Specimen) -> Mutant:
    """Overwrite a range with zeros, random bytes, or a copy of another range of this specimen."""
    part, data = _some_part(rng, specimen)
    length = rng.choice((4, 16, 64, 512, 4096))
    at = rng.randrange(0, len(data), rng.choice((1, 16, length)))
    source = specimen.parts[rng.choice(sorted(specimen.parts))]
    start = rng.randrange(0, len(source), rng.choice((1, 16, length)))
    new = rng.choice((bytes(length), rng.randbytes(length), source[start : start + length]))[: len(data) - at]
    data[at : at + len(new)] = new
    # A copy can be a whole record: invalid values under a right crc.
    return Mutant({**specimen.parts, part: bytes(data)}, [(part, at, at + len(new))], repaired=True)


def swapped_blocks(rng: random.Random, specimen: Specimen) -> Mutant:
    """Exchange two block slots, or copy one to the other."""
    part, data = _some_part(rng, specimen)
    first = _blocks_at(part)
    slots = range(first, len(data) - BLOCK_SIZE + 1, BLOCK_SIZE)
    if len(slots) < 2:
        return flipped(rng, specimen)
    first_slot, other = rng.sample(slots, 2)
    first_block = bytes(data[first_slot : first_slot + BLOCK_SIZE])
    data[first_slot : first_slot + BLOCK_SIZE] = data[other : other + BLOCK_SIZE]
    if rng.randrange(2):
        data[other : other + BLOCK_SIZE] = first_block
    touched = [(part, first_slot, first_slot + BLOCK_SIZE), (part, other, other + BLOCK_SIZE)]
    return Mutant({**specimen.parts, part: bytes(data)}, touched, repaired=True)


def repaired(rng: random.Random, specimen: Specimen) -> Mutant:
    """Give fields of records interesting values under a right crc."""
    part, data = _some_part(rng, specimen)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if part == FRAMES:
            _frames(rng, data)
        else:
            rng.choice(_RECORDS)(rng, part, data)
    return Mutant({**specimen.parts, part: bytes(data)}, [(part, 0, len(data))], repaired=True)


def spliced(rng: random.Random, specimen: Specimen, other: Specimen) -> Mutant:
    """Continue the start of a part with the rest of another specimen's part, or replace it."""
    part = rng.choice(sorted(specimen.parts))
    data, strange = specimen.parts[part], rng.choice(sorted(other.parts.items()))[1]
    cut = rng.choice((0, 256, 512, 4096, 65536, rng.randrange(len(data))))
    return Mutant({**specimen.parts, part: data[:cut] + strange[cut:]}, [(part, 0, len(data))], repaired=True)


def mutant(rng: random.Random, specimen: Specimen, other: Specimen) -> Mutant:
    """Return any mutant."""
    kind = rng.choice((flipped, flipped, shortened, overwritten, swapped_blocks, repaired, repaired, repaired, None))
    return spliced(rng, specimen, other) if kind is None else kind(rng, specimen)


def _some_part(rng: random.Random, specimen: Specimen) -> tuple[str, bytearray]:
    part = rng.choice(sorted(specimen.parts))
    return part, bytearray(specimen.parts[part])


def _somewhere(rng: random.Random, data: bytearray) -> int:
    """Return a position, mostly one with a value other than zero."""
    for _ in range(20):
        at = rng.randrange(rng.choice((256, 768, 4096, len(data))) or 1) % len(data)
        if data[at]:
            break
    return at


def _blocks_at(part: str) -> int:
    return RING_BLOCKS_AT if part == "ring" else FILE_BLOCKS_AT


def _set(rng: random.Random, data: bytearray, at: int, fields: tuple[tuple[int, int], ...]) -> None:
    """Give a field of the record at `at` another value, sometimes one near the present value."""
    offset, size = rng.choice(fields)
    now = int.from_bytes(data[at + offset : at + offset + size], "little")
    value = rng.choice((*INTERESTING, now + 1, now - 1, now * 2, now // 2, rng.getrandbits(8 * size)))
    data[at + offset : at + offset + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _seal(data: bytearray, at: int, size: int) -> None:
    """Correct the crc of a record that begins with its sequence number and its crc."""
    seq = int.from_bytes(data[at : at + 4], "little")
    data[at + 4 : at + 8] = crc32(bytes(data[at + 8 : at + size]), seq).to_bytes(4, "little")


def _static(rng: random.Random, _part: str, data: bytearray) -> None:
    _set(rng, data, 0, STATIC_FIELDS)
    data[STATIC_SIZE - 4 : STATIC_SIZE] = crc32(bytes(data[: STATIC_SIZE - 4])).to_bytes(4, "little")


def _publication(rng: random.Random, _part: str, data: bytearray) -> None:
    """Give one or both copies invalid values."""
    at = rng.choice(PUBLICATION_AT)
    fields = rng.choice((STATE_FIELDS, tuple((64 + offset, size) for offset, size in HEADER_FIELDS)))
    for _ in range(rng.choice((1, 1, 2))):
        _set(rng, data, at, fields)
    _seal(data, at, PUBLICATION_SIZE)
    if rng.randrange(3):
        other = sum(PUBLICATION_AT) - at
        data[other : other + PUBLICATION_SIZE] = data[at : at + PUBLICATION_SIZE]


def _pending(rng: random.Random, part: str, data: bytearray) -> None:
    at = rng.choice(rng.choice(PENDING_AT))
    _set(rng, data, at, PENDING_FIELDS)
    if rng.randrange(2):  # a text of another length with a right crc
        start = 4096 if at in PENDING_AT[0] else 4096 + 16384
        length = int.from_bytes(data[at + 24 : at + 28], "little")
        data[at + 28 : at + 32] = crc32(bytes(data[start : start + length])).to_bytes(4, "little")
    if part == "ring":
        _seal(data, at, PENDING_SIZE)


def _header(rng: random.Random, part: str, data: bytearray) -> None:
    at = rng.randrange(_blocks_at(part), max(_blocks_at(part) + 1, len(data) - HEADER_SIZE), BLOCK_SIZE)
    if at + HEADER_SIZE > len(data):
        return
    _set(rng, data, at, HEADER_FIELDS)
    _sum_block(rng, data, at)
    _seal(data, at, HEADER_SIZE)


def _entry(rng: random.Random, part: str, data: bytearray) -> None:
    at = rng.randrange(_blocks_at(part), max(_blocks_at(part) + 1, len(data) - HEADER_SIZE), BLOCK_SIZE)
    if at + HEADER_SIZE > len(data):
        return
    extent = int.from_bytes(data[at + 36 : at + 40], "little")
    entries = int.from_bytes(data[at + 32 : at + 34], "little")
    if not 0 < entries * 16 < extent <= len(data) - at:
        return
    for _ in range(rng.choice((1, 1, 4))):
        _set(rng, data, at + extent - 16 * (1 + rng.randrange(entries)), ENTRY_FIELDS)
    _sum_block(rng, data, at)
    _seal(data, at, HEADER_SIZE)


def _text(rng: random.Random, part: str, data: bytearray) -> None:
    """Add or remove newlines."""
    at = rng.randrange(_blocks_at(part), max(_blocks_at(part) + 1, len(data) - HEADER_SIZE), BLOCK_SIZE)
    for _ in range(rng.choice((1, 5))):
        where = at + HEADER_SIZE + rng.randrange(2000)
        if where < len(data):
            data[where] = rng.choice(b"\n\nx")
    if at + HEADER_SIZE <= len(data):
        _sum_block(rng, data, at)
        _seal(data, at, HEADER_SIZE)


def _frames(rng: random.Random, data: bytearray) -> None:
    """Change the header, the first block's header or its first record."""
    at, size, fields = rng.choice(_FRAMES_RECORDS)
    _set(rng, data, at, fields)
    if at == 0:
        data[60:64] = crc32(bytes(data[:60])).to_bytes(4, "little")
    elif at == FRAMES_AT:
        data[at + size : at + size + 4] = crc32(bytes(data[at : at + size])).to_bytes(4, "little")
    else:
        end = at + 16 + int.from_bytes(data[at + 4 : at + 8], "little")
        seed = int.from_bytes(data[FRAMES_AT : FRAMES_AT + 4], "little")
        data[at : at + 4] = crc32(bytes(data[at + 4 : end]), seed).to_bytes(4, "little")


_FRAMES_RECORDS = (
    (0, 60, ((8, 2), (12, 4), (16, 4), (20, 4))),
    (FRAMES_AT, 20, ((0, 8), (8, 8), (16, 4))),
    (FRAMES_AT + BLOCK_HEADER_SIZE, 0, ((4, 4), (8, 8), (16, 4), (20, 4))),
)

_BLOCK_SIZES = ((28, 4), (32, 2), (36, 4))


def _sum_block(rng: random.Random, data: bytearray, at: int) -> None:
    """Correct the checksum of a block in most cases."""
    text_end, entries, extent = (int.from_bytes(data[at + o : at + o + n], "little") for o, n in _BLOCK_SIZES)
    if rng.randrange(5) and text_end < 1 << 20 and extent < 1 << 20:
        table = bytes(data[max(0, at + extent - 16 * entries) : at + extent])
        text = bytes(data[at + HEADER_SIZE : at + text_end])
        data[at + 56 : at + 60] = crc32(table, crc32(text)).to_bytes(4, "little")


_RECORDS: tuple[Callable[[random.Random, str, bytearray], None], ...] = (
    *(_static, _publication, _publication, _publication, _pending, _header, _header, _header),
    *(_entry, _entry, _text),
)
