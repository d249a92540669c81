"""The unsettled rows of a terminal's screen: the unfinished line, or a block that is redrawn."""

from collections.abc import Callable
from dataclasses import dataclass, field

from logring.redraw.row_cells import Row, joined
from logring.redraw.sampling import Frame, Samples
from logring.state_json import tagged

COLUMNS = 120
LINES = 40
"""Size of every pseudo-terminal that a program gets."""

_PASSED_OVER = 64
_SAMPLES_PER_FEED = 2

Settled = tuple[bytes, tuple[Frame, ...] | None]
"""Text and history of a settled line; the history is None if the next text continues the line."""


@tagged(
    "Rows",
    "_above _added _block _bottom _redraws _rows _samples _top closed margins over_picture row samples_left settled",
)
@dataclass(slots=True, eq=False)
class Rows:
    """The rows, the cursor's row and the settled rows, by the rules of :mod:`logring.redraw.screen`.

    Args:
        above: complete lines that settled earlier; the cursor can move up into them.
        samples: the history so far.

    Attributes:
        row: index of the cursor's row.
        margins: first and last row of the scrolling region.
        closed: whether all rows have settled.
        settled: lines that have settled since the owner last cleared this list.
        over_picture: whether new output overwrites a picture that may be complete.
        samples_left: number of pictures that may still be taken from the current feed.
    """

    _above: bytes
    _samples: Samples
    row: int = 0
    margins: tuple[int, int] = (0, LINES - 1)
    closed: bool = False
    over_picture: bool = False
    settled: list[Settled] = field(default_factory=list)
    samples_left: int = _SAMPLES_PER_FEED
    _rows: list[Row] = field(default_factory=lambda: [Row()])
    _top: int = 0
    """Rows above it are settled."""
    _block: bool = False
    _redraws: int = 0
    """The number of times the cursor was moved up."""
    _added: int = 0
    """Rows added since the last time."""
    _bottom: int = 1
    """The number of rows at the last time."""

    def __len__(self) -> int:
        return len(self._rows)

    def unsettled(self) -> list[Row]:
        """Return the unsettled rows, without blank rows at the end."""
        end = len(self._rows)
        while end > self._top and not self._rows[end - 1].render():
            end -= 1
        return self._rows[self._top : end]

    def finish(self) -> None:
        """Settle everything."""
        self._settle(self.unsettled())

    def new_feed(self) -> None:
        """Start a new feed: it may take a few pictures."""
        self.samples_left = _SAMPLES_PER_FEED

    def written(self) -> Row:
        """Return the cursor's row for a change. From now on the row is unsettled and part of the block."""
        self._top = min(self._top, self.row)
        if self.over_picture:
            self.over_picture = False
            if self.samples_left and self._samples.due():
                self.samples_left -= 1
                self._samples.add(lines_of(self.unsettled()))
        return self._rows[self.row]

    def blank_above(self) -> None:
        """Erase the unsettled rows above the cursor."""
        for row in self._rows[self._top : self.row]:
            row.erase(0, None)

    def drop_below(self) -> None:
        """Erase the rows below the cursor."""
        del self._rows[self.row + 1 :]

    def go_to(self, row: int) -> None:
        """Move the cursor to a row, adding missing rows."""
        while len(self._rows) <= row:
            self._add_row()
        if row < self.row:
            self._redraws += 1
            self._added = 0
            self._bottom = len(self._rows)
            self._block = self.over_picture = True
            for passed in self._rows[row:]:
                passed.touched = self._redraws
            while self._top < row and self._rows[self._top].touched < self._redraws - _PASSED_OVER:
                self._settle_row(self._top)
                self._top += 1
        self.row = row

    def _add_row(self) -> None:
        row = Row()
        row.touched = self._redraws
        self._rows.append(row)

    def next_row(self) -> None:
        """Move to the row below; at the bottom margin, scroll the rows within the margins up by one."""
        first, last = self.margins
        if self.row == last or self.row >= LINES - 1:
            self._scroll(first if self.row == last else 0)
        elif self.row + 1 == len(self._rows):
            self._add_row()
            self._added += 1
            self.row += 1
        else:
            self.row += 1

    def reverse_feed(self) -> None:
        """Move to the row above; at the top margin, scroll the rows within the margins down by one."""
        first, last = self.margins
        if self.row != first:
            self.go_to(max(0, self.row - 1))
            return
        self.written()
        self._rows.insert(first, Row())
        del self._rows[last + 1 : last + 2]

    def _scroll(self, first: int) -> None:
        if first < self._top:
            self._top -= 1
        elif first == 0:
            self._settle_row(0)
        self._bottom -= 1
        new = Row()
        new.touched = self._redraws
        self._rows.insert(self.row + 1, new)
        del self._rows[first]
        if self.row + 1 == len(self._rows):
            self._added += 1

    def line_feed(self) -> None:
        """End the row. Rows outside a block settle; a block settles once the program prints normally below it."""
        if self._block:
            self.next_row()
            if self.row + 1 == len(self._rows) and self._added > self._bottom - self._top:
                self._close(self._rows[self._top : self.row])
        else:
            self._close(self._rows[self._top :])

    def _close(self, rows: list[Row]) -> None:
        self._settle(rows)
        self.closed = True

    def fetch(self, count: int, layout: Callable[[bytes], list[Row]]) -> int:
        """Put at least `count` earlier settled rows, if there are as many, back on the screen; return their number.

        `layout` lays a line out in rows.
        """
        before = len(self._rows)
        while len(self._rows) < min(before + count, LINES) and self._above:
            self._above, _, text = self._above.removesuffix(b"\n").rpartition(b"\n")
            rows = layout(text)[len(self._rows) - LINES :]
            for row in rows:
                row.touched = self._redraws
            self._rows[:0] = rows
        more = len(self._rows) - before
        self.row += more
        self._top += more
        self._bottom += more
        return more

    def _settle_row(self, index: int) -> None:
        row = self._rows[index]
        self.settled.append((row.render(), None if row.wrapped else ()))

    def _settle(self, rows: list[Row]) -> None:
        """Settle these rows; the first line gets the history."""
        lines = lines_of(rows)
        history = self._samples.finish(lines)
        for line in lines:
            self.settled.append((line, history))
            history = ()


def lines_of(rows: list[Row]) -> Frame:
    """Join rows to lines: a row that was filled to its end continues in the next one."""
    lines: list[bytes] = []
    start = 0
    for index, row in enumerate(rows):
        if not row.wrapped or index + 1 == len(rows):
            lines.append(joined(rows[start : index + 1]))
            start = index + 1
    return tuple(lines)
