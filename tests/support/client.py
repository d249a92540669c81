"""A client of the HTTP API over a Unix socket: responses, and streams of server-sent events."""

import http.client
import json
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

TIMEOUT_S = 60.0
_SILENCE_S = 120.0


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over the Unix socket at `path`."""

    def __init__(self, path: str, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Answer:
    """A complete response."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


def event_fields(lines: Iterable[bytes]) -> Iterator[dict[str, str]]:
    """Yield the fields of each event of a stream, by name; yield a comment at once, as a field without a name."""
    fields: dict[str, str] = {}
    for raw in lines:
        name, colon, value = raw.decode().rstrip("\n").partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif colon:
            yield {"": value}
        elif fields:
            yield fields
            fields = {}


class Event:
    """One event of a stream."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.kind = fields.get("event", "message")
        self.id = fields.get("id")
        self.data: Any = json.loads(fields["data"]) if fields.get("data") else None


class Stream:
    """An open stream; iterate over its events until the server closes it. Comments and pings are skipped."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status
        self.headers = response.headers

    def __iter__(self) -> Iterator[Event]:
        begin_s = time.monotonic()
        for fields in event_fields(self._lines()):
            if fields.get("event") != "ping" and ("event" in fields or "data" in fields):
                yield Event(fields)
                begin_s = time.monotonic()
            elif time.monotonic() - begin_s > _SILENCE_S:
                raise AssertionError(f"the stream has sent nothing but heartbeats for {_SILENCE_S:.0f} s")

    def _lines(self) -> Iterator[bytes]:
        try:
            # Not the response itself: ending this generator would close it, and a later iteration would find nothing.
            yield from iter(self._response.readline, b"")
        except (http.client.IncompleteRead, ConnectionResetError):  # the server was killed
            return

    def close(self) -> None:
        self._response.close()
        self._connection.close()
