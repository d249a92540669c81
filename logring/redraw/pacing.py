"""Redrawn lines that arrive too fast to watch: only their final state is kept."""

import re

from logring.redraw.reducer import SEGMENTS, Drawn, Redraw
from logring.redraw.row_cells import MAX_ROW, NARROW, decoded, encoded

BURST = 256
"""So many redrawn lines may come at once with their history."""
PER_SECOND = 200

_CR = 0x0D
_SIMPLE = bytes(range(0x20, 0x7F))  # bytes that take a column each

_LONE_CR = re.compile(rb"\r(?!\n)")


class Pace:
    """How many redrawn lines may keep their history: a bucket of tokens, one for each line."""

    __slots__ = ("_last_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens: float = BURST
        self._last_ms = 0

    def room(self, now_ms: int) -> int:
        """So many may now."""
        passed_ms = max(0, now_ms - self._last_ms)
        self._tokens = min(BURST, self._tokens + passed_ms * PER_SECOND / 1000)
        self._last_ms = now_ms
        return int(self._tokens)

    def take(self, lines: int) -> None:
        """So many came."""
        self._tokens -= lines


def redrawn(text: bytes, most: int) -> int:
    """Return how many of these whole lines are redrawn; counted up to `most`."""
    count = 0
    found = _LONE_CR.search(text)
    while found and count < most:
        count += 1
        found = _LONE_CR.search(text, text.find(b"\n", found.end()))
    return count


def settled(text: bytes) -> bytes:
    """Whole lines of a pipe as :class:`logring.redraw.reducer.Redraw` leaves them."""
    return b"\n".join([_look(line) if b"\r" in line else line for line in text.split(b"\n")])


def _look(line: bytes) -> bytes:
    body = line[:-1] if line[-1] == _CR else line
    segments = body.rsplit(b"\r", SEGMENTS)[-SEGMENTS:]
    if len(segments) == 1:
        return line  # a line end of two bytes
    if len(body) > MAX_ROW:
        return _closely(line)
    shown = b"".join(segments)
    if shown.translate(None, _SIMPLE):
        return _look_of_text(list(map(decoded, segments))) if NARROW.fullmatch(decoded(shown)) else _closely(line)
    look = segments[-1]
    if len(look) < max(map(len, segments)):
        look = b""
        for segment in segments:
            look = segment + look[len(segment) :]
    return look.rstrip(b" ")


def _look_of_text(segments: list[str]) -> bytes:
    """The same where a character has more than one byte."""
    look = ""
    for segment in segments:
        look = segment + look[len(segment) :]
    return encoded(look.rstrip(" "))


def _closely(line: bytes) -> bytes:
    """Return the final state of a line that has colours, wide characters, or very many characters."""
    parts = Redraw(full=False).feed(line + b"\n")
    return b"".join(part.text if isinstance(part, Drawn) else part for part in parts).removesuffix(b"\n")
