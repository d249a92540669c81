"""What tests read of a server: answers, and streams of events."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.api.support.schema_check import check, event_schema

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


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self._path)


@dataclass
class Event:
    """One server-sent event."""

    name: str
    data: Any
    id: int | None
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
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                self.comments += 1
            elif text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif "data" in fields:
                event = Event(
                    fields["event"],
                    json.loads(fields["data"]),
                    int(fields["id"]) if "id" in fields else None,
                    int(fields["retry"]) if "retry" in fields else None,
                )
                # Lines are many and alike.
                if self._path.endswith("/log/stream") and (event.name != "line" or self._checked < _CHECKED_LINES):
                    check(event.data, event_schema(self._path, event.name))
                    self._checked += 1
                fields = {}
                yield event
            else:
                fields = {}

    def take(self, count: int) -> list[Event]:
        """The next `count` events."""
        found = []
        for event in self.events():
            found.append(event)
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self.response.close()
        self.connection.close()
