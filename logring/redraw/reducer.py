r"""Reduction of output that overwrites itself: of a progress bar, only the final lines remain.

Plain text passes through unchanged. Only lines with one of these need work:

pipes       a carriage return that is not part of a line end: the text after it overwrites the text before it.
            In such a line ``ESC[K`` erases, colours are kept, other control sequences are dropped.
terminals   also everything else that moves the cursor, erases, or shows nothing (see :mod:`logring.redraw.screen`).

A shorter text leaves the rest of a longer one visible, but only among the last 8 texts between carriage returns. This
limit makes thousands of pictures a second cheap. A terminal's line that moves the cursor by other means, or is wider
than the terminal, goes through a :class:`Screen`, which is exact but slower.

Lines over 16 KiB pass through in pieces, before they are complete; a carriage return then goes back to the start of the
piece. The settled text does not depend on the sizes of the reads; only the samples of the history do.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from logring.lines import utf8_cut, whole_characters
from logring.redraw.row_cells import MAX_ROW, NARROW, Row, columns, decoded, encoded
from logring.redraw.sampling import Frame, Samples
from logring.redraw.screen import Screen
from logring.redraw.text_style import NO_PEN, pen_after, pen_with, sgr
from logring.redraw.unsettled_rows import COLUMNS, Rows, lines_of
from logring.state_json import tagged

MAX_REGION = 28672
"""Maximum size in bytes of the unsettled rows; if there are more, only the lower rows are shown."""

SEGMENTS = 8
"""Number of texts between carriage returns, counted from the last one, that determine how a line looks."""
_LONG_SEGMENT = 1024  # a longer text (bytes) between a terminal's carriage returns goes through a screen
_ABOVE = 16384  # bytes of settled text that a cursor movement can reach
_UNLIMITED = 1 << 30
_SHORT = 1024  # a shorter line (bytes) that arrives at once keeps all its pictures
_CR = 0x0D

_LONE_CR = re.compile(rb"\r(?!\n)")
_STRING = rb"\][^\x07\x1b\n]{0,1024}"
_TO_REDUCE = re.compile(rb"\r(?!\n)|\x08|\x1b(?!\[[0-9;:]{0,64}m)")
_TO_SCREEN = re.compile(
    rb"\x08|\x1b(?!\[[0-9;:]{0,64}[mK]|\[\?[0-9;]{0,64}[hl]|[()][0-9A-Za-z]|" + _STRING + rb"(?:\x07|\x1b\\))"
)
_UNDECIDED = re.compile(rb"\r|\x1b(?:\[[0-?]{0,64}|[()]|" + _STRING + rb"\x1b?)?")
_TOKEN = re.compile(
    rb"(?P<text>[^\x00-\x1f\x7f]+)|(?P<start>\r)|(?P<back>\x08)|(?P<tab>\t)"
    rb"|\x1b\[(?P<sgr>[0-9;:]{0,64})m|\x1b\[(?P<erase>[012]?)K"
    rb"|\x1b\[[0-?]{0,64}[ -/]{0,4}[@-~]?|\x1b" + _STRING + rb"(?:\x07|\x1b\\)?|\x1b[ -/]{0,4}[0-~]?|[\x00-\x1f\x7f]"
)
_FIRST_PICTURE = re.compile(rb"\r*[^\r]+\r")
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[@-~]|[()].|" + _STRING + rb"(?:\x07|\x1b\\))")


class RedrawnLine(NamedTuple):
    """One settled line that was drawn over, or that lost an invisible sequence."""

    text: bytes
    """The line without its newline; it sets its own colours and resets them."""
    frames: tuple[Frame, ...]
    """The history of the line: pictures from its whole life, oldest first, each as its rows; the last is its end state.
    At most 64 pictures and 16 KiB. The first line of a block has the pictures of the whole block. Empty if not redrawn.
    """


Settled = list[bytes | RedrawnLine]


def needs(data: bytes, full: bool) -> bool:
    """Return whether `data` has, or may have at its incomplete end, anything to reduce; `full` as in `Redraw`."""
    return _first_need(data, 0, full) >= 0


@tagged("Redraw", "_above _full=full _known _out _owes_pen _pen _raw _redrawn _samples _screen")
@dataclass(slots=True, eq=False, kw_only=True)
class Redraw:
    """The reducer of one stream.

    Args:
        full: whether the stream comes from a terminal; otherwise it comes from a pipe.
    """

    full: bool
    _raw: bytes = b""
    """The unfinished line; of a redrawn one, its last segments."""
    _redrawn: bool = False
    _known: int = 0
    """Segments of a redrawn line before this offset are known to fit the terminal."""
    _pen: bytes = NO_PEN
    """The colours at the start of `_raw`."""
    _owes_pen: bool = False
    """Whether the next plain text must begin with the current colours."""
    _samples: Samples = field(default_factory=Samples)
    _screen: Screen | None = None
    _above: bytes = b""
    _out: Settled = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether further output must be fed: it holds output, or the stream is a terminal, which keeps its screen."""
        return self.full or self._redrawn or bool(self._raw)

    def feed(self, data: bytes) -> Settled:
        """Take in new output.

        Returns:
            The lines that this output settles, in order. Bytes are unchanged plain text with its newlines; a
            :class:`RedrawnLine` is one line.
        """
        self._consume(self._raw + data if self._raw else data)
        return self._taken()

    def finish(self) -> Settled:
        """End the stream and return the rest: an unfinished plain line has no newline, an erased one is left out."""
        if self._screen is not None:
            self._screen.feed(self._raw, 0, last=True)
            self._screen.finish()
            self._take_settled(self._screen)
        elif self._redrawn or needs(self._raw, self.full):
            self._settle_line(self._raw, 0, len(self._raw))
            last = self._out.pop()
            if isinstance(last, RedrawnLine) and last.text:
                self._out.append(last)
        elif self._raw:
            self._plain(self._raw)
        self._raw = b""
        self._redrawn = False
        self._screen = None
        return self._taken()

    def region(self) -> Frame:
        """Return the unsettled rows as they look now, at most 28 KiB; () if there are none."""
        if self._screen is not None:
            rows = lines_of(self._screen.rows())
            size = 0
            for count, row in enumerate(reversed(rows)):
                size += len(row)
                if size > MAX_REGION:
                    return rows[len(rows) - count :]
            return rows
        if self._redrawn:
            return (_overlaid(self._raw, self._pen)[0],)
        return (self._raw,) if self._raw else ()

    def _taken(self) -> Settled:
        out, self._out = self._out, []
        return out

    def _consume(self, data: bytes) -> None:
        at = 0
        waiting = False
        while at < len(data) and not waiting:
            if self._screen is not None:
                at, waiting = self._on_screen(self._screen, data, at)
            elif self._redrawn:
                at, waiting = self._over_itself(data, at)
            else:
                at, waiting = self._as_it_came(data, at)
        self._raw = data[at:]

    # Each of these processes `data` from `at` on. It returns how far it got, and whether the rest must wait for more.

    def _as_it_came(self, data: bytes, at: int) -> tuple[int, bool]:
        """Pass plain text through, up to the line that has something to reduce."""
        need = _first_need(data, at, self.full)
        end = len(data) if need < 0 else need
        start = data.rfind(b"\n", at, end) + 1 or at
        while end - start > MAX_ROW:
            start = utf8_cut(data, start, start + MAX_ROW)
        if start > at:
            self._plain(data[at:start])
        if need < 0 or _UNDECIDED.fullmatch(data, need):
            return start, True
        self._redrawn = True
        self._known = 0
        return start, False

    def _over_itself(self, data: bytes, at: int) -> tuple[int, bool]:
        """Process a line that is redrawn by carriage returns."""
        newline = data.find(b"\n", at)
        end = newline if newline >= 0 else len(data)
        if self.full:
            to_screen = self._screen_from(data, at, end)
            if to_screen >= 0:
                self._redrawn = False
                start = _window(data, at, to_screen)
                above = self._above if len(self._above) < _ABOVE else self._above.partition(b"\n")[2]
                self._screen = Screen(pen_after(self._pen, data[at:start]), Rows(above, self._samples))
                self._samples = Samples()
                return start, False
        elif (start := _longer_segment(data, at, end, MAX_ROW)) >= 0:
            cut = utf8_cut(data, start, start + MAX_ROW)
            self._redrawn = False
            self._samples = Samples()
            self._plain(data[start:cut])
            return cut, False
        ending = data[end - 1] == _CR and end > at  # part of a line end, or undecided yet
        new = at or max(len(self._raw) - 1, 0)
        if newline >= 0:
            self._settle_line(data, at, end - ending, new)
            self._redrawn = False
            return newline + 1, False
        self._sample(data, at, end, new)
        start = _window(data, at, end - ending)
        self._pen = pen_after(self._pen, data[at:start])
        self._known = data.rfind(b"\r", start) + 1 - start
        return start, True

    def _on_screen(self, screen: Screen, data: bytes, at: int) -> tuple[int, bool]:
        """Process rows that are redrawn by other means than carriage returns."""
        at = screen.feed(data, at)
        self._take_settled(screen)
        if screen.closed:
            self._screen = None
            self._pen = screen.pen
            self._owes_pen = self._pen != NO_PEN
        return at, not screen.closed

    def _screen_from(self, data: bytes, at: int, end: int) -> int:
        """Return where a terminal's line first needs a screen; -1 if it does not."""
        match = _TO_SCREEN.search(data, at, end) if b"\x1b" in data or b"\x08" in data else None
        limit = end if match is None else match.start()
        if limit == len(data):
            limit = whole_characters(data, at, limit)
        start = at + self._known
        while (start := _longer_segment(data, start, limit, COLUMNS)) >= 0:
            stop = data.find(b"\r", start, limit)
            segment = data[start : stop if stop >= 0 else limit]
            if len(segment) > _LONG_SEGMENT or _columns(segment) > COLUMNS:
                return start
            start += len(segment) + 1
        return -1 if match is None or _UNDECIDED.fullmatch(data, limit) else limit

    # Settling

    def _plain(self, text: bytes) -> None:
        if self.full:
            if self._owes_pen:
                text = sgr(self._pen) + text
                self._owes_pen = False
            self._pen = pen_after(self._pen, text)
            self._remember(text)
        self._out.append(text)

    def _settle_line(self, data: bytes, at: int, end: int, new: int = 0) -> None:
        pen = self._pen
        pictures = _short_history(data[at:end]) if self._samples.empty and pen == NO_PEN and end - at < _SHORT else None
        if pictures is None:
            self._sample(data, at, end, new)
            text, pen = self._picture(data, at, end)
            self._out.append(RedrawnLine(text, self._samples.finish((text,))))
            self._samples = Samples()
        else:
            text = pictures[-1][0]
            self._out.append(RedrawnLine(text, tuple(pictures) if len(pictures) > 1 else ()))
        self._pen = pen if self.full else NO_PEN
        self._owes_pen = self._pen != NO_PEN
        if self.full:
            self._remember(text + b"\n")

    def _take_settled(self, screen: Screen) -> None:
        for text, frames in screen.settled():
            self._out.append(text if frames is None else RedrawnLine(text, frames))
            self._remember(text if frames is None else text + b"\n")

    def _remember(self, text: bytes) -> None:
        self._above = text[-_ABOVE:] if len(text) >= _ABOVE else (self._above + text)[-_ABOVE:]

    # Pictures of a line that is drawn over itself

    def _sample(self, data: bytes, at: int, end: int, new: int) -> None:
        """Take a frame if one was completed after `new` and is due; always take the first frame."""
        if data.find(b"\r", new, end) < 0:
            return
        if self._samples.empty and (first := _FIRST_PICTURE.match(data, at, end)):
            self._samples.add((self._picture(data, at, first.end() - 1)[0],))
        complete = data[end - 1] == _CR
        end = at + len(data[at:end].rstrip(b"\r")) if complete else data.rfind(b"\r", at, end)
        if end > at and self._samples.due():
            self._samples.add((self._picture(data, at, end)[0],))

    def _picture(self, data: bytes, at: int, end: int) -> tuple[bytes, bytes]:
        """Return how the line looked when it had reached `end`, and the colours set then."""
        start = _window(data, at, end)
        pen = pen_after(self._pen, data[at:start]) if start > at else self._pen
        return _overlaid(data[start:end], pen)


