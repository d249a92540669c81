"""The block that is being filled.

Positions are offsets in the ring's mapping::

    at         at + 64                  start             fill               limit             at + block size
    | header   | text of whole lines ...| unfinished line | free ... room ...| ... reserve ... <- closed entries |
"""

from dataclasses import dataclass, field

from logring.layout import (
    BLOCK_CLOSED,
    ENTRY,
    ENTRY_SIZE,
    FRAMES,
    HEADER_BODY,
    HEADER_SIZE,
    NO_NEWLINE,
    RING_BLOCKS_AT,
    BlockHeader,
    max_line,
    pack_header,
)
from logring.ring.ring import Ring
from logring.state_json import tagged

_NEVER = -(2**63)
_EVER = 2**63
_MAX_DELTA_MS = 2**32 - 1


@tagged(
    "HeadBlock",
    "_reserve at base_ms ceiling_ms entries fill first_line flags floor_ms last_delta last_flags last_frames"
    " last_stream limit lines number start",
)
@dataclass(slots=True, eq=False)
class HeadBlock:
    """The block that is being filled in place, in its slot of the ring. :meth:`empty` creates one.

    Attributes:
        start: end of the text of complete lines.
        fill: end of the unfinished line after it.
        limit: end of the space for text; the table keeps room for the entries of one more read.
        floor_ms: minimum time of the next entry; the maximum is `ceiling_ms`.
    """

    number: int
    first_line: int
    at: int
    _reserve: int
    """Room for the entries of one more read: one for each part of a split line, and a few more."""
    start: int
    fill: int
    lines: int = 0
    entries: int = 0
    flags: int = 0
    base_ms: int = 0
    last_delta: int = 0
    last_stream: int = 0
    last_flags: int = 0
    last_frames: int = 0
    floor_ms: int = _NEVER
    ceiling_ms: int = _EVER
    limit: int = 0
    ring: Ring = field(init=False)
    """The ring of this process."""

    @classmethod
    def empty(cls, ring: Ring, number: int, first_line: int) -> "HeadBlock":
        """Return an empty block."""
        at, reserve = ring.slot_at(number), ENTRY_SIZE * (ring.block_size // max_line(ring.block_size) + 4)
        self = cls(number, first_line, at, reserve, at + HEADER_SIZE, at + HEADER_SIZE)
        self.ring = ring
        self._set_limit()
        return self

    @classmethod
    def resume(cls, ring: Ring, header: BlockHeader) -> "HeadBlock":
        """Return the block with the published `header`."""
        self = cls.empty(ring, header.number, header.first_line)
        self.start = self.fill = self.at + header.text_end
        self.lines, self.entries, self.flags = header.lines, header.entries, header.flags
        self.base_ms, self.last_delta = header.base_ms, header.last_delta
        self.last_stream, self.last_flags = header.last_stream, header.last_flags
        self.last_frames = header.last_frames
        if header.lines:
            self.floor_ms = header.base_ms + header.last_delta
            self.ceiling_ms = header.base_ms + _MAX_DELTA_MS
        self._set_limit()
        return self

    def previous(self) -> "HeadBlock | None":
        """Return the closed block before this one; None if it is no longer in its slot."""
        at = self.ring.slot_at(self.number - 1)
        header = BlockHeader.parse(self.ring.mm[at : at + HEADER_SIZE]) if self.number else None
        if header is None or header.number != self.number - 1 or header.extent != self.ring.block_size:
            return None
        return HeadBlock.resume(self.ring, header)

    def commit(self, cut: int, lines: int, stream: int, flags: int, now_ms: int, frames: int = 0) -> None:
        """Add the text up to `cut` to the block: `lines` lines of one stream that were read together.

        With FRAMES in `flags`, the text is one line, for which `frames` frames are kept.
        """
        if not self.lines:
            self.base_ms = now_ms
            self.ceiling_ms = now_ms + _MAX_DELTA_MS
            self.last_stream, self.last_flags, self.last_frames = stream, flags, frames
        else:
            delta = now_ms - self.base_ms
            # CONTINUED text never extends an entry, because the entry before it in its stream has NO_NEWLINE.
            grows = delta == self.last_delta and stream == self.last_stream
            if grows and not self.last_flags & (NO_NEWLINE | FRAMES) and not flags & FRAMES:
                self.last_flags |= flags
            else:
                self.entries += 1
                ring = self.ring
                ENTRY.pack_into(
                    ring.mm,
                    self.at + ring.block_size - ENTRY_SIZE * self.entries,
                    self.start - self.at,
                    self.lines,
                    self.last_delta,
                    self.last_stream,
                    self.last_flags,
                    self.last_frames,
                )
                self.last_delta, self.last_stream, self.last_flags = delta, stream, flags
                self.last_frames = frames
                self._set_limit()
        self.floor_ms = now_ms
        self.lines += lines
        self.start = cut

    def _set_limit(self) -> None:
        ring = self.ring
        table = ring.block_size - ENTRY_SIZE * self.entries - self._reserve
        if self.at == RING_BLOCKS_AT:  # only the first slot may lack pages
            while table < ring.table_have:
                if not ring.grow_table():
                    self.limit = self.start  # no room left: the block will be closed
                    return
            table = min(table, ring.text_have)
        self.limit = self.at + table

    def grow(self) -> bool:
        """Allocate more pages for text, if some are missing; return whether there is more room now."""
        before = self.limit
        if self.at == RING_BLOCKS_AT and self.ring.grow_text():
            self._set_limit()
        return self.limit > before

    def body(self) -> bytes:
        """Return the current header without sequence number and crc."""
        return HEADER_BODY.pack(
            self.number,
            self.first_line,
            self.lines,
            self.start - self.at,
            self.entries,
            self.last_frames,
            self.ring.block_size,
            self.base_ms,
            self.last_delta,
            self.last_stream,
            self.last_flags,
            0,
            self.flags,
            0,
            0,
        )

    def close(self, seq: int) -> None:
        """Close the block: write its header into the slot. Nothing will be added."""
        self.flags = BLOCK_CLOSED
        self.limit = self.fill = self.start
        self.ring.mm[self.at : self.at + HEADER_SIZE] = pack_header(seq, self.body())
