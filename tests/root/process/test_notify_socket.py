"""Messages of a run to its sd_notify socket."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from supervisor.ipc.messages import Spawn
from supervisor.root.process.notify_socket import BATCH, NotifySocket
from tests.support.waiting import until

SECRET = "hunter2hunter2"


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@pytest.fixture
def notify_socket() -> Iterator[NotifySocket]:
    before = threads()
    made = NotifySocket(
        Spawn(
            run="R",
            task="t",
            argv=["true"],
            env={"TOKEN": SECRET},
            secrets=["TOKEN"],
            log="/nonexistent",
            log_max_bytes=1,
            stop_signal=15,
            grace_ms=0,
            notify=f"@ringward/test/{os.getpid()}",
        )
    )
    yield made
    made.close()
    until(lambda: threads() <= before, "its address to be free")


def say(text: bytes, *fds: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(f"\0ringward/test/{os.getpid()}")
        socket.send_fds(sock, [text], list(fds))


def ours(pid: int) -> bool:
    return pid == os.getpid()


@pytest.mark.parametrize(
    ("words", "news"),
    [
        (b"READY=1", {"ready_at": 7}),
        (b"READY=1\nSTATUS=warm\nMAINPID=1", {"ready_at": 7, "status": "warm"}),
        (b"READY=0", {}),
        (b"READY=1\0", {"ready_at": 7}),
        (b"WATCHDOG=1\n", {"alive": True}),
        (b"WATCHDOG=trigger", {"triggered": True}),
        (b"STOPPING=1", {"stopping_at": 7, "status": "stopping"}),
        (b"STOPPING=1\nSTATUS=2 requests left", {"stopping_at": 7, "status": "2 requests left"}),
        (b"STATUS\nREADY\nSTOPPING\nWATCHDOG", {}),
        (b"STATUS=\x1b[31m red\xff\x00", {"status": "[31m red�"}),
        (f"STATUS=with {SECRET}".encode(), {"status": "with ***"}),
        (b"STATUS=" + b"x" * 4000, {"status": "x" * 200}),
        (b"nonsense", {}),
        (b"", {}),
    ],
)
def test_assignments(notify_socket: NotifySocket, words: bytes, news: dict[str, object]) -> None:
    """Known assignments count, and unknown ones in the same message are ignored."""
    say(words)
    assert notify_socket.receive(ours, 7) == (news, False)


def test_state_is_remembered(notify_socket: NotifySocket) -> None:
    """Readiness, stopping and a triggered watchdog are reported once; the newest status counts."""
    assert notify_socket.state() is None
    say(b"READY=1\nSTATUS=one")
    notify_socket.receive(ours, 7)
    say(b"READY=1\nSTATUS=two\nWATCHDOG=1")
    assert notify_socket.receive(ours, 9)[0] == {"status": "two", "alive": True}
    assert notify_socket.state() == {"ready_at": 7, "status": "two"}
    say(b"STOPPING=1\nWATCHDOG=trigger")
    assert notify_socket.receive(ours, 11)[0] == {"stopping_at": 11, "triggered": True}
    say(b"STOPPING=1\nSTATUS\nWATCHDOG=trigger")
    assert notify_socket.receive(ours, 13)[0] == {}
    assert notify_socket.state() == {"ready_at": 7, "stopping_at": 11, "triggered": True, "status": "two"}


def test_messages_of_other_processes(notify_socket: NotifySocket) -> None:
    """Messages from other processes are ignored."""
    say(b"READY=1")
    assert notify_socket.receive(lambda _pid: False, 7) == ({}, False)
    assert notify_socket.state() is None


def test_barrier_descriptor_is_closed(notify_socket: NotifySocket) -> None:
    """A barrier descriptor is closed after all earlier messages have been read."""
    theirs, mine = os.pipe()
    say(b"BARRIER=1", mine)
    os.close(mine)
    os.set_blocking(theirs, False)
    with pytest.raises(BlockingIOError):
        os.read(theirs, 1)
    notify_socket.receive(ours, 7)
    os.set_blocking(theirs, True)
    assert os.read(theirs, 1) == b""
    os.close(theirs)


@pytest.mark.parametrize("others", [0, 252])
def test_slow_close_does_not_block(notify_socket: NotifySocket, others: int) -> None:
    """A descriptor that lingers on close, such as a connection with unread data, does not block the root."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        lingering = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    lingering.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            lingering.send(bytes(65536))
    before = threads()
    with peer:
        say(b"READY=1", *[0] * others, lingering.fileno())
        os.close(lingering.detach())  # not the last: the datagram has another one
        assert notify_socket.receive(ours, 1)[0] == {"ready_at": 1}
        assert threads() - before
    until(lambda: threads() <= before, "it to be closed")


def test_slow_closes_are_bounded(notify_socket: NotifySocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """While many descriptors of a run wait to be closed, its messages stay unread; then reading resumes."""
    go = threading.Event()
    really = os.close
    monkeypatch.setattr("supervisor.root.process.notify_socket.os.close", lambda fd: (go.wait(), really(fd)))
    for _ in range(8):
        say(b"WATCHDOG=1", *[0])
    for _ in range(2):
        received = [notify_socket.receive(ours, 1) for _ in range(3)]
        for _ in range(8):
            say(b"WATCHDOG=1", *[0])
    assert received[-1] == ({}, True)
    go.set()
    until(lambda: notify_socket.receive(ours, 1)[0].get("alive"), "it to be heard again")


def test_no_threads_for_closing(notify_socket: NotifySocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread for closing, descriptors wait for one; then reading resumes."""
    before = set(os.listdir("/proc/self/fd"))

    def start(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("_thread.start_new_thread", start)
        for _ in range(4):
            for _ in range(8):
                say(b"WATCHDOG=1", *[0])
            received = notify_socket.receive(ours, 1)
            if received[1]:
                break
    assert received[1]
    say(b"READY=1")
    until(lambda: notify_socket.receive(ours, 1)[0].get("ready_at"), "it to be heard again")
    until(lambda: set(os.listdir("/proc/self/fd")) <= before, "nothing to stay open")


def test_flood_is_read_in_batches(notify_socket: NotifySocket) -> None:
    """One call reads a bounded number of messages, and reports that more may follow."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(f"\0ringward/test/{os.getpid()}")
        sock.setblocking(False)
        sent = 0
        try:
            while sent < 10 * BATCH:
                sock.send(b"WATCHDOG=1")
                sent += 1
        except BlockingIOError:  # the kernel's own bound
            pass
        news, more = notify_socket.receive(ours, 7)
    assert news == {"alive": True}
    assert more == (sent >= BATCH)
