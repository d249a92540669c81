"""What tests of streams share: their clients, seen from the kernel, and what of them a worker keeps."""

import re
import socket
from collections.abc import Iterable
from pathlib import Path

import psutil

from store.runs.writes import Run
from tests.api.support.client import Event
from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import make_run

KNOWN = basic(PASSWORD)


def running(daemon: Daemon) -> Run:
    """A run that is running, of the task ``stream``."""
    return daemon.insert(make_run(task="stream", status="running", started_at=1))


def path(run: Run, query: str = "") -> str:
    """Of its stream."""
    return f"/api/runs/{run.id}/log/stream{query}"


def request(
    target: str,
    *headers: str,
    method: str = "GET",
    version: str = "1.1",
    credentials: dict[str, str] = KNOWN,
) -> bytes:
    """A request with these credentials."""
    header_lines = [f"{name}: {value}" for name, value in credentials.items()]
    lines = [f"{method} {target} HTTP/{version}", "Host: localhost", *header_lines, *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def connect(daemon: Daemon, *, receives: int | None = None) -> socket.socket:
    """A connection over TCP that keeps at most about `receives` unread bytes."""
    sock = socket.socket()
    try:
        if receives is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", daemon.port))
    except BaseException:
        sock.close()
        raise
    return sock


def unread(daemon: Daemon, sock: socket.socket) -> int:
    """Bytes that wait in the receive queue of the server's end of a connection; -1: they are not to be seen."""
    port, peer = daemon.port, sock.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if local.endswith(f":{port:04X}") and remote.endswith(f":{peer:04X}"):
            return int(queues.partition(":")[2], 16)
    return -1


def tcp_connections(pid: int) -> int:
    """Count the TCP connections of a process; its sockets to other processes of the daemon come and go."""
    return sum(bool(connection.raddr) for connection in psutil.Process(pid).net_connections("tcp"))


def memory_kb(pid: int) -> int:
    """The memory of a process, without files: its share of these depends on other processes."""
    (figure,) = re.findall(r"^Anonymous: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(figure)


def open_streams(daemon: Daemon) -> int:
    """How many streams the worker that answers has open."""
    (figure,) = re.findall(rb"^ringward_sse_clients (\d+)$", daemon.get("/metrics").body, re.MULTILINE)
    return int(figure)


class Ledger:
    """Lines that were sent or named as dropped; every line has its own number as its text."""

    def __init__(self) -> None:
        self.next = 0
        self.sent = 0
        self.dropped = 0

    def take(self, events: Iterable[Event], until: int) -> None:
        """Go on to the event with which line `until` - 1 is accounted for."""
        for event in events:
            if event.name == "line":
                assert (event.id, int(event.data["text"])) == (self.next, self.next)
                self.next += 1
                self.sent += 1
            elif event.name == "dropped":
                assert event.data["after"] == self.next - 1
                self.next += event.data["count"]
                self.dropped += event.data["count"]
            else:
                assert event.name in ("region", "rotated")
            if self.next >= until:
                break
        assert self.next == until
