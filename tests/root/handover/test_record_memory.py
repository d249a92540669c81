"""The memory that outlives a root, and the service manager's store that holds it."""

import array
import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logring.mask import MAX_SECRET
from logring.state_json import UnknownFormat
from supervisor.ipc.messages import Spawn
from supervisor.root.handover import record_memory as records
from supervisor.root.handover.fd_store import DescriptorStore, stored_descriptors
from supervisor.root.handover.record_memory import FORMAT, Record, RecordContent
from supervisor.root.handover.run_recovery import recover_stored
from supervisor.root.handover.state_schema import RunDetails, RunProgress, RunStart, RunState, pack, unpack
from supervisor.root.process.managed_process import ProcessState
from tests.root.loop.test_shortage import BOOT
from tests.root.start_bench import RecordedLog

ABOUT = {"format": FORMAT, "daemon": "D"}
PLACES = {"start": records._START, "details": records._DETAILS, "progress": records._PROGRESS}
"""The steps of writing a record, in order, and the offsets that each writes."""


class Killed(BaseException):
    """The writer was killed."""


@pytest.fixture
def record() -> Iterator[Record]:
    harness = Record.make()
    yield harness
    harness.close()


def content_of(number: int, cause: str | None = None) -> RecordContent:
    """Return the state of a run after so many steps."""
    request = Spawn(
        run="R",
        task="t",
        argv=["x"],
        env={"P": "correct-horse-battery", "A": "\udcff"},
        secrets=["P"],
        log="/log",
        log_max_bytes=1,
        stop_signal=15,
        grace_ms=5,
    )
    return RecordContent(
        ABOUT,
        {"out": [1, 2]},
        RunState(
            RunStart(request=request, pid=7, ticks=8, started_at=9, started_s=1.5),
            RunProgress(phase=ProcessState.RUNNING, steps_left=number, kill_at_s=0.5 * number),
            RunDetails(cause=cause, by="ä" * number * 10_000 or None),
        ),
    )


def successor(record: Record) -> contextlib.closing[Record]:
    """Open the record as the next root opens it."""
    return contextlib.closing(Record(os.dup(record.fd)))


def reread(record: Record) -> RecordContent | None:
    """Return the record as the next root reads it."""
    with successor(record) as other:
        return other.read()


def test_newest_record_counts(record: Record) -> None:
    """The next root finds the last written state in the memory, and continues its numbers."""
    assert record.read() is None
    assert record.read_held() == (b"", b"", 0)
    for number in range(5):
        record.write(content_of(number))
        record.write_held(b"out" * number, b"err", number)
        with successor(record) as other:
            assert other.read() == content_of(number)
            assert other.read_held() == (b"out" * number, b"err", number)
    with successor(record) as other:
        other.write(content_of(5))
    assert record.read() == content_of(5)


def test_request_is_written_once(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step writes few bytes: neither environment nor secrets again, nor unchanged details."""
    record.write(content_of(1))
    written: list[tuple[int, bytes]] = []
    write = os.pwrite

    def noted(fd: int, data: bytes, at: int) -> int:
        written.append((at, data))
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", noted)
    content = content_of(1)
    for number in range(4):
        progress = replace(content.state.progress, steps_left=number)
        record.write(content._replace(state=replace(content.state, progress=progress)))
    assert {at for at, _ in written} == set(records._PROGRESS)
    assert all(len(data) < 256 for _, data in written)
    record.write(content_of(2, "stop"))
    assert not any(b"correct-horse" in data for _, data in written)
    assert reread(record) == content_of(2, "stop")


def kill_at(monkeypatch: pytest.MonkeyPatch, places: tuple[int, ...], cut: int) -> None:
    """Simulate a kill of the writer in the middle of a write at one of these offsets."""
    write = os.pwrite

    def killed(fd: int, data: bytes, at: int) -> int:
        if at not in places:
            return write(fd, data, at)
        write(fd, data[:cut], at)
        raise Killed

    monkeypatch.setattr(os, "pwrite", killed)


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 17, 24, 30, 50, 1_000_000])
@pytest.mark.parametrize("step", ["details", "progress"])
def test_writer_killed_during_a_write(record: Record, monkeypatch: pytest.MonkeyPatch, step: str, cut: int) -> None:
    """A torn write leaves the old state or the new one, never parts of both. The next root continues to write."""
    for number in (1, 2, 3):
        record.write(content_of(number))
    for turn in (3, 5):
        with monkeypatch.context() as patch:
            kill_at(patch, PLACES[step], cut)
            with successor(record) as other, pytest.raises(Killed):
                other.write(content_of(turn + 1, "stop"))
        whole = step == "progress" and cut == 1_000_000
        assert reread(record) == (content_of(turn + 1, "stop") if whole else content_of(turn))
        with successor(record) as other:
            other.write(content_of(turn + 2))
        assert reread(record) == content_of(turn + 2)


def test_no_memory_for_a_record(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial write is an error, and the previous state stays."""
    record.write(content_of(1))
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:20], at))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        record.write(content_of(2))
    monkeypatch.undo()
    assert reread(record) == content_of(1)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        record.write(content_of(1000))
    record.write(content_of(3))
    assert reread(record) == content_of(3)