def _first_need(data: bytes, at: int, full: bool) -> int:
    """Return the position of the first byte that needs, or may need, reduction; -1 if there is none."""
    if full and (data.find(b"\x1b", at) >= 0 or data.find(b"\x08", at) >= 0):
        match = _TO_REDUCE.search(data, at)
    else:
        carriage_return = data.find(b"\r", at)
        match = _LONE_CR.search(data, carriage_return) if carriage_return >= 0 else None
    return match.start() if match else -1


def _window(data: bytes, at: int, end: int) -> int:
    """Return the start of the last segments in [at, end) that matter: earlier segments are not visible."""
    for _ in range(SEGMENTS):
        end = data.rfind(b"\r", at, end)
        if end < 0:
            return at
    return end + 1


def _longer_segment(data: bytes, at: int, end: int, limit: int) -> int:
    """Return the start of the first segment longer than `limit` bytes; -1 if there is none."""
    while end - at > limit:
        carriage_return = data.rfind(b"\r", at, at + limit + 1)
        if carriage_return < 0:
            return at
        at = carriage_return + 1
    return -1


def _columns(segment: bytes) -> int:
    return columns(decoded(_ESCAPES.sub(b"", segment)).expandtabs())


def _short_history(raw: bytes) -> list[Frame] | None:
    """Return all pictures of a line that arrived at once; None if it has too many, or other than narrow characters."""
    segments = decoded(raw).split("\r")
    if len(segments) > SEGMENTS or not NARROW.fullmatch("".join(segments)):
        return None
    pictures: list[Frame] = []
    line = shown = ""
    for segment in segments:
        line = segment + line[len(segment) :]
        text = line.rstrip(" ")
        if text != shown:
            pictures.append((encoded(text),))
            shown = text
    return pictures or [(b"",)]


def _overlaid(raw: bytes, pen: bytes) -> tuple[bytes, bytes]:
    """Return how a line that begins in these colours looks, and the colours set at its end."""
    text = decoded(raw)
    if pen == NO_PEN and NARROW.fullmatch(text.replace("\r", "")):
        line = ""
        for segment in text.split("\r"):
            line = segment + line[len(segment) :]
        return encoded(line.rstrip(" "))[:MAX_ROW], pen
    row = Row()
    column = 0
    for token in _TOKEN.finditer(raw):
        kind = token.lastgroup
        if kind == "text":
            column, _ = row.put(column, decoded(token[0]), pen, _UNLIMITED)
        elif kind == "sgr":
            pen = pen_with(pen, token["sgr"])
        elif kind == "start":
            column = 0
        elif kind == "back":
            column = max(0, column - 1)
        elif kind == "tab":
            column = row.tab(column, _UNLIMITED)
        elif kind == "erase":
            mode = token["erase"]
            row.erase(0 if mode in (b"1", b"2") else column, column + 1 if mode == b"1" else None)
    return row.render(), pen
