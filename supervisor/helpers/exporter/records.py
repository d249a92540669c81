"""Lines on their way to a receiver, and their form as JSON.

A record is one line of JSON::

    {"time":"2026-11-26T08:00:00.123Z","host":"db1","task":"web","runId":"01J…","instance":0,"stream":"stdout",
     "line":17,"text":"GET / 200"}

``continued`` is true for a part of a line that was too long for one record. A record with ``skipped`` stands for so
many lines, from number ``line`` on, that were gone before they could be exported.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from logring.block import Batch
from logring.layout import STREAM_NAMES, SYSTEM
from store.runs.record import Run
from supervisor.helpers.exporter.cursors import FollowedRun
from supervisor.ipc.counted import counted
from supervisor.ipc.log_line import stamp

GONE = "log_max_size or retention removed them"
DAMAGED = "the log file is damaged"
_PLAIN = bytes(code for code in range(0x20, 0x7F) if code not in b'"\\') + b"\n"
"""Bytes that JSON does not escape, and the ends of lines."""
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines of a log that can no longer be read."""

    n: int
    """The first of them."""
    ts: int
    """ms since the epoch."""
    skipped: int
    why: str
    stream: int = SYSTEM

    @property
    def next(self) -> int:
        """Number of the line behind them."""
        return self.n + self.skipped

    @property
    def text(self) -> str:
        """Return the text of the record."""
        return f"{counted(self.skipped, 'line')} missing: {self.why}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring lines of a run, or a gap."""

    run: FollowedRun
    content: Batch | Gap


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run whose lines are all delivered."""

    run: FollowedRun
    row: Run


def lines_of(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield number and text of each line; a gap is one line."""
    content = piece.content
    if isinstance(content, Gap):
        yield content.n, content.text.encode()
    else:
        yield from enumerate(content.text.split(b"\n"), content.n)


class DeliveryFailed(Exception):
    """The receiver did not take all lines; the text has no secrets.

    Attributes:
        taken: how many pieces it took.
    """

    def __init__(self, text: str, taken: int = 0) -> None:
        super().__init__(text)
        self.taken = taken


class Rejected(Exception):
    """The receiver will never take some lines; the text has no secrets.

    Attributes:
        taken: how many pieces it took.
        end: index behind the pieces with the rejected lines, which begin at `taken`.
        lines: how many lines of these pieces it rejected; None: all.
    """

    def __init__(self, text: str, taken: int, end: int, lines: int | None = None) -> None:
        super().__init__(text)
        self.taken = taken
        self.end = end
        self.lines = lines


class Sink(Protocol):
    """Delivers lines to one receiver."""

    def deliver(self, pieces: list[Piece]) -> int:
        """Deliver lines in their order; return how many pieces were delivered, at least one.

        Raises:
            DeliveryFailed: the receiver did not take the lines.
            Rejected: it will never take the next ones.
        """

    def idle(self) -> None:
        """Do work that is due without new lines.

        Raises:
            DeliveryFailed: it cannot be done.
        """

    def close(self) -> None:
        """Close the connection or the file."""


class EndSink(Protocol):
    """Delivers the ends of runs to one receiver."""

    def deliver_ends(self, runs: list[EndedRun]) -> int:
        """Deliver ends of runs; return how many were delivered, at least one.

        Raises:
            DeliveryFailed: the receiver did not take them.
            Rejected: it will never take the first ones.
        """


class JsonEncoder:
    """Encodes pieces as lines of JSON."""

    def __init__(self, host: str) -> None:
        self._host = _encode(host)

    def encode(self, piece: Piece) -> bytes:
        """Return one line of JSON per line of the piece."""
        content, run = piece.content, piece.run
        # The parts before the number are the same for all lines of a batch.
        head = b'{"time":"%b","host":%b,"task":%b,"runId":"%b","instance":%d,"stream":"%b","line":' % (
            stamp(content.ts).encode(),
            self._host,
            _encode(run.task),
            run.id.encode(),
            run.instance,
            STREAM_NAMES[content.stream].encode(),
        )
        if isinstance(content, Gap):
            return b'%b%d,"skipped":%d,"text":%b}\n' % (head, content.n, content.skipped, _encode(content.text))
        if content.continued:
            text = content.text.decode(errors="replace")
            return b'%b%d,"continued":true,"text":%b}\n' % (head, content.n, _encode(text))
        record = head.replace(b"%", b"%%") + b'%d,"text":"%b"}\n'
        return b"".join(map(record.__mod__, enumerate(_escaped_lines(content.text), content.n)))


def _escaped_lines(text: bytes) -> list[bytes]:
    """Return the lines of a text as contents of strings of JSON."""
    if not text.translate(None, _PLAIN):
        return text.split(b"\n")
    # One call escapes all lines. Between them stands '","', which nothing within a string of JSON looks like.
    return _encode(text.decode(errors="replace").split("\n"))[2:-2].split(b'","')
