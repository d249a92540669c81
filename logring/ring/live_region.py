"""The live region: the rows that the streams of a log draw now, as stored in the ring; see `logring.layout`."""

from collections.abc import Sequence
from mmap import mmap
from zlib import crc32

from logring.layout import (
    PREFIX,
    REGION_AT,
    REGION_BODY,
    REGION_SIZE,
    REGION_TEXT_AT,
    REGION_TEXT_SIZE,
    STDERR,
    STDOUT,
    newer,
)
from logring.lines import utf8_cut

_NEVER = bytes(REGION_SIZE)

Rows = tuple[tuple[bytes, ...], int]
"""The rows that one stream draws now (empty if it draws nothing), and the time of its last bytes in ms."""


def last_rows(rows: Sequence[bytes], room: int) -> tuple[bytes, ...]:
    """Return the lowest rows that fit in `room` bytes with newlines between them; the last is cut if necessary."""
    if rows and len(rows[-1]) > room:
        return (rows[-1][: utf8_cut(rows[-1], 0, room)],)
    first = len(rows)
    while first and len(rows[first - 1]) <= room:
        first -= 1
        room -= len(rows[first]) + 1
    return tuple(rows[first:])


def pack_region(seq: int, out: Rows, err: Rows) -> tuple[bytes, bytes]:
    """Return header and text of a region. If both streams draw, each gets half the room."""
    room = REGION_TEXT_SIZE // 2 if out[0] and err[0] else REGION_TEXT_SIZE
    out_rows, err_rows = last_rows(out[0], room), last_rows(err[0], room)
    out_text, err_text = b"\n".join(out_rows), b"\n".join(err_rows)
    text = out_text + err_text
    counts = len(out_text), len(out_rows), len(err_text), len(err_rows)
    body = REGION_BODY.pack(crc32(text), *counts, out[1], err[1])
    return PREFIX.pack(seq, crc32(body, seq)) + body, text


def read_region(mm: mmap) -> tuple[list[tuple[int, int, tuple[bytes, ...], int]], bool]:
    """Return (stream, epoch, rows, time ms) for each stream that draws, and whether a copy of the region is damaged.

    The newest intact copy counts. A damaged copy has two possible causes: the writer published again meanwhile, and
    another read finds the newer region; or a writer died while it wrote the copy.
    """
    entries: list[tuple[int, int, tuple[bytes, ...], int]] = []
    found_seq: int | None = None
    torn = False
    for at, text_at in zip(REGION_AT, REGION_TEXT_AT, strict=True):
        data = mm[at : at + REGION_SIZE]
        seq, crc = PREFIX.unpack_from(data)
        text_crc, out_size, out_count, err_size, err_count, out_ms, err_ms = REGION_BODY.unpack_from(data, PREFIX.size)
        if crc32(data[PREFIX.size :], seq) != crc or out_size + err_size > REGION_TEXT_SIZE:
            torn = torn or data != _NEVER
            continue
        # Read only the part of a slot that a header describes: the other pages may never have been allocated.
        text = mm[text_at : text_at + out_size + err_size] if out_size + err_size else b""
        if crc32(text) != text_crc:
            torn = True
            continue
        if found_seq is not None and not newer(seq, found_seq):
            continue
        found_seq, entries = seq, []
        for stream, count, part, ms in (
            (STDOUT, out_count, text[:out_size], out_ms),
            (STDERR, err_count, text[out_size:], err_ms),
        ):
            if count:
                entries.append((stream, seq, tuple(part.split(b"\n")), ms))
    return entries, torn
