"""Encoding of server-sent events.

Rendering is separate from sending, because a chunk is rendered once for all streams at the same line. JSON text
contains no raw line breaks, so each event has exactly one data line.
"""

import fnmatch
from collections.abc import Callable
from typing import Any

import msgspec

from api.schemas.records import Dropped, Line, LineBatch, Region, Rotated
from api.schemas.wire_times import rfc3339
from logring import block
from logring.layout import STREAM_NAMES
from logring.reader import Page

RETRY = b"retry: 1000\n"
"""Prefix of a stream's first event. On its own, strict clients would treat it as an empty event."""
HEARTBEAT = b":\n"
"""A comment. An empty line after it would end an event, which strict clients treat as an empty event."""

_encoder = msgspec.json.Encoder()


class _Kind(msgspec.Struct, rename="camel"):
    """The fields of an event that the filters need; the decoder skips all others."""

    kind: str
    task_name: str | None = None


_kind = msgspec.json.Decoder(_Kind)


def event(name: str, data: object, *, number: int | None = None, retry_ms: int | None = None) -> bytes:
    """Encode one event, with optional ``id`` and ``retry`` fields."""
    head = b"" if number is None else b"id: %d\n" % number
    tail = b"" if retry_ms is None else b"retry: %d\n" % retry_ms
    return b"%bevent: %b\ndata: %b\n%b\n" % (head, name.encode(), _encoder.encode(data), tail)


def ping(now_ms: int) -> bytes:
    """Encode a ``ping``, which carries the server's time."""
    return event("ping", {"at": rfc3339(now_ms)})


def dropped(after: int, count: int) -> bytes:
    """Encode a gap: `count` lines after line `after` are not sent."""
    return event("dropped", Dropped(after, count))


def region(epoch: int, rows: list[str], stream: int) -> bytes:
    """Encode the rows that an output stream currently draws."""
    return event("region", Region(epoch, rows, STREAM_NAMES[stream]))


def rotated(first_available: int) -> bytes:
    """Encode the removal of lines before `first_available`."""
    return event("rotated", Rotated(first_available))


def line(record: block.Line | block.Batch) -> Line:
    """Return a log line in the form of the API; bytes that are not UTF-8 become U+FFFD."""
    return Line(
        record.n,
        record.ts,
        STREAM_NAMES[record.stream],
        record.text.decode("utf-8", "replace"),
        True if record.continued else msgspec.UNSET,
        record.frames or msgspec.UNSET,
    )


Render = Callable[[Any], bytes]
"""A function that renders one line or batch. Equal functions share their results."""


def log_line(record: block.Line | block.Batch) -> bytes:
    """Encode one log line as an event."""
    return b"id: %d\nevent: line\ndata: %b\n\n" % (record.n, _encoder.encode(line(record)))


def log_batch(batch: block.Batch) -> bytes:
    """Encode lines that were read together as one event, whose id is the number of the last line.

    A part of a long line, and a line with a history, is encoded as an event of its own.
    """
    if batch.continued or batch.frames:
        return log_line(batch)
    text = batch.text.decode("utf-8", "replace")
    lines = LineBatch(batch.n, batch.lines, batch.ts, STREAM_NAMES[batch.stream], text)
    return b"id: %d\nevent: lines\ndata: %b\n\n" % (batch.next - 1, _encoder.encode(lines))


class EventLines:
    """Renderer for the events ring, whose lines are already JSON objects."""

    def __init__(self, types: frozenset[str], tasks: str | None) -> None:
        """Set the filters.

        Args:
            types: Kinds of events to send; empty for all kinds.
            tasks: Glob pattern of the tasks whose events to send; None for all events.
        """
        self._types = types
        self._tasks = tasks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventLines) and (other._types, other._tasks) == (self._types, self._tasks)

    def __hash__(self) -> int:
        return hash((self._types, self._tasks))

    def __call__(self, record: block.Line) -> bytes:
        """Encode one event; return nothing if it is filtered out."""
        about = _kind.decode(record.text)
        kind = about.kind
        if self._types and kind not in self._types:
            return b""
        name = about.task_name
        if self._tasks is not None and (name is None or not fnmatch.fnmatchcase(name, self._tasks)):
            return b""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (record.n, kind.encode(), record.text)


def page(records: Page[Any], start: int, render: Render) -> bytes:
    """Encode a page that was read from line `start` on, after an event for the lines that it skipped."""
    gap = dropped(start - 1, records.skipped) if records.skipped else b""
    return gap + b"".join(map(render, records.lines))
