"""Bells: who follows a ring hears that there is news."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.ipc.doorbell import HERALD, DoorbellClient, DoorbellServer
from tests.support.waiting import until


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[DoorbellServer]:
    server = DoorbellServer(str(tmp_path / "bell"), "token")
    yield server
    server.close()


def connect(bell: DoorbellServer, tmp_path: Path, token: str = "token") -> tuple[DoorbellClient, int]:
    client = DoorbellClient(str(tmp_path / "bell"), token)
    sock = until(bell.accept, "a connection")
    until(lambda: bell.readable(sock.fileno()) or sock.fileno() < 0, "the token")
    return client, sock.fileno()


def test_the_bell_rings_for_what_was_subscribed(bell: DoorbellServer, tmp_path: Path) -> None:
    """Names that were subscribed are heard, others are not, and unsubscribing ends it."""
    client, fd = connect(bell, tmp_path)
    client.subscribe("a")
    client.subscribe("b")
    bell.readable(fd)
    bell.readable(fd)
    bell.ring(["a", "x"], 0.0)
    assert client.receive() == ["a"]
    client.unsubscribe("a")
    bell.readable(fd)
    bell.ring(["a", "b"], 1.0)
    assert client.receive() == ["b"]
    client.close()
    assert bell.readable(fd) is False


def test_news_that_came_before_a_subscription_arrived(
    bell: DoorbellServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that read the ring before it subscribed is woken; older entries were read already."""
    client, fd = connect(bell, tmp_path)
    os.set_blocking(client.fileno(), False)
    bell.ring(["old"], 100.0)
    bell.ring(["new"], 102.1)
    monkeypatch.setattr(time, "monotonic", lambda: 102.2)
    for name, heard in (("new", ["new"]), ("never", []), ("old", [])):
        client.subscribe(name)
        bell.readable(fd)
        assert client.receive_now() == heard
    client.close()


def test_a_bell_is_heard_without_waiting(bell: DoorbellServer, tmp_path: Path) -> None:
    """On a loop: the names of one bell at a time, nothing when there is none, and that the writer has hung up."""
    client, fd = connect(bell, tmp_path)
    os.set_blocking(client.fileno(), False)
    for name in "ab":
        client.subscribe(name)
        bell.readable(fd)
    assert client.receive_now() == []
    bell.ring(["a"], 1.0)
    bell.ring(["b"], 2.0)
    assert [client.receive_now(), client.receive_now(), client.receive_now()] == [["a"], ["b"], []]
    stranger, _ = connect(bell, tmp_path, "another token")
    assert stranger.receive_now() is None
    client.close()
    stranger.close()


def test_idle_subscribers_of_the_name_are_woken_first(bell: DoorbellServer, tmp_path: Path) -> None:
    """A subscriber of that name, idle for ten milliseconds, gets an early wake-up; an active one gets only the bell."""
    client, fd = connect(bell, tmp_path)
    os.set_blocking(client.fileno(), False)
    client.subscribe("a")
    bell.readable(fd)
    bell.pre_wake("b", 10.0)
    assert client.receive_now() == []
    bell.pre_wake("a", 10.0)
    bell.ring(["a"], 10.001)
    assert [client.receive_now(), client.receive_now()] == [[f"{HERALD}a"], ["a"]]
    bell.pre_wake("a", 10.01)
    bell.ring(["a"], 10.011)
    assert [client.receive_now(), client.receive_now()] == [["a"], []]
    client.close()
    bell.pre_wake("a", 20.0)


def test_bells_close_together_are_one(bell: DoorbellServer, tmp_path: Path) -> None:
    """A second ring within two milliseconds waits until it is due, and then is not lost."""
    client, fd = connect(bell, tmp_path)
    client.subscribe("a")
    bell.readable(fd)
    bell.ring(["a"], 10.0)
    bell.ring(["a"], 10.001)
    due = bell.due_s()
    assert due is not None
    bell.ring([], due)
    assert [client.receive(), client.receive()] == [["a"], ["a"]]
    assert bell.due_s() is None
    client.close()


def test_a_deaf_reader_holds_nobody_up(bell: DoorbellServer, tmp_path: Path) -> None:
    """A reader that does not read keeps its news for later; ringing never blocks and nothing is lost."""
    client, fd = connect(bell, tmp_path)
    names = [f"{number:026d}" for number in range(2000)]
    for name in names:
        client.subscribe(name)
        bell.readable(fd)
    for step in range(2000):
        bell.ring(names, float(step))
    heard: set[str] = set()
    now = 10_000.0
    while bell.due_s() is not None or not heard:
        heard.update(client.receive() or [])
        now += 1
        bell.ring([], now)
    while heard != set(names):
        heard.update(client.receive() or [])
    client.close()


def test_a_deaf_reader_costs_no_time(bell: DoorbellServer, tmp_path: Path) -> None:
    """Who does not read is tried again twenty times a second, not five hundred times."""
    client, fd = connect(bell, tmp_path)
    client.subscribe("a")
    bell.readable(fd)
    now, tried = 0.0, 0
    while now < 10:
        bell.ring(["a"], now)
        now = max(now + 0.0001, bell.due_s() or 0)
        tried += 1
    assert tried < 2000
    client.close()


def test_a_wrong_token_is_hung_up_on(bell: DoorbellServer, tmp_path: Path) -> None:
    """Who does not know the token hears nothing."""
    client, _ = connect(bell, tmp_path, token="wrong")
    assert client.receive() is None
    client.close()
