"""Clients that send a request so slowly that it never ends."""

import contextlib
import socket
import subprocess
import sys

from tests.api.harness import Daemon

TURNS = """
import gevent
from api.worker import gunicorn  # which patches first
from gunicorn.http.body import Body
from gunicorn.http.unreader import IterUnreader
from api.worker import FairChunkedReader

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


def test_slow_headers_do_not_hold_others(daemon: Daemon) -> None:
    """A client that sends nothing costs nobody anything."""
    with socket.create_connection(("127.0.0.1", daemon.port)) as silent:
        silent.sendall(b"GET /api/runs HTTP/1.1\r\nHost: loc")
        assert daemon.get("/healthz", unix=False).status == 200


def test_a_crowd_of_slow_clients(daemon: Daemon) -> None:
    """Hundreds of halves of requests hold up neither TCP nor the Unix socket, and each may still be finished."""
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


def test_a_body_that_trickles(daemon: Daemon) -> None:
    """Whoever sends a body byte by byte holds up nobody, and needs no place of those who are served."""
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port)))
            client.sendall(
                b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
        assert daemon.get("/healthz", unix=False).status == 200
        assert daemon.ask("POST", "/api/tasks/job/run").status == 201


def test_tiny_chunks() -> None:
    """Of the thousand chunks that one read of a socket brings, few are looked at before others have a turn."""
    done = subprocess.run([sys.executable, "-c", TURNS], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1300 // 50
