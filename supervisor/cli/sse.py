"""Parser for server-sent events (HTML standard, section 9.2.6)."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerSentEvent:
    """A server-sent event."""

    name: str
    data: str
    id: str | None = None
    """The id of the event; None if it has none."""


class EventParser:
    """Parses events from pieces of a stream; keeps an incomplete event until the rest arrives."""

    def __init__(self) -> None:
        self._partial = b""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that `data` completes; ignore comments and ``retry``."""
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        for line in lines:
            line = line.removesuffix(b"\r")
            if line:
                self._field(line.decode("utf-8", "replace"))
            else:
                if self._data:
                    yield ServerSentEvent(self._name or "message", "\n".join(self._data), self._id)
                self._reset()

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id":
            self._id = value

    def _reset(self) -> None:
        self._name, self._data, self._id = "", [], None
