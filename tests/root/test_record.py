"""The memory that outlives a root, and the service manager's store in which it is."""

import array
import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from logring.mask import MAX_SECRET
from supervisor.root import record as records
from supervisor.root.fdstore import Store, handed_back
from supervisor.root.record import Record


@pytest.fixture
def record() -> Iterator[Record]:
    one = Record.make()
    yield one
    one.close()


def test_the_newest_counts(record: Record) -> None:
    """Whoever opens the memory finds what was put down last, and goes on with the numbers."""
    assert record.read() is None
    assert record.held() == (b"", b"", 0)
    for number in range(5):
        record.write({"number": number, "text": "ä" * number * 10_000})
        record.hold(b"out" * number, b"err", number)
        other = Record(os.dup(record.fd))
        assert other.read() == {"number": number, "text": "ä" * number * 10_000}
        assert other.held() == (b"out" * number, b"err", number)
        other.close()
    other = Record(os.dup(record.fd))
    other.write({"number": 5})
    assert record.read() == {"number": 5}
    other.close()


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 17, 100])
def test_a_writer_that_is_killed_in_the_middle(record: Record, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    """The copy before is whole."""
    write = os.pwrite
    record.write({"text": "one" * 100})
    record.write({"text": "two" * 100})
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:cut], at))
    record.write({"text": "xxx" * 100})
    monkeypatch.undo()
    other = Record(os.dup(record.fd))
    assert other.read() == {"text": "two" * 100}
    other.write({"text": "four"})
    assert other.read() == {"text": "four"}
    other.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.setblocking(False)
        yield one


def hear(manager: socket.socket) -> tuple[str, list[int]] | None:
    """One message, with the inodes of its descriptors."""
    try:
        data, ancillary, _, _ = manager.recvmsg(4096, socket.CMSG_SPACE(64))
    except BlockingIOError:
        return None
    fds = array.array("i")
    for _, _, content in ancillary:
        fds.frombytes(content)
    inodes = [os.fstat(fd).st_ino for fd in fds]
    for fd in fds:
        os.close(fd)
    return data.decode(), inodes


def waits(store: Store) -> bool:
    return store.due_s is not None


def drained(store: Store, manager: socket.socket) -> list[tuple[str, list[int]]]:
    """All messages, until nothing waits any more."""
    heard = []
    while True:
        while (message := hear(manager)) is not None:
            heard.append(message)
        if not waits(store):
            return heard
        store.tend(float("inf"))


def test_a_service_manager_that_is_slow(manager: socket.socket, record: Record, tmp_path: Path) -> None:
    """What its queue has no room for is sent later, in order, also when the descriptor is closed here by then."""
    store = Store(str(tmp_path / "notify"))
    inode = os.fstat(record.fd).st_ino
    count = 0
    while not waits(store):
        store.keep(f"R{count}", [record.fd])
        count += 1
    other = os.dup(record.fd)
    store.keep("LAST", [other])
    os.close(other)
    store.keep("NEVER", [record.fd])
    store.forget("NEVER")
    store.forget("R0")
    heard = drained(store, manager)
    names = [*(f"R{number}" for number in range(count)), "LAST"]
    store.close()
    assert heard == [
        *((f"FDSTORE=1\nFDPOLL=0\nFDNAME=ringward-{name}", [inode]) for name in names),
        ("FDSTOREREMOVE=1\nFDNAME=ringward-R0", []),
    ]


def test_what_waits_for_it_during_an_upgrade(manager: socket.socket, record: Record, tmp_path: Path) -> None:
    """The next root, with the same descriptors, sends what the one before could not."""
    before, after = (Store(str(tmp_path / "notify")) for _ in range(2))
    inode, count = os.fstat(record.fd).st_ino, 0
    while not waits(before):
        before.keep(f"R{count}", [record.fd])
        count += 1
    before.forget("R0")
    kept: list[int] = []

    def keep(fd: int) -> int:
        kept.append(os.dup(fd))
        return kept[-1]

    after.take_up(json.loads(json.dumps(before.take_down(keep))))
    before.close()
    heard = drained(after, manager)
    after.close()
    assert heard[count - 1 :] == [
        (f"FDSTORE=1\nFDPOLL=0\nFDNAME=ringward-R{count - 1}", [inode]),
        ("FDSTOREREMOVE=1\nFDNAME=ringward-R0", []),
    ]
    for fd in kept:  # each was closed when it was sent
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            os.fstat(fd)


def test_without_a_service_manager(record: Record) -> None:
    """Nothing is sent, and nothing waits."""
    store = Store("")
    store.keep("R", [record.fd])
    store.forget("R")
    assert store.due_s is None


def test_what_is_handed_back() -> None:
    """Descriptors that are ours by name, and only if they are meant for this process."""
    env = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": "4",
        "LISTEN_FDNAMES": "ringward-A:www.socket:ringward-B:ringward-A",
    }
    assert handed_back(env) == {"A": [3, 6], "B": [5]}
    assert handed_back({**env, "LISTEN_PID": "1"}) == {}
    assert handed_back({}) == {}


def test_how_large_it_may_be() -> None:
    """What masks may hold back fits between the places, whatever the secrets are."""
    assert records._HELD[1] - records._HELD[0] >= 2 * MAX_SECRET + 64
