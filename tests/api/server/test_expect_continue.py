"""Clients that announce a body with ``Expect: 100-continue`` and wait before they send it, as curl does."""

import socket
from collections.abc import Iterator

import pytest

from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.support.client import TIMEOUT_S

RUN = "/api/tasks/job/run"
ADMIN = {"Content-Type": "application/json", **basic(PASSWORD)}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection:
    """A connection on which the test sends and reads bytes."""

    def __init__(self, daemon: Daemon) -> None:
        self._sock = socket.create_connection(("127.0.0.1", daemon.port), timeout=TIMEOUT_S)
        self._file = self._sock.makefile("rb")

    def send(self, path: str, headers: dict[str, str], body: bytes = b"", version: str = "1.1") -> None:
        sent = {"Host": "localhost", "Expect": "100-Continue", **headers}
        lines = [f"POST {path} HTTP/{version}", *(f"{name}: {value}" for name, value in sent.items())]
        self._sock.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body)

    def send_body(self, body: bytes) -> None:
        self._sock.sendall(body)

    def head(self) -> bytes:
        """Return the head of the next response."""
        lines = []
        while (line := self._file.readline()) not in (b"\r\n", b""):
            lines.append(line)
        return b"".join(lines) + line

    def read(self, size_bytes: int = -1) -> bytes:
        """Return the next bytes; by default, everything up to the end of the connection."""
        return self._file.read(size_bytes)

    def close(self) -> None:
        self._file.close()
        self._sock.close()


@pytest.fixture
def connection(daemon: Daemon) -> Iterator[Connection]:
    connection = Connection(daemon)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (RUN, {"Content-Length": "1048577", **ADMIN}, b"413 Content Too Large"),
        ("/api/runs/bulk/delete", {"Content-Length": "99999999", **ADMIN}, b"413 Content Too Large"),
        (RUN, {"Content-Length": "2"}, b"401 Unauthorized"),
        (RUN, {"Transfer-Encoding": "chunked"}, b"401 Unauthorized"),
        ("/nowhere", {"Content-Length": "2"}, b"404 Not Found"),
        ("/api/runs", {"Content-Length": "2"}, b"405 Method Not Allowed"),
        (RUN, {"Content-Length": "2", **ADMIN, "Expect": "more"}, b"417 Expectation Failed"),
    ],
)
def test_refused_before_the_body(connection: Connection, path: str, headers: dict[str, str], status: bytes) -> None:
    """A request that is refused anyway is refused before its body, and the connection ends."""
    connection.send(path, headers)
    head = connection.head()
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert b"Connection: close\r\n" in head
    assert CONTINUE not in connection.read()


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        (RUN, {"Content-Length": "2"}, b"{}", b"201"),
        (RUN, {"Transfer-Encoding": "chunked"}, b"2\r\n{}\r\n0\r\n\r\n", b"201"),
        ("/api/runs/bulk/delete", {"Content-Length": str(2 << 20)}, b" " * (2 << 20), b"400"),
    ],
)
def test_wanted_body(connection: Connection, path: str, headers: dict[str, str], body: bytes, status: bytes) -> None:
    """A body that is read is asked for once, and the connection stays usable."""
    for _ in range(2):
        connection.send(path, {**headers, **ADMIN})
        assert connection.head() == CONTINUE
        connection.send_body(body)
        head = connection.head()
        assert head.startswith(b"HTTP/1.1 " + status)
        skip_body(connection, head)


def skip_body(connection: Connection, head: bytes) -> None:
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert len(connection.read(length)) == length


def test_body_that_is_already_there(connection: Connection) -> None:
    """A client that does not wait is not asked."""
    connection.send(RUN, {"Content-Length": "2", **ADMIN}, b"{}")
    assert connection.head().startswith(b"HTTP/1.1 201 ")


def test_old_version(connection: Connection) -> None:
    """HTTP/1.0 has no 100, so its clients are not asked."""
    connection.send(RUN, {"Content-Length": "2", **ADMIN}, version="1.0")
    connection.send_body(b"{}")
    assert connection.head().startswith(b"HTTP/1.0 201 ")


def test_no_body(connection: Connection) -> None:
    """An expectation without a body is ignored."""
    for _ in range(2):
        connection.send("/nowhere", {"Content-Length": "0"})
        head = connection.head()
        assert head.startswith(b"HTTP/1.1 404 ")
        skip_body(connection, head)
