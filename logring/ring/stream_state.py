"""The state of one stream on its way into a ring."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from logring.layout import STREAM_NAMES, SYSTEM
from logring.mask import Mask
from logring.redraw.redraw_writer import Drawing
from logring.ring.live_region import Rows
from logring.state_json import from_json, tagged, to_json


@tagged(
    "",
    "_bytes=line_bytes _continued=continued _drawings=drawing _masks=mask _region=rows _swallow=swallow"
    " _tail_ms=last_ms _tails=tail _unmirrored=changed",
)
@dataclass(slots=True, eq=False)
class StreamState:
    """The unfinished line of a stream, and what its output passes before it is placed."""

    number: int = -1
    line_bytes: int = 0
    """Size of the stream's lines, in bytes."""
    tail: bytes = b""
    """The unfinished line, if the head block does not hold it."""
    continued: int = 0
    """CONTINUED if the unfinished line continues a line; otherwise 0."""
    last_ms: int = 0
    """Time of the last bytes, in ms since the epoch."""
    changed: bool = False
    """Whether the unfinished line has changed since readers saw it last."""
    mask: Mask | None = None
    drawing: Drawing | None = None
    """Set if the stream may redraw."""
    rows: Rows = ((), 0)
    """The rows that readers see in the live region."""
    swallow: bool = False
    """Whether to drop the rest of a line that a gap cut off."""


def new_streams() -> list[StreamState]:
    """Return the states of a log's streams, by their numbers."""
    return list(map(StreamState, range(len(STREAM_NAMES))))


def to_fields(streams: Iterable[StreamState]) -> dict[str, list[object]]:
    """Return the fields of the format, in which each field is a list with a value for each stream."""
    fields: dict[str, list[object]] = {}
    for stream in streams:
        for name, value in to_json(stream)["dict"]:
            fields.setdefault(name, []).append(value)
    del fields["_region"][SYSTEM]  # it never draws
    return fields


def from_fields(fields: dict[str, list[object]]) -> list[StreamState]:
    """Return the states with these fields, which are removed from `fields`.

    Raises:
        UnknownFormat, KeyError: a field is missing.
    """
    silent = to_json(StreamState())["dict"]
    fields["_region"] = [*fields["_region"], dict(silent)["_region"]]
    columns = {name: fields.pop(name) for name, _ in silent}
    streams = new_streams()
    for number in range(len(streams)):
        own = {"dict": [[name, column[number]] for name, column in columns.items()]}
        streams[number] = replace(from_json(StreamState, own), number=number)
    return streams
