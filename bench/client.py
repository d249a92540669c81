"""A cheap HTTP client: it shares the cores with the daemon that it measures.

It uses one keep-alive connection over loopback TCP and authenticates with the password. It supports only the
features that the API uses: Content-Length and chunked streams, no redirects.
"""

import base64
import json
import select
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_READ_BYTES = 262144
_TIMEOUT_S = 260.0
_STREAM_S = 60.0


class Failed(Exception):
    """The API gave an unexpected answer."""


class Event(NamedTuple):
    """One event of a stream."""

    name: bytes
    data: bytes
    at_ns: int
    """Time of receipt on the monotonic clock."""


class Client:
    """One keep-alive connection to the API."""

    def __init__(self, port: int, password: str) -> None:
        self._authorization = base64.b64encode(f":{password}".encode()).decode()
        self._port = port
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self._sock.fileno()

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request with an optional JSON body."""
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if method == "POST" else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        self._sock.sendall(f"{head}Authorization: Basic {self._authorization}\r\n{length}\r\n".encode() + body)

    def _more(self) -> None:
        data = self._sock.recv(_READ_BYTES)
        if not data:
            raise Failed("the connection was closed")
        self._buffer += data

    def _head(self) -> tuple[int, dict[str, str]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._more()
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        self._buffer = self._buffer[end + 4 :]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split()[1]), headers

    def answer(self) -> tuple[int, bytes]:
        """Wait for the answer to the last request."""
        status, headers = self._head()
        if headers.get("transfer-encoding") == "chunked":  # from peers
            return status, b"".join(chunk for chunk, _ in self._chunks())
        size = int(headers.get("content-length", 0))
        while len(self._buffer) < size:
            self._more()
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        return status, body

    def get(self, path: str) -> Any:
        """GET a path and return its JSON."""
        return self._json("GET", path)

    def post(self, path: str, body: Any = None) -> Any:
        """POST a command and return its JSON."""
        return self._json("POST", path, b"" if body is None else json.dumps(body).encode())

    def _json(self, method: str, path: str, sent: bytes = b"") -> Any:
        self.send(method, path, sent)
        status, body = self.answer()
        if status not in (200, 201):
            raise Failed(f"{method} {path}: {status} {body.decode(errors='replace')}")
        return json.loads(body)

    def trigger(self, task: str, wait_s: int = 0) -> dict[str, Any]:
        """Run a task; with `wait_s`, wait for its end."""
        found: dict[str, Any] = self.post(f"/api/tasks/{task}/run?naming=camel" + (f"&wait={wait_s}" if wait_s else ""))
        return found

    def stream(self, path: str) -> Iterator[Event]:
        """Yield events until the stream ends; afterwards, the connection is free again.

        Raises:
            Failed: the stream is refused, breaks, or does not end within a minute.
        """
        self.send("GET", path)
        status, headers = self._head()
        if status != 200 or headers.get("transfer-encoding") != "chunked":
            raise Failed(f"{path}: {status}")
        text = b""
        for chunk, at_ns in self._chunks():
            *events, text = (text + chunk).split(b"\n\n")
            for event in events:
                fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
                if b"event" in fields:
                    yield Event(fields[b"event"], fields[b"data"], at_ns)

    def _chunks(self) -> Iterator[tuple[bytes, int]]:
        at_ns = time.monotonic_ns()
        deadline_ns = at_ns + int(_STREAM_S * 1e9)
        self._sock.settimeout(_STREAM_S)
        while at_ns < deadline_ns:
            while (end := self._buffer.find(b"\r\n")) < 0:
                self._more()
                at_ns = time.monotonic_ns()
            size = int(self._buffer[:end], 16)
            whole = end + 2 + size + 2
            while len(self._buffer) < whole:
                self._more()
                at_ns = time.monotonic_ns()
            chunk, self._buffer = self._buffer[end + 2 : whole - 2], self._buffer[whole:]
            if not size:
                self._sock.settimeout(_TIMEOUT_S)
                return
            yield chunk, at_ns
        raise Failed(f"the stream does not end within {_STREAM_S:g} s")

    def receive(self) -> bytes:
        """Return the received part of a stream, undecoded; wait for at least one byte."""
        return self._sock.recv(_READ_BYTES)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


def flood(clients: Iterable[Client], method: str, path: str, count: int, expected: int = 201) -> None:
    """Send the same request `count` times over all these connections in parallel, one at a time on each.

    Raises:
        Failed: an answer has an unexpected status.
    """
    poll = select.poll()
    by_fd = {client.fileno(): client for client in clients}
    left = count
    waiting = 0
    for client in by_fd.values():
        poll.register(client, select.POLLIN)
        if left:
            client.send(method, path)
            left, waiting = left - 1, waiting + 1
    while waiting:
        for fd, _ in poll.poll():
            client = by_fd[fd]
            status, body = client.answer()
            if status != expected:
                raise Failed(f"{method} {path}: {status} {body.decode(errors='replace')}")
            if left:
                client.send(method, path)
                left -= 1
            else:
                waiting -= 1
