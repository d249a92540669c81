"""Following a log from a line on: past removed and damaged lines, from its ring to its file, to its end.

The caller decides how to wait for new lines. With a doorbell it waits for at most :data:`POLL_S`, because a bell can be
lost.
"""

import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from logring.errors import Corrupt
from logring.reader import Batch, Head, Line, Lines, LogReader, Page

POLL_S = 0.25


class _Part(Protocol):
    @property
    def next(self) -> int:
        """The line to continue with."""


Part = TypeVar("Part", bound=_Part)


class LogFollower:
    """A position in a log, which need not exist yet.

    Every method raises LogError if no part of the log can be read, and OSError if the disk failed.

    Attributes:
        reader: The reader of the log.
        line: The next line to read.
        head: The progress of the log at the last look.
        end: The highest number of lines that the log was known to have.
    """

    def __init__(self, reader: LogReader, line: int = 0) -> None:
        self.reader = reader
        self.line = line
        self.head = Head(0, 0, 0, sealed=False, region_epoch=0)
        self.end = 0

    def look(self) -> bool:
        """Look at the progress of the log; return whether it has more lines."""
        self.head = self.reader.head()
        self.end = max(self.end, self.head.lines)
        return self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether the log had more lines at the last look. If it had none and was sealed, this is its end."""
        return self.line < self.head.lines

    def read(self, part_at: Callable[[int], Part]) -> Part | None:
        """Return what `part_at` returns for the next line, and move past it; None if the log has no more lines yet."""
        if not self.look():  # before the read: a log that is sealed by now has all its lines
            return None
        part = part_at(self.line)
        self.line = part.next
        return part

    def read_batches(self, limit: int, max_bytes: int) -> Page[Batch] | None:
        """Return the next lines, and move past them; None if the log has no more lines yet."""
        return self.read(lambda line: undamaged(self.reader.read_batches, line, limit, max_bytes))


def undamaged(
    read: Callable[[int, int, int], Page[Lines]], start: int, limit: int, max_bytes: int = 1 << 20
) -> Page[Lines]:
    """Call a reader's method and return its page; damaged lines count as skipped.

    Raises:
        LogError: no part of the log can be read.
        OSError: the disk failed.
    """
    try:
        return read(start, limit, max_bytes)
    except Corrupt as err:
        if err.next is None or err.next <= start:
            raise
        return Page([], err.next, err.next - start, str(err))


def _sleep() -> None:
    time.sleep(POLL_S)


def follow(
    reader: LogReader, position: int, wait: Callable[[], object] = _sleep, *, limit: int = 1000
) -> Iterator[Page[Line]]:
    """Yield pages from line `position` on, until the log is sealed and has been read to its end.

    Missing and damaged lines count in `skipped` of the next page, which may have no lines.

    Args:
        reader: reader of the log, which may not exist yet.
        position: the first line to yield.
        wait: returns when there may be new lines.
        limit: maximum number of lines in a page.

    Raises:
        LogError: the log cannot be read at all.
        OSError: the disk failed.
    """
    log = LogFollower(reader, position)
    while True:
        page = log.read(lambda line: undamaged(reader.read, line, limit))
        if page is not None:
            yield page
        elif log.head.sealed:
            return
        else:
            wait()
