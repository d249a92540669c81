"""Clients that send a request so slowly that it never ends."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from tests.api.support.credentials import basic, bearer, make_token
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.starting import PATIENCE
from tests.support.waiting import until

TURNS = """
import gevent
from api.server.worker import gunicorn  # which patches first
from gunicorn.http.body import Body
from gunicorn.http.unreader import IterUnreader
from api.server.worker import FairChunkedReader

turns = 0

def others():
    global turns
    while True:
        turns += 1
        gevent.sleep(0)

gevent.spawn(others)
data = b"1\\r\\n \\r\\n" * 1300 + b"0\\r\\n\\r\\n"
assert len(Body(FairChunkedReader(None, IterUnreader([data]))).read()) == 1300
print(turns)
"""

ROOM = """
import sys
import gevent
from api.server.worker import FairUnreader, Pool, Worker  # which patches first
import socket

ours, theirs = socket.socketpair()
worker = Worker.__new__(Worker)
worker._waiting = {}
pool = Pool(2)

def first():
    greenlet = gevent.getcurrent()
    worker._waiting[greenlet] = None
    for _ in range(int(sys.argv[1])):
        gevent.sleep(0)
    FairUnreader(ours, worker._waiting).chunk()
    worker._waiting.pop(greenlet, None)  # as with each request
    try:
        gevent.sleep(0.01)
        print("answered")
    except gevent.GreenletExit:
        print("ended within the request")

def second():
    worker._waiting[gevent.getcurrent()] = None
    worker._make_room(pool, gevent.getcurrent())

theirs.sendall(b"POST / HTTP/1.1")
pool.spawn(first)
pool.spawn(second)
pool.join()
"""

PLACES = 20


class Narrow(Daemon):
    """It serves few connections at a time."""

    constants: ClassVar = {**PATIENCE, "api.server.arbiter": {"_CONNECTIONS": PLACES}}


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Narrow]:
    daemon = Narrow(tmp_path)
    yield daemon
    daemon.close()


def test_slow_headers_do_not_delay_others(daemon: Daemon) -> None:
    """A client that sends nothing does not delay others."""
    with socket.create_connection(("127.0.0.1", daemon.port)) as silent:
        silent.sendall(b"GET /api/runs HTTP/1.1\r\nHost: loc")
        assert daemon.get("/healthz", unix=False).status == 200


def test_many_slow_clients(daemon: Daemon) -> None:
    """Hundreds of unfinished requests delay neither TCP nor the Unix socket, and each can still be finished."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port))) for _ in range(300)]
        for number, client in enumerate(clients):
            head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
            client.sendall(head[: 1 + number % len(head)])
        assert daemon.get("/healthz", unix=False).status == 200
        assert daemon.get("/api/runs").status == 200
        last = clients[0]
        last.sendall(b"ET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert last.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_trickling_body(daemon: Daemon) -> None:
    """A client that sends its body byte by byte delays no other client and takes no place of an active client."""
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port)))
            client.sendall(
                b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
        assert daemon.get("/healthz", unix=False).status == 200
        assert daemon.ask("POST", "/api/tasks/job/run").status == 201


@pytest.mark.parametrize(
    "request_part",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: loc",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "one request", "half a body"],
)
def test_more_silent_clients_than_places(narrow: Narrow, request_part: bytes) -> None:
    """At the connection limit, the client that has been silent longest is disconnected; others and streams stay."""
    stream = narrow.stream("/api/events/stream?types=run.created", basic(PASSWORD), unix=False)
    with contextlib.ExitStack() as stack:
        stack.callback(stream.close)
        for _ in range(2 * PLACES):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", narrow.port), timeout=60))
            client.sendall(request_part)
        assert narrow.get("/healthz", unix=False).status == 200
        narrow.announce("run.created", taskName="job")
        assert [event.name for event in stream.take(1)] == ["run.created"]


def test_more_nonreading_clients_than_places(narrow: Narrow) -> None:
    """A client that does not read its answer is disconnected too, because large answers need no credentials."""
    with contextlib.ExitStack() as stack:
        for _ in range(2 * PLACES):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", narrow.port))
            client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        assert narrow.get("/healthz", unix=False).status == 200


def test_more_streams_than_places(narrow: Narrow) -> None:
    """At the limit, a stream of the client with the most is closed and can resume; other clients keep theirs."""
    path = "/api/events/stream?types=run.created"
    tokens = [make_token(narrow, role="viewer", name=name) for name in ("few", "many")]
    with contextlib.ExitStack() as stack:
        streams = []
        for token in [tokens[0]] + [tokens[1]] * (PLACES - 1):
            streams.append(narrow.stream(path, bearer(token), unix=False))
            stack.callback(streams[-1].close)
        assert narrow.get("/healthz", unix=False).status == 200
        assert streams[1].take(1) == []
        narrow.announce("run.created", taskName="job")
        assert [event.name for event in streams[0].take(1)] == ["run.created"]


def triggered(daemon: Daemon, times: int) -> bool:
    return [op for op, _ in daemon.scheduler.calls].count("trigger") >= times


def test_all_places_busy(narrow: Narrow) -> None:
    """Connections that were all busy when the last place was taken are closed once they wait for another request."""
    credentials = basic(PASSWORD)["Authorization"]
    request = f"POST /api/tasks/job/run?wait=240 HTTP/1.1\r\nHost: localhost\r\nAuthorization: {credentials}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(1, PLACES + 1):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", narrow.port), timeout=60))
            client.sendall(request.encode())
            until(partial(triggered, narrow, number), "its trigger")
            clients.append(client)
        for op, arguments in list(narrow.scheduler.calls):
            if op == "trigger":
                narrow.end(arguments["run"])
        for client in clients:
            assert client.recv(4096).startswith(b"HTTP/1.1 201 ")
        assert narrow.get("/healthz", unix=False).status == 200


def test_more_vanished_clients_than_places(narrow: Narrow) -> None:
    """A client that hangs up while it waits for the end of a run frees its place at once."""
    credentials = basic(PASSWORD)["Authorization"]
    request = f"POST /api/tasks/job/run?wait=240 HTTP/1.1\r\nHost: localhost\r\nAuthorization: {credentials}\r\n\r\n"
    for number in range(1, 2 * PLACES + 1):
        with socket.create_connection(("127.0.0.1", narrow.port), timeout=60) as client:
            client.sendall(request.encode())
            until(partial(triggered, narrow, number), "its trigger")
    assert narrow.get("/healthz", unix=False).status == 200


def test_tiny_chunks() -> None:
    """Of a thousand chunks from one read of a socket, only a few are handled before others have a turn."""
    done = subprocess.run([sys.executable, "-c", TURNS], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1300 // 50


@pytest.mark.parametrize(("turns", "output"), [(0, "answered\n"), (1, "")], ids=["begun", "not begun"])
def test_request_on_a_connection_that_is_being_closed(turns: int, output: str) -> None:
    """A request is answered if its execution has begun, and is otherwise never executed."""
    run = [sys.executable, "-c", ROOM, str(turns)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == output
