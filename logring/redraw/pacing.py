"""Rate limit for the history of redrawn lines: lines too fast to watch keep only their final state."""

import re
from dataclasses import dataclass

from logring.redraw.reducer import SEGMENTS, Redraw, RedrawnLine
from logring.redraw.row_cells import MAX_ROW, NARROW, decoded, encoded
from logring.state_json import tagged

BURST = 256
"""Number of redrawn lines that can arrive at once and keep their history."""
PER_SECOND = 200

_CR = 0x0D
_SIMPLE = bytes(range(0x20, 0x7F))  # bytes that occupy one column each

_LONE_CR = re.compile(rb"\r(?!\n)")


@tagged("Pace", "_last_ms _tokens")
@dataclass(slots=True, eq=False)
class Pace:
    """A token bucket that limits the lines with a history; each redrawn line takes a token."""

    _tokens: float = BURST
    _last_ms: int = 0

    def room(self, now_ms: int) -> int:
        """Refill the bucket and return the number of lines that may keep their history now."""
        passed_ms = max(0, now_ms - self._last_ms)
        self._tokens = min(BURST, self._tokens + passed_ms * PER_SECOND / 1000)
        self._last_ms = now_ms
        return int(self._tokens)

    def take(self, lines: int) -> None:
        """Take the tokens of this many redrawn lines."""
        self._tokens -= lines


def redrawn(text: bytes, most: int) -> int:
    """Return how many of these complete lines are redrawn; the count stops at `most`."""
    count = 0
    match = _LONE_CR.search(text)
    while match and count < most:
        count += 1
        match = _LONE_CR.search(text, text.find(b"\n", match.end()))
    return count


def settled(text: bytes) -> bytes:
    """Return the final state of complete lines from a pipe, equal to the text of `logring.redraw.reducer.Redraw`."""
    return b"\n".join([_appearance(line) if b"\r" in line else line for line in text.split(b"\n")])


def _appearance(line: bytes) -> bytes:
    body = line[:-1] if line[-1] == _CR else line
    segments = body.rsplit(b"\r", SEGMENTS)[-SEGMENTS:]
    if len(segments) == 1:
        return line  # the only carriage return belongs to the line end
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
    """Return the same for text whose characters may have several bytes."""
    look = ""
    for segment in segments:
        look = segment + look[len(segment) :]
    return encoded(look.rstrip(" "))


def _closely(line: bytes) -> bytes:
    """Return the final state of a line that has colours or wide characters, or is very long."""
    parts = Redraw(full=False).feed(line + b"\n")
    return b"".join(part.text if isinstance(part, RedrawnLine) else part for part in parts).removesuffix(b"\n")
