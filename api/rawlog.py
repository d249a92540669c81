"""The whole text of a log, from any byte on.

Blocks say where their lines are, not where their bytes are in the whole; so the first who wants to know how large an
ended log is goes through it once, and where each part of it begins is remembered for the next.
"""

import bisect
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logring.errors import LogError
from logring.reader import Head, LogReader

if TYPE_CHECKING:
    from api.context import Files

_MARK_BYTES = 1 << 20
_TURN_BYTES = 4 << 20
_MOST_BYTES = 1 << 30
"""Of a larger log nobody is told the size: to find it out would take seconds."""
_REMEMBERED = 64


class Mark(NamedTuple):
    """Where a block begins."""

    offset: int
    line: int


class Layout(NamedTuple):
    """How large a text is, and where some of its blocks begin, in order."""

    size: int
    marks: list[Mark]


class Layouts:
    """The layouts of logs that were asked for last."""

    def __init__(self, files: "Files") -> None:
        self._files = files
        self._known: OrderedDict[tuple[str, tuple[int, ...], int, int], Layout | None] = OrderedDict()

    def of(self, run_id: str, reader: LogReader, head: Head, streams: tuple[int, ...]) -> Layout | None:
        """The layout of a log to which nothing is added any more; None when it is damaged, or too large to tell.

        Raises:
            LogError: nothing of it can be read.
            OSError: the disk failed.
        """
        key = (run_id, streams, head.lines, head.first_available)
        if key not in self._known:
            self._known[key] = self._measure(reader, streams)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    def _measure(self, reader: LogReader, streams: tuple[int, ...]) -> Layout | None:
        measuring = _Measuring(reader, streams)
        while not self._files(measuring.go_on):
            pass
        return measuring.layout


class _Measuring:
    """Goes through a log in turns, so that others get theirs."""

    def __init__(self, reader: LogReader, streams: tuple[int, ...]) -> None:
        self.layout: Layout | None = None
        self._blocks = reader.blocks()
        self._streams = streams
        self._size = 0
        self._marks: list[Mark] = []

    def go_on(self) -> bool:
        """Take a turn; returns whether it was the last."""
        until = self._size + _TURN_BYTES
        for block in self._blocks:
            if isinstance(block, LogError):
                return True
            if not self._marks or self._size >= self._marks[-1].offset + _MARK_BYTES:
                self._marks.append(Mark(self._size, block.header.first_line))
            self._size += sum(map(len, block.raw(self._streams)))
            if self._size > _MOST_BYTES:
                return True
            if self._size >= until:
                return False
        self.layout = Layout(self._size, self._marks)
        return True


def part(reader: LogReader, streams: Sequence[int], layout: Layout, begin: int, end: int) -> Iterator[bytes]:
    """The bytes `begin` up to but not `end` of a text, in pieces.

    Raises:
        LogError: where it is damaged.
    """
    if begin >= end:
        return
    mark = layout.marks[bisect.bisect_right(layout.marks, begin, key=lambda one: one.offset) - 1]
    position = mark.offset
    for block in reader.blocks(mark.line):
        if isinstance(block, LogError):
            raise block
        if position == mark.offset and block.header.first_line != mark.line:
            raise LogError("the log is not what it was when it was measured")
        for piece in block.raw(streams):
            skipped = max(0, begin - position)
            wanted = piece[skipped : max(skipped, end - position)]
            position += len(piece)
            if wanted:
                yield wanted
        if position >= end:
            return