def test_older_and_newer_progress() -> None:
    """Later fields get their defaults; unknown fields are refused."""
    data = pack(content_of(3).state.progress)
    assert unpack(data) == content_of(3).state.progress
    assert unpack(data[:-8]) == content_of(3).state.progress
    with pytest.raises(UnknownFormat, match="unknown"):
        unpack(data + b"12345678")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def hear(manager: socket.socket) -> tuple[str, list[int]] | None:
    """Return one message with the inodes of its descriptors."""
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


def waits(store: DescriptorStore) -> bool:
    return store.due_s is not None


def drained(store: DescriptorStore, manager: socket.socket) -> list[tuple[str, list[int]]]:
    """Return all messages until nothing waits."""
    requests_heard = []
    while True:
        while (message := hear(manager)) is not None:
            requests_heard.append(message)
        if not waits(store):
            return requests_heard
        store.tick(float("inf"))


@pytest.mark.parametrize(
    ("place", "data"),
    [
        ("progress", b"short"),
        ("details", b"7"),
        ("details", b"[" * 100_000),
        ("details", b"\xff"),
        ("start", b"[]"),
        ("start", b'{"start": 7, "fds": {}}'),
        ("start", b'{"start": {"request": []}, "fds": {}}'),
    ],
)
def test_record_of_a_wrong_shape(record: Record, tmp_path: Path, place: str, data: bytes) -> None:
    """A root does not continue a run whose record it cannot interpret, although its checksum is correct."""
    record.write(content_of(1))
    seq = max(dict(records._intact_copies(record.fd, PLACES[place])))
    records._write(record.fd, PLACES[place], seq, data)
    log = RecordedLog()
    settings = replace(BOOT, runtime_dir=str(tmp_path))
    assert recover_stored({"R": [os.dup(record.fd)]}, settings, log) == ([], ["R"])
    assert "cannot continue R: " in log.text


def test_slow_service_manager(manager: socket.socket, record: Record, tmp_path: Path) -> None:
    """If the queue of the service manager is full, the rest is sent later, in order, even for a closed descriptor."""
    store = DescriptorStore(str(tmp_path / "notify"))
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
    requests_heard = drained(store, manager)
    names = [*(f"R{number}" for number in range(count)), "LAST"]
    store.close()
    assert requests_heard == [
        *((f"FDSTORE=1\nFDPOLL=0\nFDNAME=ringward-{name}", [inode]) for name in names),
        ("FDSTOREREMOVE=1\nFDNAME=ringward-R0", []),
    ]


def test_unsent_requests_during_an_upgrade(manager: socket.socket, record: Record, tmp_path: Path) -> None:
    """The next root sends the requests that the previous one could not send, with the same descriptors."""
    before, after = (DescriptorStore(str(tmp_path / "notify")) for _ in range(2))
    inode, count = os.fstat(record.fd).st_ino, 0
    while not waits(before):
        before.keep(f"R{count}", [record.fd])
        count += 1
    before.forget("R0")
    descriptors: list[int] = []

    def keep(fd: int) -> int:
        descriptors.append(os.dup(fd))
        return descriptors[-1]

    after.load(json.loads(json.dumps(before.dump(keep))))
    before.close()
    requests_heard = drained(after, manager)
    after.close()
    assert requests_heard[count - 1 :] == [
        (f"FDSTORE=1\nFDPOLL=0\nFDNAME=ringward-R{count - 1}", [inode]),
        ("FDSTOREREMOVE=1\nFDNAME=ringward-R0", []),
    ]
    for fd in descriptors:  # each was closed when it was sent
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            os.fstat(fd)


def test_without_a_service_manager(record: Record) -> None:
    """Without a service manager, nothing is sent, and nothing waits."""
    store = DescriptorStore("")
    store.keep("R", [record.fd])
    store.forget("R")
    assert store.due_s is None


def test_descriptors_of_the_service_manager() -> None:
    """The root takes only descriptors with its own names, meant for this process, from the service manager."""
    env = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": "4",
        "LISTEN_FDNAMES": "ringward-A:www.socket:ringward-B:ringward-A",
    }
    assert stored_descriptors(env) == {"A": [3, 6], "B": [5]}
    assert stored_descriptors({**env, "LISTEN_PID": "1"}) == {}
    assert stored_descriptors({}) == {}


def test_room_for_held_text() -> None:
    """The longest text that masks hold back fits into its place in the record."""
    assert records._HELD[1] - records._HELD[0] >= 2 * MAX_SECRET + 64
