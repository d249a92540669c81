"""Clients of streams that are slow, gone, or many."""

import ctypes
import http.client
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from store.runs.writes import Run
from tests.api.support.client import Stream
from tests.api.support.credentials import basic, bearer, make_token
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.starting import PATIENCE
from tests.api.support.streaming import (
    Ledger,
    connect,
    memory_kb,
    open_streams,
    path,
    request,
    running,
    tcp_connections,
)
from tests.support.waiting import until

SO_ATTACH_FILTER = 26
_LINES_EACH = 1000


def slow_stream(daemon: Daemon, run: Run) -> Stream:
    """A stream whose client reads only on demand."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(daemon, receives=4096)
    return Stream(connection, path(run), basic(PASSWORD))


def test_slow_readers(own: Daemon) -> None:
    """A client that reads nothing while more is printed than kept costs no memory, and then gets the exact gap.

    Reading again it gets the kept lines, then new ones, then done.
    """
    run = running(own)
    # Half a megabyte is kept.
    log = own.log_of(run, file_blocks=8, blocks=2)
    slow = [slow_stream(own, run) for _ in range(3)]
    (worker,) = own.workers()
    before_kb = memory_kb(worker)
    lines = 80_000
    for start in range(0, lines, _LINES_EACH):
        log.write(b"".join(b"%049d\n" % number for number in range(start, start + _LINES_EACH)))
    assert memory_kb(worker) - before_kb < 6 * 1024
    for stream in slow:
        events, ledger = stream.events(), Ledger()
        ledger.take(events, lines)
        assert ledger.sent + ledger.dropped == lines
        assert ledger.dropped > lines // 2
        assert ledger.sent > 0
    log.write(b"%d\n" % lines)
    log.finish()
    own.end(run.id, lines=lines + 1)
    for stream in slow:
        events = (event for event in stream.events() if event.name != "rotated")
        last, done = events
        assert (last.id, last.data["text"]) == (lines, str(lines))
        assert (done.name, done.data) == ("done", {"finalLine": lines, "status": "ended"})
        stream.close()


def test_stuck_client_does_not_delay_others(daemon: Daemon) -> None:
    """Other clients are served while one stream is stuck."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"".join(b"%d\n" % number for number in range(100_000)))
    log.finish()
    daemon.end(run.id, lines=100_000)
    with connect(daemon, receives=4096) as stuck:
        stuck.sendall(request(path(run, "?from=0&replayLimit=50000")))
        assert stuck.recv(12) == b"HTTP/1.1 200"
        other = daemon.stream(path(run, "?from=0&replayLimit=50000"))
        ledger = Ledger()
        ledger.take(other.events(), 100_000)
        assert (ledger.sent, ledger.dropped) == (50_000, 50_000)
        other.close()
        assert daemon.get("/healthz").status == 200


def hang_up(sock: socket.socket) -> None:
    """With a farewell."""
    sock.close()


def reset(sock: socket.socket) -> None:
    """Without one: RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def half_close(sock: socket.socket) -> None:
    """Say that nothing more will be asked, and wait for the end."""
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(65536):
        pass
    sock.close()


def fall_silent(sock: socket.socket) -> None:
    """Be a machine without power: nothing that arrives is seen, so nothing is confirmed."""
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(drop))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


class Impatient(Daemon):
    """A server that soon closes connections on which sent data is not acknowledged."""

    constants: ClassVar = {**PATIENCE, "api.streams.sse_response": {"SILENT_MS": 2000}}


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Impatient(tmp_path)
    yield daemon
    daemon.close()


def test_disconnected_clients(impatient: Daemon) -> None:
    """However a client disconnects, even without a FIN, nothing of its stream remains."""
    with socket.socket() as trial:
        try:
            fall_silent(trial)
        except PermissionError:
            pytest.skip("only root may attach filters to sockets here")
    run = running(impatient)
    log = impatient.log_of(run)
    # The first stream of a worker opens what all of them share.
    impatient.stream(path(run)).close()
    until(lambda: open_streams(impatient) == 0, "the first stream to end")
    (worker,) = impatient.workers()
    before = tcp_connections(worker)
    streams: list[socket.socket] = []
    for _ in range(40):
        sock = connect(impatient)
        sock.sendall(request(path(run)))
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
        streams.append(sock)
    assert open_streams(impatient) == 40
    assert tcp_connections(worker) >= 40
    silent, *going = (streams[start : start + 10] for start in range(0, 40, 10))
    for group, leave in zip(going, (hang_up, reset, half_close), strict=True):
        for sock in group:
            leave(sock)
    until(lambda: open_streams(impatient) == 10, "the streams of the others to end")
    for sock in silent:
        fall_silent(sock)
    log.write(b"is anybody there?\n")
    until(lambda: open_streams(impatient) == 0, "the streams of the silent ones to end")
    until(lambda: tcp_connections(worker) <= before, "their sockets to be closed")
    assert "Traceback" not in impatient.log.read_text()
    for sock in silent:
        sock.close()
    log.finish()


def test_many_idle_streams(own: Daemon) -> None:
    """Each idle stream costs a worker at most 20 kB, and later gets its lines."""
    run = running(own)
    request_bytes = request(path(run), credentials=bearer(make_token(own, "reader")))

    def opened(count: int) -> list[socket.socket]:
        streams = []
        for _ in range(count):
            streams.append(connect(own))
            streams[-1].sendall(request_bytes)
        for sock in streams:
            received = b""
            while b"retry: 1000" not in received:
                received += sock.recv(4096)
        return streams

    first = opened(20)
    (worker,) = own.workers()
    before_kb = memory_kb(worker)
    streams = opened(800)
    assert memory_kb(worker) - before_kb < 800 * 20
    assert open_streams(own) == 820
    log = own.log_of(run)
    log.write(b"here\n")
    log.finish()
    own.end(run.id, lines=1)
    for sock in (*first, *streams):
        received = b""
        # The last chunk is empty: the stream ends in order, and the connection could be used again.
        while not received.endswith(b"0\r\n\r\n"):
            data = sock.recv(65536)
            assert data
            received += data
        assert received.count(b"event: line\n") == received.count(b"event: done\n") == 1
        sock.close()
    until(lambda: open_streams(own) == 0, "the streams to end")
