"""Connecting to a daemon whose backlog of connections is full."""

import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from supervisor.cli import client
from supervisor.cli.client import UnixEndpoint


@pytest.fixture
def server(tmp_path: Path) -> Iterator[socket.socket]:
    """A listening socket with a full backlog."""
    path = str(tmp_path / "http.sock")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(path)
        listener.listen(0)
        full = 0
        while not full:
            other = waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            full = other.connect_ex(path)
        assert full == errno.EAGAIN
        yield listener


@contextlib.contextmanager
def interruptions(then: Callable[[], None]) -> Iterator[None]:
    """Interrupt the connecting client every 20 ms, and call `then` each time."""

    def interrupt(_number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename == client.__file__:
            then()

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_full_backlog(server: socket.socket) -> None:
    """A client gives up within its time limit, even one below a second, if the daemon's backlog is full."""
    with pytest.raises(BlockingIOError):
        UnixEndpoint(server.getsockname()).connection(0.5).connect()


def test_signals_do_not_prolong_the_wait(server: socket.socket) -> None:
    """Signals during the wait for a full backlog neither prolong it nor pass for a connection."""
    times: list[None] = []
    with interruptions(lambda: times.append(None)), pytest.raises(BlockingIOError):
        UnixEndpoint(server.getsockname()).connection(0.5).connect()
    assert times


def test_interrupted_wait_continues(server: socket.socket) -> None:
    """A client that was suspended while it waited for a full backlog continues to wait, and then connects."""
    accepted: list[socket.socket] = []
    times: list[None] = []

    def accept_later() -> None:
        times.append(None)
        if len(times) == 3:
            accepted.append(server.accept()[0])

    connection = UnixEndpoint(server.getsockname()).connection(60)
    with interruptions(accept_later):
        connection.connect()
    assert connection.sock.getpeername() == server.getsockname()
    connection.close()
    accepted[0].close()
