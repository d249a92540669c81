"""Messages to the service manager."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.root.service_manager.sd_notify import Watchdog, tell_descriptor


@pytest.fixture
def notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(str(tmp_path / "notify"))
        yield sock


def test_watchdog_keep_alive(notices: socket.socket) -> None:
    """The first keep-alive is sent at once, later ones at half the watchdog interval."""
    dog = Watchdog({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())}, 10.0)
    sent = []
    for now_s in (10.0, 10.5, 11.9, 12.0, 12.1, 30.0, 30.1):
        dog.tick(now_s)
        try:
            sent.append((now_s, notices.recv(100), dog.due_s))
        except BlockingIOError:
            continue
    assert sent == [(10.0, b"WATCHDOG=1", 12.0), (12.0, b"WATCHDOG=1", 14.0), (30.0, b"WATCHDOG=1", 32.0)]


@pytest.mark.parametrize(
    "env",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}],
    ids=["no watchdog", "never", "nonsense", "another process"],
)
def test_no_watchdog_keep_alive(notices: socket.socket, env: dict[str, str]) -> None:
    """Without a valid watchdog interval for this process, no keep-alive is sent."""
    dog = Watchdog(env, 0.0)
    dog.tick(1e9)
    assert dog.due_s is None
    with pytest.raises(BlockingIOError):
        notices.recv(100)


def test_readiness_on_a_descriptor() -> None:
    """The readiness descriptor gets a line and is closed; a closed reader is not an error."""
    reader, writer = os.pipe()
    tell_descriptor(writer)
    assert (os.read(reader, 10), os.read(reader, 10)) == (b"\n", b"")
    os.close(reader)
    reader, writer = os.pipe()
    os.close(reader)
    tell_descriptor(writer)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer)
