"""What tests read of a server: answers, and streams of events."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.api.support.schema_check import check, event_schema
from tests.support.client import event_fields

DEADLINE_S = 30.0
_CHECKED_LINES = 100


@dataclass
class Answer:
    """A response, read whole."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def media_type(self) -> str:
        return self.headers.get_content_type() if "Content-Type" in self.headers else ""


@dataclass
class Event:
    """One server-sent event."""

    name: str
    data: Any
    id: Any
    """A number, or the text of a cursor."""
    retry: int | None


class Stream:
    """A response that is a stream of events, read as it arrives."""

    def __init__(self, connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
        self.connection = connection
        self._path = path.partition("?")[0]
        connection.request("GET", path, headers=headers)
        self.response = connection.getresponse()
        self.status = self.response.status
        self.comments = 0
        self._checked = 0

    def events(self) -> Iterator[Event]:
        """Events until the server ends the stream."""
        for fields in event_fields(self.response):
            if "" in fields:
                self.comments += 1
            elif "data" in fields:
                event = Event(
                    fields["event"],
                    json.loads(fields["data"]),
                    _id(fields.get("id")),
                    int(fields["retry"]) if "retry" in fields else None,
                )
                # Lines are many and alike.
                if self._path.endswith("/log/stream") and (event.name != "line" or self._checked < _CHECKED_LINES):
                    check(event.data, event_schema(self._path, event.name))
                    self._checked += 1
                yield event

    def take(self, count: int) -> list[Event]:
        """The next `count` events other than pings."""
        events = []
        for event in self.events():
            if event.name == "ping":
                continue
            events.append(event)
            if len(events) == count:
                break
        return events

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def _id(text: str | None) -> Any:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text
