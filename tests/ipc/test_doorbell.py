"""Bells that wake the followers of a ring."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.ipc.doorbell import PRE_WAKE, DoorbellClient, DoorbellServer
from tests.support.waiting import until


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[DoorbellServer]:
    server = DoorbellServer(str(tmp_path / "bell"), "token")
    yield server
    server.close()


def connect(
    bell: DoorbellServer, tmp_path: Path, token: str = "token", *, blocking: bool = True
) -> tuple[DoorbellClient, int]:
    client = DoorbellClient(str(tmp_path / "bell"), token)
    fd = client.connect()
    assert fd is not None
    os.set_blocking(fd, blocking)
    sock = until(bell.accept, "a connection")
    until(lambda: bell.readable(sock.fileno(), 0.0) or sock.fileno() < 0, "the token")
    return client, sock.fileno()


def test_subscribed_names(bell: DoorbellServer, tmp_path: Path) -> None:
    """A client hears the names that it subscribed to, until it unsubscribes."""
    client, fd = connect(bell, tmp_path)
    client.subscribe("a")
    client.subscribe("b")
    bell.readable(fd, 0.0)
    bell.readable(fd, 0.0)
    bell.ring(["a", "x"], 0.0)
    assert client.receive() == ["a"]
    client.unsubscribe("a")
    bell.readable(fd, 0.0)
    bell.ring(["a", "b"], 1.0)
    assert client.receive() == ["b"]
    client.close()
    assert bell.readable(fd, 0.0) is False


def test_news_before_the_subscription(bell: DoorbellServer, tmp_path: Path) -> None:
    """A reader that read the ring before it subscribed is woken for newer entries, but not for entries that it read."""
    client, fd = connect(bell, tmp_path, blocking=False)
    bell.ring(["old"], 100.0)
    bell.ring(["new"], 102.1)
    for name, rung in (("new", ["new"]), ("never", ()), ("old", ())):
        client.subscribe(name)
        bell.readable(fd, 102.2)
        assert client.receive() == rung
    client.close()


def test_nonblocking_reads(bell: DoorbellServer, tmp_path: Path) -> None:
    """On a loop, a client reads one bell at a time, nothing if there is none, and the end of a closed connection."""
    client, fd = connect(bell, tmp_path, blocking=False)
    for name in "ab":
        client.subscribe(name)
        bell.readable(fd, 0.0)
    assert client.receive() == ()
    bell.ring(["a"], 1.0)
    bell.ring(["b"], 2.0)
    assert [client.receive(), client.receive(), client.receive()] == [["a"], ["b"], ()]
    stranger, _ = connect(bell, tmp_path, "another token")
    assert stranger.receive() is None
    client.close()
    stranger.close()


def test_early_wake_up(bell: DoorbellServer, tmp_path: Path) -> None:
    """A subscriber that was idle for ten milliseconds gets an early wake-up; an active one gets only the bell."""
    client, fd = connect(bell, tmp_path, blocking=False)
    client.subscribe("a")
    bell.readable(fd, 0.0)
    bell.pre_wake("b", 10.0)
    assert client.receive() == ()
    bell.pre_wake("a", 10.0)
    bell.ring(["a"], 10.001)
    assert [client.receive(), client.receive()] == [[f"{PRE_WAKE}a"], ["a"]]
    bell.pre_wake("a", 10.01)
    bell.ring(["a"], 10.011)
    assert [client.receive(), client.receive()] == [["a"], ()]
    client.close()
    bell.pre_wake("a", 20.0)


def test_bells_are_coalesced(bell: DoorbellServer, tmp_path: Path) -> None:
    """A second ring within two milliseconds waits until it is due, and then is not lost."""
    client, fd = connect(bell, tmp_path)
    client.subscribe("a")
    bell.readable(fd, 0.0)
    bell.ring(["a"], 10.0)
    bell.ring(["a"], 10.001)
    due = bell.due_s()
    assert due is not None
    bell.ring([], due)
    assert [client.receive(), client.receive()] == [["a"], ["a"]]
    assert bell.due_s() is None
    client.close()


def test_slow_reader_does_not_block(bell: DoorbellServer, tmp_path: Path) -> None:
    """Ringing never blocks on a reader that does not read, which gets all its news later."""
    client, fd = connect(bell, tmp_path)
    names = [f"{number:026d}" for number in range(2000)]
    for name in names:
        client.subscribe(name)
        bell.readable(fd, 0.0)
    for step in range(2000):
        bell.ring(names, float(step))
    rung: set[str] = set()
    now = 10_000.0
    while bell.due_s() is not None or not rung:
        rung.update(client.receive() or [])
        now += 1
        bell.ring([], now)
    while rung != set(names):
        rung.update(client.receive() or [])
    client.close()


def test_slow_reader_is_retried_rarely(bell: DoorbellServer, tmp_path: Path) -> None:
    """A bell to a reader that does not read is retried twenty times a second, not five hundred times."""
    client, fd = connect(bell, tmp_path)
    client.subscribe("a")
    bell.readable(fd, 0.0)
    now, tried = 0.0, 0
    while now < 10:
        bell.ring(["a"], now)
        now = max(now + 0.0001, bell.due_s() or 0)
        tried += 1
    assert tried < 2000
    client.close()


def test_wrong_token(bell: DoorbellServer, tmp_path: Path) -> None:
    """A connection with a wrong token is closed without a bell."""
    client, _ = connect(bell, tmp_path, token="wrong")
    assert client.receive() is None
    client.close()


def test_writer_is_replaced(bell: DoorbellServer, tmp_path: Path) -> None:
    """A client that connects to the next writer hears all names that it subscribed to, before or in between."""
    client, fd = connect(bell, tmp_path)
    client.subscribe("a")
    bell.readable(fd, 0.0)
    bell.close()
    assert client.receive() is None
    client.close()
    assert client.connect() is None
    client.subscribe("b")
    bell = DoorbellServer(str(tmp_path / "bell"), "token")
    assert client.connect() == client.connect() is not None
    sock = until(bell.accept, "a connection")
    for _ in range(3):  # the token and two names
        until(lambda: bell.readable(sock.fileno(), 0.0), "a packet")
    bell.ring(["a", "b"], 1.0)
    assert sorted(client.receive() or ()) == ["a", "b"]
    client.close()
    bell.close()
