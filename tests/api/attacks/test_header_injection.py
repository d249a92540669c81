"""Line breaks and second requests in values that return in headers, or that a proxy passes on."""

import socket

import pytest

from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon


def raw(daemon: Daemon, data: bytes) -> bytes:
    """Everything that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", daemon.port)) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while part := sock.recv(65536):
            answer += part
    return answer


@pytest.mark.parametrize("text", ["a%0d%0aX-Evil: 1", "a%0aSet-Cookie: x=1", "%0d%0a%0d%0a<html>", "%00"])
def test_paths_cannot_inject_headers(daemon: Daemon, text: str) -> None:
    """Nothing in a path becomes a header, neither in Location nor in Content-Disposition."""
    for path in (f"/api/tasks/{text}", f"/schemas/{text}.json", f"/{text}"):
        answer = daemon.ask("GET", path.replace(" ", "%20"))
        assert answer.status in (404, 422)
        assert {"X-Evil", "Set-Cookie"}.isdisjoint(answer.headers)


def test_invalid_host_is_not_echoed(daemon: Daemon) -> None:
    """An invalid host appears neither in links nor in headers, even where Host is not checked."""
    answer = daemon.get("/api/tasks", {"Host": 'evil"/><script>'})
    assert b"evil" not in answer.body
    assert answer.json["$schema"].startswith("http://localhost/")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\rSet-Cookie: b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n X: folded\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX\0: a\r\n\r\n",
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: +5\r\n\r\nhello",
    ],
)
def test_ambiguous_requests_are_refused(daemon: Daemon, head: bytes) -> None:
    """An ambiguous request is refused and its connection closed, so nothing after its head is parsed as a request."""
    smuggled = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(daemon, head + smuggled)
    assert answer.split(b" ")[1] in (b"400", b"501")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_download_names_are_safe(daemon: Daemon) -> None:
    """The name of a download contains only checked parts."""
    answer = daemon.get('/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/log/raw?stream=stdout"%0d%0aX:', basic(PASSWORD))
    assert answer.status == 422
