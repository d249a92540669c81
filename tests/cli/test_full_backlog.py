"""Connecting to a daemon whose backlog of connections is full."""

import contextlib
import errno
import socket
from pathlib import Path

import pytest

from supervisor.cli.client import UnixEndpoint


def test_full_backlog(tmp_path: Path) -> None:
    """A client gives up within its time limit, even one below a second, if the daemon's backlog is full."""
    path = str(tmp_path / "http.sock")
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as waiting:
        server.bind(path)
        server.listen(0)
        full = 0
        while not full:
            client = waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            full = client.connect_ex(path)
        assert full == errno.EAGAIN
        with pytest.raises(BlockingIOError):
            UnixEndpoint(path).connection(0.5).connect()
