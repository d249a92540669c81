"""Log lines on their way to a receiver, and their form in JSON.

A record is one line of JSON::

    {"time":"2026-11-26T08:00:00.123Z","host":"db1","task":"web","runId":"01J…","instance":0,"stream":"stdout",
     "line":17,"text":"GET / 200"}

``continued`` is true if the line was too long for one record and the next record continues it. A record with
``skipped`` replaces that number of lines, beginning with number ``line``, that were lost before they could be exported.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from logring.block import Batch
from logring.layout import STREAM_NAMES, SYSTEM
from store.runs.record import Run
from supervisor.helpers.exporter.cursors import FollowedRun
from supervisor.ipc.log_line import stamp
from supervisor.ipc.plural import counted

GONE = "log_max_size or retention removed them"
DAMAGED = "the log file is damaged"
CUT = " … [cut]".encode()
"""The end of a line that was cut because the receiver does not accept it whole."""
_PLAIN = bytes(code for code in range(0x20, 0x7F) if code not in b'"\\') + b"\n"
"""The bytes that JSON does not escape, and the newline between lines."""
_MOST_LINES = 2000
_MOST_TEXT = 1 << 16
"""Limits of a piece, in lines and bytes: about 600 kB in JSON, even if all characters are escaped."""
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class LogGap:
    """Lines of a log that can no longer be read."""

    n: int
    """The number of the first missing line."""
    ts: int
    """When the gap was noticed, in ms since the epoch."""
    skipped: int
    reason: str
    stream: int = SYSTEM

    @property
    def next(self) -> int:
        """The number of the first line after the gap."""
        return self.n + self.skipped

    @property
    def text(self) -> str:
        """Return the text of the record, which says how many lines are missing and why."""
        return f"{counted(self.skipped, 'line')} missing: {self.reason}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive lines of a run, or a gap."""

    run: FollowedRun
    content: Batch | LogGap


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended and whose lines are all delivered."""

    run: FollowedRun
    row: Run


def lines_of(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line; a gap yields one line."""
    content = piece.content
    if isinstance(content, LogGap):
        yield content.n, content.text.encode()
    else:
        yield from enumerate(content.text.split(b"\n"), content.n)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Divide a batch of at least two lines."""
    lines = batch.text.split(b"\n")
    half = len(lines) // 2
    first, second = b"\n".join(lines[:half]), b"\n".join(lines[half:])
    return (
        batch._replace(text=first, lines=half),
        batch._replace(text=second, lines=batch.lines - half, n=batch.n + half),
    )


def in_small_pieces(batch: Batch) -> Iterator[Batch]:
    """Yield a batch in parts that each fit in one request, and after which the cursors can be stored."""
    if batch.lines == 1 or (batch.lines <= _MOST_LINES and len(batch.text) <= _MOST_TEXT):
        yield batch
    else:
        for half in halves(batch):
            yield from in_small_pieces(half)


class DeliveryFailed(Exception):
    """The receiver did not accept all lines now, so the rest must be tried again; the text has no secrets.

    Attributes:
        delivered: The number of pieces that it accepted.
        retry_after_ms: How long it asks to wait; 0: it does not say.
    """

    def __init__(self, text: str, delivered: int = 0, retry_after_ms: int = 0) -> None:
        super().__init__(text)
        self.delivered = delivered
        self.retry_after_ms = retry_after_ms


class LinesRejected(Exception):
    """The receiver will never accept some of the lines; the text has no secrets.

    Attributes:
        delivered: The number of pieces that it accepted before the rejected ones.
        end: The index after the pieces with rejected lines, which begin at `delivered`.
        lines: How many lines of these pieces it rejected; None: all of them.
    """

    def __init__(self, text: str, delivered: int, end: int, lines: int | None = None) -> None:
        super().__init__(text)
        self.delivered = delivered
        self.end = end
        self.lines = lines


class TooLarge(LinesRejected):
    """The receiver may accept the lines in smaller requests."""


class Sink(Protocol):
    """Delivers lines to one receiver."""

    def deliver(self, pieces: list[Piece]) -> int:
        """Deliver the lines in order; return how many pieces were delivered, at least one.

        Raises:
            DeliveryFailed: the receiver did not accept all lines now.
            LinesRejected: the receiver will never accept some of the lines.
        """

    def idle(self) -> None:
        """Do work that is due even without new lines, such as rotating a file.

        Raises:
            DeliveryFailed: the work failed.
        """

    def close(self) -> None:
        """Close the connection or the file."""


class EndSink(Protocol):
    """Delivers the ends of runs to one receiver."""

    def deliver_ends(self, runs: list[EndedRun]) -> int:
        """Deliver ends of runs; return how many were delivered, at least one.

        Raises:
            DeliveryFailed: the receiver did not accept them now.
            LinesRejected: the receiver will never accept some of them.
        """


class JsonEncoder:
    """Encodes pieces as lines of JSON."""

    def __init__(self, host: str) -> None:
        self._host = _encode(host)

    def encode(self, piece: Piece) -> bytes:
        """Return one line of JSON for each line of the piece; a gap is one line."""
        content, run = piece.content, piece.run
        # Everything before the line number is the same for all lines of a batch.
        head = b'{"time":"%b","host":%b,"task":%b,"runId":"%b","instance":%d,"stream":"%b","line":' % (
            stamp(content.ts).encode(),
            self._host,
            _encode(run.task),
            run.id.encode(),
            run.instance,
            STREAM_NAMES[content.stream].encode(),
        )
        if isinstance(content, LogGap):
            return b'%b%d,"skipped":%d,"text":%b}\n' % (head, content.n, content.skipped, _encode(content.text))
        if content.continued:
            text = content.text.decode(errors="replace")
            return b'%b%d,"continued":true,"text":%b}\n' % (head, content.n, _encode(text))
        record = head.replace(b"%", b"%%") + b'%d,"text":"%b"}\n'
        return b"".join(map(record.__mod__, enumerate(_escaped_lines(content.text), content.n)))


def _escaped_lines(text: bytes) -> list[bytes]:
    """Return the lines of a text, escaped as the contents of JSON strings."""
    if not text.translate(None, _PLAIN):
        return text.split(b"\n")
    # One call escapes all lines. They are separated by '","', which cannot occur inside a JSON string.
    return _encode(text.decode(errors="replace").split("\n"))[2:-2].split(b'","')
