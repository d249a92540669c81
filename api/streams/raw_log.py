"""The text of a whole log, available from any byte offset.

Blocks record the line at which they begin, but not the byte offset. So the size of an ended log is measured once, by
reading all headers. The starts of some blocks are kept for later range requests. Headers of damaged blocks remain
valid, so the text around them stays available.
"""

import bisect
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from api.read_threads import LogFileReads
from logring.errors import LogError
from logring.reader import Head, LogReader

_TURN_BLOCKS = 64
_MOST_BLOCKS = 1 << 17
"""Beyond this number of blocks, 32 GiB, no size is reported, because measuring would take seconds."""
_MARKS = 1024
_REMEMBERED = 64
_PIECE_BYTES = 256 * 1024


class BlockStart(NamedTuple):
    """The start of a block."""

    offset: int
    line: int


class Layout(NamedTuple):
    """The size of a text, and the starts of some of its blocks, in order."""

    size: int
    marks: list[BlockStart]


class Layouts:
    """The layouts of the most recently requested logs."""

    def __init__(self, files: LogFileReads) -> None:
        self._files = files
        self._layouts: OrderedDict[tuple[str, tuple[int, ...], int, int], Layout | None] = OrderedDict()

    def of(self, run_id: str, reader: LogReader, head: Head, streams: tuple[int, ...]) -> Layout | None:
        """Return the layout of a complete log; None if a header is damaged or there are too many blocks.

        Raises:
            LogError: no part of it can be read.
            OSError: the disk failed.
        """
        key = (run_id, streams, head.lines, head.first_available)
        if key not in self._layouts:
            self._layouts[key] = self._measure(reader, streams)
            while len(self._layouts) > _REMEMBERED:
                self._layouts.popitem(last=False)
        self._layouts.move_to_end(key)
        return self._layouts[key]

    def _measure(self, reader: LogReader, streams: tuple[int, ...]) -> Layout | None:
        measuring = _Measurement(reader, streams)
        while not self._files(measuring.go_on):
            pass
        return measuring.layout


class _Measurement:
    """A measurement in several turns, so that other greenlets can run in between."""

    def __init__(self, reader: LogReader, streams: tuple[int, ...]) -> None:
        self.layout: Layout | None = None
        self._extents = reader.extents(streams)
        self._blocks = 0
        self._size = 0
        self._marks: list[BlockStart] = []
        self._step = 1

    def go_on(self) -> bool:
        """Measure some more blocks; return whether the measurement is complete."""
        for _ in range(_TURN_BLOCKS):
            extent = next(self._extents, None)
            if extent is None:
                self.layout = Layout(self._size, self._marks)
                return True
            if isinstance(extent, LogError) or self._blocks == _MOST_BLOCKS:
                return True
            if extent.size:
                self._mark(extent.line)
                self._size += extent.size
        return False

    def _mark(self, line: int) -> None:
        """Remember the start of every n-th block; n doubles for long logs."""
        if self._blocks % self._step == 0:
            self._marks.append(BlockStart(self._size, line))
        self._blocks += 1
        if len(self._marks) > _MARKS:
            del self._marks[1::2]
            self._step *= 2


def part(reader: LogReader, streams: Sequence[int], layout: Layout, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a text from `start` up to, but excluding, `end`.

    Raises:
        LogError: the log is damaged, or has changed since the measurement.
    """
    if start >= end:
        return
    position, line = layout.marks[bisect.bisect_right(layout.marks, start, key=lambda mark: mark.offset) - 1]
    for extent in reader.extents(streams, line):
        if isinstance(extent, LogError):
            raise extent
        if position + extent.size > start:
            line = extent.line
            break
        position += extent.size
    first: int | None = line
    for block in reader.blocks(line):
        if isinstance(block, LogError):
            raise block
        if first is not None and block.header.first_line != first:
            break
        first = None
        for piece in block.raw(streams):
            skipped = max(0, start - position)
            clipped = piece[skipped : max(skipped, end - position)]
            position += len(piece)
            if clipped:
                yield clipped
        if position >= end:
            return
    raise LogError("the log has changed since it was measured")


class Pieces:
    """Joins the chunks of a text into pieces that are large enough to be worth a write."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._error: LogError | OSError | None = None

    def next(self) -> bytes:
        """Return the next piece; empty at the end.

        Raises:
            LogError: the log is damaged; all earlier bytes were returned.
            OSError: the disk failed.
        """
        if self._error is not None:
            raise self._error
        parts: list[bytes] = []
        size = 0
        try:
            for chunk in self._chunks:
                parts.append(chunk)
                size += len(chunk)
                if size >= _PIECE_BYTES:
                    break
        except (LogError, OSError) as err:
            if not parts:
                raise
            self._error = err
        return b"".join(parts)
