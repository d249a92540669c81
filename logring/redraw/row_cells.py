"""Rows of a terminal: the character and colours of each column."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from unicodedata import category, east_asian_width

from logring.redraw.text_style import NO_PEN, sgr, shows_blanks
from logring.state_json import tagged

TAB_STOP = 8
MAX_ROW = 16384
"""Maximum size of a row in bytes."""

_CELL_CHARACTERS = 8  # a character and its combining marks; more are dropped

# Common single-column characters of text and progress bars; the width of all others is looked up one by one.
NARROW = re.compile("[ -~\u00a0-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u2319\u2500-\u25fc\u2800-\u28ff\udc80-\udcff]*")


@lru_cache(maxsize=4096)
def width(character: str) -> int:
    """Return the width of a character in columns: 0, 1 or 2. A surrogate (a byte that is not UTF-8) takes 1."""
    if character >= "\u1100" and east_asian_width(character) in "WF":
        return 2
    if category(character) in ("Mn", "Me", "Cf", "Cc", "Zl", "Zp") and character != "\u00ad":
        return 0
    return 0 if "\u1160" <= character <= "\u11ff" else 1


def columns(text: str) -> int:
    """Return the number of columns that a text without control characters takes."""
    return len(text) if NARROW.fullmatch(text) else sum(map(width, text))


def decoded(data: bytes) -> str:
    """Decode UTF-8; other bytes become surrogates, which :func:`encoded` reverses."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Encode a text as UTF-8; surrogates become the original bytes."""
    return text.encode("utf-8", "surrogateescape")


@tagged("Row", "_rendered cells pens touched wrapped")
@dataclass(slots=True, eq=False)
class Row:
    """One row.

    Attributes:
        cells: the character of each column with its combining marks; the second cell of a wide one is empty.
        pens: the colours of each column.
        wrapped: whether the text continues in the next row.
        touched: number of the last redraw that passed this row, for :class:`logring.redraw.unsettled_rows.Rows`.
    """

    cells: list[str] = field(default_factory=list)
    pens: list[bytes] = field(default_factory=list)
    _rendered: bytes | None = b""
    wrapped: bool = False
    touched: int = 0

    def __len__(self) -> int:
        return len(self.cells)

    def put(self, column: int, text: str, pen: bytes, limit: int) -> tuple[int, int]:
        """Write from `column` on, up to column `limit`.

        Returns:
            The column after the written text, and the number of characters.
        """
        self._rendered = None
        if NARROW.fullmatch(text):
            count = min(len(text), limit - column)
            self._write(column, text[:count] if count < len(text) else text, pen)
            return column + count, count
        for count, character in enumerate(text):
            size = width(character)
            if size == 0:
                self._combine(column, character)
            elif column + size > limit:
                return column, count
            else:
                self._write(column, (character,) if size == 1 else (character, ""), pen)
                column += size
        return column, len(text)

    def tab(self, column: int, limit: int) -> int:
        """Move to the next tab stop and return its column; a tab after the end of the text is kept as a tab."""
        stop = min(column // TAB_STOP * TAB_STOP + TAB_STOP, limit)
        if column >= len(self.cells) and stop > column:
            self._rendered = None
            self._write(column, ("\t", *[""] * (stop - column - 1)), NO_PEN)
        return stop

    def erase(self, start: int, end: int | None) -> None:
        """Make columns [start, end) blank; if `end` is None, the rest of the row."""
        self._rendered = None
        size = len(self.cells)
        if end is None or end >= size:
            self._cut(start)
            del self.cells[start:], self.pens[start:]
            self.wrapped = False
        elif start < end:
            self._write(start, " " * (end - start), NO_PEN)

    def insert(self, column: int, count: int, limit: int) -> None:
        """Move the cells from `column` on to the right by `count` blanks; cells beyond `limit` are lost."""
        if column < len(self.cells):
            self._rendered = None
            self._cut(column)
            self.cells[column:column] = " " * count
            self.pens[column:column] = [NO_PEN] * count
            self._cut(limit)
            del self.cells[limit:], self.pens[limit:]

    def delete(self, column: int, count: int) -> None:
        """Remove `count` cells from `column` on; the cells after them move to the left."""
        self._rendered = None
        self._cut(column)
        self._cut(column + count)
        del self.cells[column : column + count], self.pens[column : column + count]

    def render(self) -> bytes:
        """Return the row as text without trailing blanks; it sets its own colours and resets them at its end."""
        if self._rendered is None:
            self._rendered = _rendered(self.cells, self.pens)
        return self._rendered

    def _write(self, column: int, cells: "str | tuple[str, ...]", pen: bytes) -> None:
        end = column + len(cells)
        size = len(self.cells)
        if column > size:
            self.cells += " " * (column - size)
            self.pens += [NO_PEN] * (column - size)
        elif column < size:
            self._cut(column)
            self._cut(end)
        self.cells[column:end] = cells
        self.pens[column:end] = [pen] * len(cells)

    def _cut(self, column: int) -> None:
        """Split a wide character that spans the left edge of `column`: all its cells become blank."""
        cells = self.cells
        if column < len(cells) and not cells[column]:
            start = column
            while start and not cells[start]:
                start -= 1
            while start < len(cells) and (start < column or not cells[start]):
                cells[start] = " "
                start += 1

    def _combine(self, column: int, mark: str) -> None:
        at = min(column, len(self.cells)) - 1
        while at > 0 and not self.cells[at]:
            at -= 1
        if at >= 0 and len(self.cells[at]) < _CELL_CHARACTERS:
            self.cells[at] += mark


def joined(rows: list[Row]) -> bytes:
    """Render rows that continue each other as one line."""
    if len(rows) == 1:
        return rows[0].render()
    return _rendered([cell for row in rows for cell in row.cells], [pen for row in rows for pen in row.pens])


def _rendered(cells: list[str], pens: list[bytes]) -> bytes:
    end = len(cells)
    while end and cells[end - 1] == " " and not shows_blanks(pens[end - 1]):
        end -= 1
    if not any(pens):
        return encoded("".join(cells[:end]))[:MAX_ROW]
    parts: list[bytes] = []
    now = NO_PEN
    for pen, group in groupby(zip(pens[:end], cells, strict=False), itemgetter(0)):
        if pen != now:
            # Without colours set before, no reset is needed.
            parts.append(b"\x1b[" + pen + b"m" if now == NO_PEN else sgr(pen))
            now = pen
        parts.append(encoded("".join(cell for _, cell in group)))
    if now != NO_PEN:
        parts.append(sgr(NO_PEN))
    text = b"".join(parts)
    return text if len(text) <= MAX_ROW else encoded("".join(cells[:end]))[:MAX_ROW]
