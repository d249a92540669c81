"""Reading a log as it grows."""

import time
from collections.abc import Callable, Iterator

from logring.errors import Corrupt
from logring.reader import Line, LogReader, Page

POLL_S = 0.25


def _sleep() -> None:
    time.sleep(POLL_S)


def follow(
    reader: LogReader, position: int, wait: Callable[[], object] = _sleep, *, limit: int = 1000
) -> Iterator[Page[Line]]:
    """Pages from line `position` on, until the log is sealed and has been read to its end.

    Lines that are gone show as `skipped` of the page behind them, damaged ones too; such a page may have no lines.

    Args:
        reader: of the log, which may not exist yet.
        position: the line to begin with.
        wait: returns when there may be new lines. A caller with a doorbell waits for the bell, POLL_S at most, so that
            a lost bell costs no more than a poll.
        limit: most lines of a page.

    Raises:
        LogError: the log cannot be read at all.
        OSError: the disk failed.
    """
    while True:
        head = reader.head()  # before reading: a log that is sealed now already has all its lines
        while position < head.lines:
            page = _page(reader, position, limit)
            position = page.next
            yield page
        if head.sealed:
            return
        wait()


def _page(reader: LogReader, position: int, limit: int) -> Page[Line]:
    try:
        return reader.read(position, limit)
    except Corrupt as err:
        if err.next is None or err.next <= position:
            raise
        return Page([], err.next, err.next - position)
