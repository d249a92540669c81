r"""The screen of a terminal: rows, a cursor, and the sequences that move it or erase text.

A screen holds the unfinished line, or the *block* of rows that a program redraws. A block begins when the program moves
the cursor up and writes above the bottom row. It copies the rows that it needs from earlier settled rows, which do not
change. Its rows settle when

* the program adds more rows below the block than the block has, without moving up again (it prints normally);
* a row leaves the screen at the top, or the last 64 redraws did not reach it: only that row settles;
* the output ends.

The newline ``\n`` moves the cursor to the start of the next row. Rows that were filled to the last column and continued
in the next row settle as one line. Sequences that neither move the cursor, erase nor colour (titles, modes, character
sets) have no effect.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

from logring.lines import whole_characters
from logring.redraw.row_cells import Row, decoded
from logring.redraw.sampling import Samples
from logring.redraw.text_style import NO_PEN, pen_with
from logring.redraw.unsettled_rows import COLUMNS, LINES, Rows, Settled
from logring.state_json import tagged

_LARGEST = 9999

_TOKEN = re.compile(
    rb"(?P<text>[^\x00-\x1f\x7f]+)"
    rb"|\x1b\[(?P<parameters>[0-?]{0,64})[ -/]{0,4}(?P<final>[@-~]?)"
    rb"|\x1b(?P<string>[]PX^_])"
    rb"|\x1b[ -/]{0,4}(?P<escape>[0-~]?)"
    rb"|(?P<control>[\x00-\x1f\x7f])"
)
_NUMBERS = re.compile(rb"[0-9;]*")
_COLOURS = re.compile(rb"[0-9;:]*")
_STRING_END = re.compile(rb"[\x07\n\x1b]")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,4}|[ -/]{0,4})")


@tagged("Screen", "_column _in_string _rows _saved pen")
@dataclass(slots=True, eq=False)
class Screen:
    """A terminal from the start of one line until all its rows have settled.

    Args:
        pen: the colours set at the start.
        rows: the rows, which are still blank.

    Attributes:
        pen: the colours set now.
    """

    pen: bytes
    _rows: Rows
    _column: int = 0
    _saved: tuple[int, int, bytes] | None = None
    _in_string: bool = False

    # Called by the reducer

    def feed(self, data: bytes, at: int, *, last: bool = False) -> int:
        """Take in `data` from `at` on, until the screen is `closed`.

        Returns:
            The end of the processed input. The rest, if the screen is not closed, is an incomplete sequence or
            character; with `last`, incomplete input is processed too.
        """
        self._rows.new_feed()
        while at < len(data) and not self._rows.closed:
            after = self._skip_string(data, at, last) if self._in_string else self._take_token(data, at, last)
            if after < 0:
                break
            at = after
        return at

    @property
    def closed(self) -> bool:
        """Whether everything has settled; the next output begins a new line."""
        return self._rows.closed

    def rows(self) -> list[Row]:
        """Return the unsettled rows as they are now, without blank rows at the end."""
        return self._rows.unsettled()

    def settled(self) -> list[Settled]:
        """Remove and return the lines that settled since the last call."""
        settled, self._rows.settled = self._rows.settled, []
        return settled

    def finish(self) -> None:
        """Settle everything; blank rows at the end are dropped."""
        self._rows.finish()

    def _take_token(self, data: bytes, at: int, last: bool) -> int:
        """Process the token at `at`; return its end, or -1 if the token is incomplete."""
        token = _TOKEN.match(data, at)
        if token is None:  # unreachable: every byte begins a token
            raise AssertionError("no token")
        end = token.end()
        kind = token.lastgroup
        if kind == "text":
            if end == len(data) and not last:
                end = whole_characters(data, at, end)
                if end == at:
                    return -1
            self._put(decoded(data[at:end]))
        elif kind == "control":
            self._control(data[at])
        elif end == len(data) and not last and _UNFINISHED.fullmatch(data, at):
            return -1
        elif kind == "string":
            self._in_string = True
        elif kind == "final":
            self._control_sequence(token["final"], token["parameters"])
        else:
            self._escape(token["escape"])
        return end

    # Characters

    def _put(self, text: str) -> None:
        while True:
            row = self._rows.written()
            self._column, count = row.put(self._column, text, self.pen, COLUMNS)
            if count == len(text):
                return
            text = text[count:]
            row.wrapped = True
            self._rows.next_row()
            self._column = 0

    def _control(self, byte: int) -> None:
        if byte == 0x0D:
            self._rows.over_picture |= self._column > 0
            self._column = 0
        elif byte == 0x0A:
            self._column = 0
            self._rows.line_feed()
        elif byte == 0x08:
            self._rows.over_picture |= self._column > 0
            self._column = max(0, min(self._column, COLUMNS - 1) - 1)
        elif byte == 0x09:
            self._column = self._rows.written().tab(self._column, COLUMNS - 1)

    def _escape(self, final: bytes) -> None:
        if final == b"7":
            self._save()
        elif final == b"8":
            self._restore()
        elif final == b"M":
            self._fetch(1)
            self._rows.reverse_feed()
        elif final in (b"D", b"E"):
            if final == b"E":
                self._column = 0
            self._rows.line_feed()

    def _skip_string(self, data: bytes, start: int, last: bool) -> int:
        """Skip a string such as a title, up to BEL, ST, the end of the line or another escape sequence."""
        match = _STRING_END.search(data, start)
        if match is None:
            return len(data)
        at = match.start()
        if data[at] == 0x1B and at + 1 == len(data) and not last:
            return at if at > start else -1
        self._in_string = False
        if data[at] == 0x07:
            return at + 1
        return at + 2 if data[at : at + 2] == b"\x1b\\" else at

    # Control sequences

    def _control_sequence(self, final: bytes, parameters: bytes) -> None:
        if final == b"m":
            if _COLOURS.fullmatch(parameters):
                self.pen = pen_with(self.pen, parameters)
        elif final in self._FUNCTIONS and _NUMBERS.fullmatch(parameters):
            function, defaults = self._FUNCTIONS[final]
            numbers = [min(int(number or b"0"), _LARGEST) for number in parameters.split(b";")[: len(defaults)]]
            function(self, *(number or default for number, default in zip_longest(numbers, defaults)))

    def _save(self) -> None:
        self._saved = self._rows.row, self._column, self.pen

    def _restore(self) -> None:
        if self._saved is not None:
            row, self._column, self.pen = self._saved
            self._rows.go_to(min(row, len(self._rows) - 1))

    def _fetch(self, count: int) -> None:
        more = self._rows.fetch(count, _rows_of)
        if self._saved is not None:
            self._saved = self._saved[0] + more, *self._saved[1:]

    def _up(self, count: int) -> None:
        if count > self._rows.row:
            self._fetch(count - self._rows.row)
        row, first = self._rows.row, self._rows.margins[0]
        self._rows.go_to(max(first if row >= first else 0, row - count))

    def _down(self, count: int) -> None:
        if self._rows.row + count >= len(self._rows):
            self._fetch(LINES)
        row, last = self._rows.row, self._rows.margins[1]
        self._rows.go_to(min(last if row <= last else LINES - 1, row + count))

    def _up_to_start(self, count: int) -> None:
        self._column = 0
        self._up(count)

    def _down_to_start(self, count: int) -> None:
        self._column = 0
        self._down(count)

    def _right(self, count: int) -> None:
        self._column = min(self._column + count, COLUMNS - 1)

    def _left(self, count: int) -> None:
        self._to_column(min(self._column, COLUMNS - 1) - count + 1)

    def _to_column(self, number: int) -> None:
        column = min(max(number, 1), COLUMNS) - 1
        self._rows.over_picture |= column < self._column
        self._column = column

    def _to_line(self, number: int) -> None:
        self._fetch(LINES)
        self._rows.go_to(min(number, LINES) - 1)

    def _to(self, line: int, column: int) -> None:
        self._to_line(line)
        self._to_column(column)

    def _set_margins(self, top: int, bottom: int) -> None:
        if top < bottom <= LINES:
            self._rows.margins = top - 1, bottom - 1
            self._to(1, 1)

    def _erase_line(self, mode: int) -> None:
        row = self._rows.written()
        if mode == 0:
            row.erase(self._column, None)
        elif mode == 1:
            row.erase(0, self._column + 1)
        elif mode == 2:
            row.erase(0, None)

    def _erase_display(self, mode: int) -> None:
        self._erase_line(mode)
        if mode in (1, 2):
            self._rows.blank_above()
        if mode in (0, 2):
            self._rows.drop_below()

    def _erase_characters(self, count: int) -> None:
        self._rows.written().erase(self._column, min(self._column + count, COLUMNS))

    def _insert_characters(self, count: int) -> None:
        self._rows.written().insert(self._column, min(count, COLUMNS), COLUMNS)

    def _delete_characters(self, count: int) -> None:
        self._rows.written().delete(self._column, count)

    # Final byte: method, and the default of each parameter, used if it is 0 or missing. Other sequences are ignored.
    _FUNCTIONS: ClassVar[dict[bytes, tuple[Callable[..., None], tuple[int, ...]]]] = {
        b"@": (_insert_characters, (1,)),
        b"A": (_up, (1,)),
        b"B": (_down, (1,)),
        b"C": (_right, (1,)),
        b"D": (_left, (1,)),
        b"E": (_down_to_start, (1,)),
        b"F": (_up_to_start, (1,)),
        b"G": (_to_column, (1,)),
        b"H": (_to, (1, 1)),
        b"J": (_erase_display, (0,)),
        b"K": (_erase_line, (0,)),
        b"P": (_delete_characters, (1,)),
        b"X": (_erase_characters, (1,)),
        b"`": (_to_column, (1,)),
        b"a": (_right, (1,)),
        b"d": (_to_line, (1,)),
        b"e": (_down, (1,)),
        b"f": (_to, (1, 1)),
        b"r": (_set_margins, (1, LINES)),
        b"s": (_save, ()),
        b"u": (_restore, ()),
    }


def _rows_of(line: bytes) -> list[Row]:
    """Lay a line out in rows, at least one."""
    screen = Screen(NO_PEN, Rows(b"", Samples()))
    screen.feed(line, 0, last=True)
    return screen.rows() or [Row()]
