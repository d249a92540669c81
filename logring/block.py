"""A block as readers see it: its header, text and entry table, copied out of a ring or a file."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from logring.errors import Corrupt
from logring.layout import (
    BLOCK_CHECKED,
    CONTINUED,
    ENTRY,
    ENTRY_SIZE,
    FRAMES,
    HEADER_SIZE,
    NO_NEWLINE,
    STREAM_NAMES,
    BlockHeader,
)

_STREAM_AT = 12
"""Offset of the stream within an entry."""


class Line(NamedTuple):
    """One line."""

    n: int
    """Its number, counted from 0."""
    ts: int
    """When it was read, ms since the epoch."""
    stream: int
    """STDOUT, STDERR or SYSTEM."""
    text: bytes
    """Without its newline."""
    continued: bool
    """Whether it continues the stream's previous line, which was too long and was split."""
    frames: int
    """Number of frames kept, if the line was drawn repeatedly; otherwise 0."""

    @property
    def next(self) -> int:
        """Number of the next line."""
        return self.n + 1


class Batch(NamedTuple):
    """Adjacent lines of one stream that were read together."""

    n: int
    """Number of the first line, counted from 0."""
    ts: int
    """When they were read, ms since the epoch."""
    stream: int
    """STDOUT, STDERR or SYSTEM."""
    text: bytes
    """All lines, separated by newlines; the last line has none."""
    continued: bool
    """As in `Line`. If True, the batch consists of that line alone."""
    frames: int
    """As in `Line`. If not 0, the batch consists of that line alone."""
    lines: int
    """Number of lines."""

    @property
    def next(self) -> int:
        """Number of the line after the last one."""
        return self.n + self.lines


class Entry(NamedTuple):
    """Lines that one read of one stream returned."""

    start: int
    """Offset of their text within the block's text."""
    end: int
    before: int
    """Number of lines of the block before them."""
    upto: int
    ts: int
    stream: int
    flags: int
    frames: int


