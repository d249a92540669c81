"""Requests for streams and logs as no decent client sends them."""

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from store.runs.writes import Run
from tests.api.support.harness import Daemon
from tests.api.support.streaming import connect, memory_kb, open_streams, path, request, running
from tests.support.waiting import until


@pytest.fixture(scope="module")
def ended(shared: Daemon) -> Run:
    """An ended run with a hundred lines."""
    run = running(shared)
    log = shared.log_of(run)
    log.write(b"".join(b"%d\n" % number for number in range(100)))
    log.finish()
    shared.end(run.id, lines=100)
    return run


@pytest.fixture
def live(daemon: Daemon) -> Iterator[Run]:
    """A run that has printed two lines and goes on."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"0\n1\n")
    yield run
    log.finish()
    daemon.end(run.id, lines=2)


def answered(daemon: Daemon, *requests: bytes) -> bytes:
    """Everything that comes on one connection, to its end."""
    with connect(daemon) as sock:
        sock.sendall(b"".join(requests))
        received = b""
        while data := sock.recv(65536):
            received += data
        return received


def read_until(sock: socket.socket, end: bytes) -> bytes:
    received = b""
    while end not in received:
        data = sock.recv(65536)
        assert data, received
        received += data
    return received


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("-1", 100),
        ("-2", 2),
        ("-9223372036854775809", 2),
        ("9223372036854775806", 0),
        ("9223372036854775807", 0),
        ("9" * 4000, 0),
        ("0" * 4000 + "97", 2),
        ("-" + "9" * 4000, 2),
        ("+5", 2),
        ("0x10", 2),
        ("1e1", 2),
        ("1_0", 2),
        ("5,6", 2),
        ("5 6", 2),
        ("٣", 2),
        ("", 2),
        (" 97\t", 2),
    ],
)
def test_last_event_ids(daemon: Daemon, ended: Run, header: str, lines: int) -> None:
    """Last-Event-ID counts only as a decimal line number, perhaps with blanks around it; anything else is ignored."""
    answer = answered(daemon, request(path(ended, "?from=-2"), f"Last-Event-ID: {header}", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert (answer.count(b"event: line\n"), answer.count(b"event: done\n")) == (lines, 1)


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("from=9223372036854775807", 0),
        ("from=-9223372036854775808", 100),
        ("from=9223372036854775808", None),
        ("from=-9223372036854775809", None),
        ("replayLimit=9223372036854775807", None),
        ("from=1&from=2", None),
        ("from=%00", None),
        ("from=1%0d%0aX:1", None),
    ],
)
def test_extreme_anchors(daemon: Daemon, ended: Run, query: str, lines: int | None) -> None:
    """An anchor beyond 64 bits is refused; any other begins at the nearest line."""
    answer = answered(daemon, request(path(ended, f"?{query}"), "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 422 " if lines is None else b"HTTP/1.1 200 ")
    assert answer.count(b"event: line\n") == (lines or 0)


@pytest.mark.parametrize("header", ["X-Nothing: 1", "Connection: keep-alive"])
def test_http_1_0(daemon: Daemon, ended: Run, header: str) -> None:
    """An HTTP/1.0 client gets the same events without chunks, and the end of the connection as their end."""
    answer = answered(daemon, request(path(ended, "?from=-1"), header, version="1.0"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert body.startswith(b"retry: 1000\nid: 99\nevent: line\n")
    assert body.endswith(b"\nretry: 3600000\n\n")


def test_pipelined_streams(daemon: Daemon, ended: Run) -> None:
    """Fifty streams requested at once on one connection follow one another, and then comes the next answer."""
    last = request("/healthz", "Connection: close")
    answer = answered(daemon, request(path(ended, "?from=-1")) * 50, last)
    assert (answer.count(b"event: line\n"), answer.count(b"event: done\n")) == (50, 50)
    assert answer.count(b"HTTP/1.1 200 OK") == 51
    assert answer.endswith(b'"status":"ok"}')


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (["Content-Length: 5"], b"GET /"),
        (["Transfer-Encoding: chunked"], b"5\r\nGET /\r\n0\r\n\r\n"),
        (["Expect: 100-continue", "Content-Length: 5"], b"hello"),
    ],
)
def test_a_stream_with_a_body(daemon: Daemon, ended: Run, headers: list[str], body: bytes) -> None:
    """The body of a GET request is skipped, and never parsed as the next request."""
    answer = answered(
        daemon, request(path(ended, "?from=-1"), *headers), body, request("/healthz", "Connection: close")
    )
    assert answer.count(b"event: done\n") == 1
    assert answer.endswith(b'"status":"ok"}')
    assert b" 4" not in b"".join(line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/"))


def test_head_of_a_live_stream(daemon: Daemon, live: Run) -> None:
    """HEAD of a live stream ends, holds no resources, and leaves the connection usable."""
    for target in (path(live), "/api/events/stream", "/api/notifications/stream", "/api/daemon/log/stream"):
        answer = answered(daemon, request(target, method="HEAD"), request("/healthz", "Connection: close"))
        first, _, second = answer.partition(b"\r\n\r\n")
        assert b"text/event-stream" in first
        assert second.startswith(b"HTTP/1.1 200 OK")
    until(lambda: open_streams(daemon) == 0, "no stream to be open")


def test_an_aborted_stream_reports_no_gap(daemon: Daemon, ended: Run) -> None:
    """A stream that ends early reports no gap: its unsent lines are not lost, and a resumed stream gets them."""
    with connect(daemon) as sock:
        sock.sendall(request(path(ended, "?from=0")))
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while data := sock.recv(65536):
            received += data
    assert b"text/event-stream" in received
    assert b"event: dropped" not in received


def test_disconnect_after_a_pipelined_request(daemon: Daemon, live: Run) -> None:
    """A client that pipelines a request behind a stream and disconnects is noticed with the next event."""
    sock = connect(daemon)
    sock.sendall(request(path(live)) + request("/healthz"))
    read_until(sock, b'"text":"1"}\n\n')
    until(lambda: open_streams(daemon) == 1, "no other stream to be open")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    daemon.end(live.id, lines=2)
    until(lambda: open_streams(daemon) == 0, "the stream to end")


def log_files(pid: int) -> int:
    """How many log files a process has open."""
    names = os.listdir(f"/proc/{pid}/fd")
    return sum(os.path.realpath(f"/proc/{pid}/fd/{name}").endswith(".log") for name in names)


def test_abandoned_download(own: Daemon) -> None:
    """A client that reads a large log slowly, or only its first bytes, costs neither memory nor descriptors."""
    run = running(own)
    log = own.log_of(run, file_blocks=2000)
    piece = b"".join(b"line %d of a log that is large\n" % number for number in range(30_000))
    for _ in range(80):
        log.write(piece)
    log.finish()
    own.end(run.id, lines=2_400_000)
    own.get("/healthz")
    (worker,) = own.workers()
    before_kb, files = memory_kb(worker), log_files(worker)
    slow = [connect(own, receives=4096) for _ in range(8)]
    for sock in slow:
        sock.sendall(request(f"/api/runs/{run.id}/log/raw"))
        assert b"Content-Length: %d\r\n" % (80 * len(piece)) in read_until(sock, b"\r\n\r\n").title()
    assert log_files(worker) == files + 8
    fast = own.ask_raw("GET", f"/api/runs/{run.id}/log/raw")
    assert fast.body == piece * 80
    assert memory_kb(worker) - before_kb < 12 * 1024
    for sock in slow:
        sock.close()
    until(lambda: log_files(worker) == files, "the log to be closed")