class Block:
    """Header, text and entry table of one block.

    Args:
        where: names the block in error messages.
    """

    __slots__ = ("header", "table", "text", "where")

    def __init__(self, header: BlockHeader, text: bytes, table: bytes, where: str) -> None:
        self.header = header
        self.text = text
        self.table = table
        self.where = where

    def is_intact(self) -> bool:
        """Return whether text and table match the checksum; True if the block has no checksum."""
        header = self.header
        return not header.flags & BLOCK_CHECKED or crc32(self.table, crc32(self.text)) == header.checksum

    def entry(self, index: int) -> Entry:
        """Return entry `index`; the last one has index `header.entries`.

        Raises:
            Corrupt: the entry does not fit the block.
        """
        entry = self._stored_entry(index)
        if (
            not 0 <= entry.start <= entry.end <= len(self.text)
            or not entry.before <= entry.upto <= self.header.lines
            or entry.stream >= len(STREAM_NAMES)
        ):
            raise self._corrupt(self.header.first_line)
        return entry

    def _stored_entry(self, index: int) -> Entry:
        """Return entry `index` as stored, without validation."""
        header, table, count = self.header, self.table, self.header.entries
        start = before = 0
        if index:
            start, before, *_ = ENTRY.unpack_from(table, (count - index) * ENTRY_SIZE)
            start -= HEADER_SIZE
        if index == count:
            end, upto = header.text_end, header.lines
            delta, stream = header.last_delta, header.last_stream
            flags, frames = header.last_flags, header.last_frames
        else:
            end, upto, delta, stream, flags, frames = ENTRY.unpack_from(table, (count - 1 - index) * ENTRY_SIZE)
        return Entry(start, end - HEADER_SIZE, before, upto, header.base_ms + delta, stream, flags, frames)

    def entries(self) -> Iterator[Entry]:
        """Yield all entries in order; an empty block has none.

        Raises:
            Corrupt: at the first entry that does not fit the block.
        """
        if self.header.lines:
            for index in range(self.header.entries + 1):
                yield self.entry(index)

    def _find(self, line: int) -> int:
        """Return the index of the entry with line `line`, counted from the start of the block."""
        low, high = 0, self.header.entries
        top = self.header.entries - 1
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(self.table, (top - middle) * ENTRY_SIZE)[1] > line:
                high = middle
            else:
                low = middle + 1
        return low

    def index_at(self, offset: int) -> int:
        """Return the index of the entry that contains the text at `offset`."""
        low, high = 0, self.header.entries
        top = self.header.entries - 1
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(self.table, (top - middle) * ENTRY_SIZE)[0] - HEADER_SIZE > offset:
                high = middle
            else:
                low = middle + 1
        return low

    def line_at(self, ms: int) -> int:
        """Return the number of the first line read at or after `ms`. The block must have such a line.

        Raises:
            Corrupt: the entries are damaged.
        """
        low, high = 0, self.header.entries
        top = self.header.entries - 1
        while low < high:
            middle = (low + high) // 2
            if self.header.base_ms + ENTRY.unpack_from(self.table, (top - middle) * ENTRY_SIZE)[2] >= ms:
                high = middle
            else:
                low = middle + 1
        return self.header.first_line + self.entry(low).before

    def offset(self, line: int) -> int:
        """Return the offset of line number `line` in the text. The block must contain the line."""
        entry = self.entry(self._find(line - self.header.first_line))
        skip = line - self.header.first_line - entry.before
        parts = self.text[entry.start : entry.end].split(b"\n", skip)[:skip]
        return entry.start + sum(map(len, parts)) + len(parts)

    def lines(self, start: int, limit: int, max_bytes: int) -> list[Line]:
        """Return at most `limit` lines and `max_bytes` of text from line `start` on, which the block must contain.

        The first line is returned even if it is longer than `max_bytes`.

        Raises:
            Corrupt: the text does not have the lines that the entries describe.
        """
        first = self.header.first_line
        lines: list[Line] = []
        for index in range(self._find(start - first), self.header.entries + 1):
            entry = self.entry(index)
            skip = 0 if lines else start - first - entry.before
            if not lines and not 0 <= skip < entry.upto - entry.before:
                raise self._corrupt(first)
            take = min(entry.upto - entry.before - skip, limit - len(lines))
            parts = self.text[entry.start : entry.end].split(b"\n", skip + take)[skip : skip + take]
            if len(parts) != take:
                raise self._corrupt(first + entry.before)
            used = sum(map(len, parts))
            if used > max_bytes:
                parts = _within(parts, max_bytes, at_least=0 if lines else 1)
            max_bytes -= used
            number = first + entry.before + skip
            ts, stream, flags = entry.ts, entry.stream, entry.flags
            if flags & (CONTINUED | FRAMES) and not skip and parts:
                frames = entry.frames if flags & FRAMES else 0
                lines.append(Line(number, ts, stream, parts.pop(0), bool(flags & CONTINUED), frames))
                number += 1
            lines += [Line(n, ts, stream, text, False, 0) for n, text in enumerate(parts, number)]
            if len(lines) == limit or max_bytes <= 0:
                break
        return lines

    def batches(self, start: int, limit: int, max_bytes: int) -> list[Batch]:
        """Return the lines that :meth:`lines` would return, grouped by the read that produced them.

        No batch starts after `max_bytes` of text; the last batch may exceed that limit.

        Raises:
            Corrupt: the text does not have the lines that the entries describe.
        """
        first = self.header.first_line
        batches: list[Batch] = []
        for index in range(self._find(start - first), self.header.entries + 1):
            if limit <= 0 or max_bytes <= 0:
                break
            entry = self.entry(index)
            skip = 0 if batches else start - first - entry.before
            count = entry.upto - entry.before
            # The slice leaves out the final newline; removesuffix would copy the text a second time.
            text = self.text[entry.start : entry.end - self.text.endswith(b"\n", entry.start, entry.end)]
            if not 0 <= skip < count or text.count(b"\n") != count - 1:
                raise self._corrupt(first + entry.before)
            number = first + entry.before + skip
            if skip:
                text = text.split(b"\n", skip)[skip]
            count -= skip
            if count > limit:
                text = b"\n".join(text.split(b"\n", limit)[:limit])
                count = limit
            limit -= count
            max_bytes -= len(text)
            if entry.flags & (CONTINUED | FRAMES) and not skip:
                alone, _, text = text.partition(b"\n")
                frames = entry.frames if entry.flags & FRAMES else 0
                batches.append(Batch(number, entry.ts, entry.stream, alone, bool(entry.flags & CONTINUED), frames, 1))
                number, count = number + 1, count - 1
            if count:
                batches.append(Batch(number, entry.ts, entry.stream, text, False, 0, count))
        return batches

    def raw(self, streams: Sequence[int]) -> Iterator[bytes]:
        """Yield the stored bytes of these streams, one piece for each contiguous stretch."""
        if self.header.lines and not _others(self.header, self.table, streams):
            yield self.text
            return
        start = end = 0
        for entry in self.entries():
            if entry.stream in streams:
                end = entry.end
            else:
                if end > start:
                    yield self.text[start:end]
                start = end = entry.end
        if end > start:
            yield self.text[start:end]

    def contradiction(self) -> tuple[int, str] | None:
        """Return the index of the first entry that contradicts the text or earlier entries, and why; None: all fit."""
        previous = Entry(0, 0, 0, 0, self.header.base_ms, 0, 0, 0)
        for index in range(self.header.entries + 1 if self.header.lines else 0):
            entry = self._stored_entry(index)
            if not previous.end < entry.end <= len(self.text) or entry.ts < previous.ts:
                return index, "offsets or times decrease"
            if entry.stream >= len(STREAM_NAMES):
                return index, f"stream {entry.stream}"
            text = self.text[entry.start : entry.end]
            unfinished = bool(entry.flags & NO_NEWLINE)
            if text.count(b"\n") + unfinished != entry.upto - entry.before or text.endswith(b"\n") == unfinished:
                return index, "the entries do not match the lines of the text"
            previous = entry
        return None

    def truncated(self, index: int) -> "Block":
        """Return the block without entry `index` and all later entries; `index` must not be 0."""
        header = BlockHeader.parse(self.header.pack())
        assert header is not None  # noqa: S101  # it was just made
        last = self._stored_entry(index - 1)
        header.lines, header.text_end, header.entries = last.upto, last.end + HEADER_SIZE, index - 1
        header.last_delta, header.last_stream, header.last_flags = last.ts - header.base_ms, last.stream, last.flags
        header.last_frames = last.frames
        header.flags &= ~BLOCK_CHECKED
        table = self.table[len(self.table) - ENTRY_SIZE * header.entries :]
        return Block(header, self.text[: last.end], table, self.where)

    def _corrupt(self, line: int) -> Corrupt:
        return Corrupt(f"{self.where}: damaged from line {line} on", first=line)


def text_size(header: BlockHeader, table: bytes, streams: Sequence[int]) -> int:
    """Return the number of bytes that `raw` yields for these streams, according to the block's header and table.

    Raises:
        Corrupt: the table contradicts the header.
    """
    if not header.lines:
        return 0
    if not _others(header, table, streams):
        return header.text_end - HEADER_SIZE
    size, start = 0, HEADER_SIZE
    for at in range(len(table) - ENTRY_SIZE, -1, -ENTRY_SIZE):
        end, _, _, stream, _, _ = ENTRY.unpack_from(table, at)
        if not start <= end <= header.text_end:
            raise Corrupt(f"block {header.number} has a damaged table")
        size += end - start if stream in streams else 0
        start = end
    return size + (header.text_end - start if header.last_stream in streams else 0)


def _others(header: BlockHeader, table: bytes, streams: Sequence[int]) -> bool:
    """Return whether a block has lines of streams other than these."""
    return header.last_stream not in streams or bool(table[_STREAM_AT::ENTRY_SIZE].translate(None, bytes(streams)))


def _within(parts: list[bytes], max_bytes: int, at_least: int) -> list[bytes]:
    """Return the longest prefix of `parts` with at most `max_bytes` in total, but no fewer than `at_least` parts."""
    for count, text in enumerate(parts):
        max_bytes -= len(text)
        if max_bytes < 0:
            return parts[: max(count, at_least)]
    return parts
