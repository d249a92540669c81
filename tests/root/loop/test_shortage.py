"""The root continues, and leaks no descriptor, when descriptors run out or access is denied."""

import errno
import gc
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import procfs
from supervisor.host.osport import UnixListener
from supervisor.host.shortage import Descriptors, open_descriptors, polled_descriptors, take_all
from supervisor.ipc.messages import DaemonSettings, Spawn
from supervisor.root.helper_processes import Helper
from supervisor.root.spawn import posix_spawn as spawn
from supervisor.root.spawn.waiting_starts import WaitingStarts
from tests.root.spawn.test_posix_spawn import make_spawn
from tests.root.start_bench import RecordedLog, bench
from tests.scheduler.fake_clock import FakeClock
from tests.support.waiting import until

BOOT = DaemonSettings(
    daemon_id="D",
    data_dir="",
    runtime_dir="",
    config_path="",
    listen=[],
    http_socket="",
    workers=1,
    shutdown_timeout_ms=1,
    log_level="error",
    password="",
    password_ephemeral=False,
    token="",
    started_at=1,
)


class Shortage:
    """Occupied descriptors, below a limit that leaves room above those which other tests have left open."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self.limit = max(map(int, os.listdir("/proc/self/fd"))) + 100

    def leave(self, count: int) -> None:
        """Occupy all descriptors except `count`."""
        try:
            while True:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for _ in range(count):
            os.close(self._held.pop())

    def end(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held.clear()


@pytest.fixture
def shortage() -> Iterator[Shortage]:
    gc.collect()  # leftovers of earlier tests must not close a descriptor meanwhile
    short = Shortage()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (short.limit, hard))
    yield short
    short.end()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_process_without_a_pidfd_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process that the root cannot watch is killed, and no descriptor leaks."""
    tried = []

    def no_pidfd(pid: int) -> int:
        tried.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    gc.collect()  # as above
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many"):
        spawn.start(make_spawn(["/bin/sh", "-c", "exec >&- 2>&-; exec sleep 1000"]), {}, None)
    (pid,) = tried
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert set(os.listdir("/proc/self/fd")) <= before


def no_process(*_: object, **__: object) -> int:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_no_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel refuses a start (process limit, no memory), the reason is reported and no descriptor leaks."""
    gc.collect()  # as above
    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_spawn", no_process)
        with pytest.raises(OSError, match="Resource temporarily unavailable"):
            spawn.start(make_spawn(["true"]), {}, None)
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("count", range(5))
def test_failed_helper_start_leaks_nothing(count: int, shortage: Shortage) -> None:
    """All descriptors of a helper that cannot start are closed again, however few were free."""
    with socket.socket() as sock, socket.socket() as two:
        helper = Helper("x", "no.such.module", BOOT, [sock, two])
        shortage.leave(count)
        before = {fd for fd in range(shortage.limit) if is_open(fd)}
        with pytest.raises(OSError, match="Too many"):
            helper.start({}, 0.0)
        assert {fd for fd in range(shortage.limit) if is_open(fd)} == before
        assert helper.sock is None


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_connection_without_a_descriptor_is_closed(tmp_path: Path, shortage: Shortage) -> None:
    """Without a free descriptor a new client is disconnected, because a backlog would keep waking the loop."""
    listener = UnixListener(str(tmp_path / "sock"), socket.SOCK_STREAM, 5)
    client, later = (socket.socket(socket.AF_UNIX) for _ in range(2))
    client.connect(str(tmp_path / "sock"))
    shortage.leave(0)
    assert listener.accept() is None
    assert client.recv(1) == b""
    assert listener.accept() is None
    shortage.end()
    later.connect(str(tmp_path / "sock"))
    accepted = listener.accept()
    assert accepted is not None
    for sock in (client, later, accepted):
        sock.close()
    listener.close()


def test_reserve_descriptor_is_taken(tmp_path: Path, shortage: Shortage, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another thread takes the reserve descriptor, the loop continues and closes no foreign one."""
    path = str(tmp_path / "sock")
    listener = UnixListener(path, socket.SOCK_STREAM, 5)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for client in clients:
        client.connect(path)
    shortage.leave(0)
    really, descriptors = os.close, []

    def close(fd: int) -> None:
        really(fd)
        descriptors.append(os.dup(0))

    monkeypatch.setattr("supervisor.host.osport.os.close", close)
    assert listener.accept() is None
    assert listener.accept() is None
    monkeypatch.undo()
    assert all(is_open(fd) for fd in descriptors)
    for fd in descriptors:
        os.close(fd)
    shortage.end()
    sock = listener.accept()
    assert sock is not None
    for sock_to_close in (sock, *clients):
        sock_to_close.close()
    listener.close()


def test_hidden_processes_stay_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=1, an unreadable process of another user counts as unknown, without an error."""
    really = os.open

    def hidden(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path) == "/proc/1/stat":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", hidden)
    assert procfs.find_process(1) is None
    assert procfs.find_process(os.getpid()) is not None


def test_descriptors_needed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without output will need two descriptors for its ring and one for its log file; 64 stay in reserve."""
    monkeypatch.setattr("resource.getrlimit", lambda _which: (256, 256))
    counts = [256 - 64 - 3 * 20, 256 - 64 - 3 * 20 + 1]
    monkeypatch.setattr("supervisor.host.shortage.open_descriptors", lambda _limit: counts.pop(0))
    descriptors = Descriptors()
    assert descriptors.reserve(20)
    assert not descriptors.reserve(20)


def test_descriptors_of_starting_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that is about to start, no descriptor is open yet, so all ten are reserved."""
    monkeypatch.setattr("resource.getrlimit", lambda _which: (256, 256))
    counts = [256 - 64 - 3 * 10 - 10 * 5, 256 - 64 - 3 * 10 - 10 * 5 + 1]
    monkeypatch.setattr("supervisor.host.shortage.open_descriptors", lambda _limit: counts.pop(0))
    descriptors = Descriptors()
    assert descriptors.reserve(10, 5)
    assert not descriptors.reserve(10, 5)


@pytest.mark.parametrize("count", [open_descriptors, polled_descriptors])
def test_counting_needs_no_descriptor(shortage: Shortage, count: Callable[[int], int]) -> None:
    """Open descriptors can be counted when none is free, on kernels since Linux 6.2 and before."""
    limit = shortage.limit
    for spare in (0, 3):
        shortage.leave(spare)
        # A thread of an earlier test may still close one between the two counts, or wait in accept(2), which has
        # reserved a descriptor.
        until(lambda: sum(map(is_open, range(limit))) <= count(limit) <= limit - spare, "a count in these bounds")  # noqa: B023


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
def test_start_waits_for_a_resource(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Only errors of the command itself refuse a run; if the daemon lacks a resource, the run waits."""
    with bench() as root:
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_spawn", failing_with(code))
            root.starts._joined_s = float("inf")  # starts join their cgroup
            root.starts.start(make_spawn(["true"]), 0)
            assert (root.waiting, root.refused) == ({"R": os.strerror(code)}, {})
            patch.setattr(os, "posix_spawn", failing_with(errno.E2BIG))
            root.starts.start(make_spawn(["true"], run="S"), 0)
        assert root.refused == {"S": os.strerror(errno.E2BIG)}


def failing_with(code: int) -> Callable[..., int]:
    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


class FailingStarts:
    """Starts that fail until a test lets them succeed, and the messages to the scheduler."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.short = True
        self.attempts = 0
        self.clock = FakeClock()
        self.waiting = WaitingStarts(self.clock, RecordedLog(), self.begin, self.frames.append)

    def begin(self, spawn: Spawn) -> None:
        self.attempts += 1
        if self.short:
            self.waiting.put_back(spawn, "too few free descriptors")

    def until(self, end_s: float) -> None:
        """Run the timers until a time."""
        while (due_s := self.waiting.due_s) is not None and due_s <= end_s:
            self.waiting.tick(due_s)


def test_waiting_starts_are_retried() -> None:
    """Retry delays double from 0.25 s to 5 s. After a minute the scheduler is notified once, and again on success."""
    starts = FailingStarts()
    begin_s = starts.clock.monotonic_s()
    for run in "AB":
        starts.waiting.start(make_spawn(["true"], run=run))
    reason = "too few free descriptors"
    assert starts.frames == [{"op": "waiting", "run": run, "why": reason} for run in "AB"]
    starts.until(begin_s + 300)
    assert 50 < starts.attempts < 70
    assert starts.frames[2:] == [{"op": "starts", "waiting": 2, "why": reason}]
    starts.short = False
    starts.until(begin_s + 310)
    assert starts.frames[3:] == [{"op": "starts", "waiting": 0, "why": None}]
    assert not starts.waiting


def test_early_retry() -> None:
    """The first waiting start can be retried before its delay ends, and its next delays are short again."""
    starts = FailingStarts()
    starts.waiting.start(make_spawn(["true"]))
    starts.until(starts.clock.monotonic_s() + 60)
    attempts = starts.attempts
    starts.waiting.tick(starts.clock.monotonic_s())
    assert starts.attempts == attempts
    starts.waiting.retry_soon()
    now_s = starts.clock.monotonic_s()
    starts.waiting.tick(now_s)
    assert starts.attempts == attempts + 1
    assert starts.waiting.due_s == now_s + 0.5
    starts.short = False
    starts.waiting.retry_soon()
    starts.waiting.tick(starts.clock.monotonic_s())
    assert not starts.waiting


def test_shortage_in_one_step() -> None:
    """All steps run. The first shortage is raised after them; any other error is raised at once."""
    steps_taken: list[int] = []

    def fail(code: int) -> None:
        raise OSError(code, os.strerror(code))

    steps = [
        lambda: steps_taken.append(1),
        lambda: fail(errno.EMFILE),
        lambda: steps_taken.append(2),
        lambda: fail(errno.ENOMEM),
    ]
    with pytest.raises(OSError, match="Too many open files"):
        take_all(steps)
    assert steps_taken == [1, 2]
    with pytest.raises(FileNotFoundError):
        take_all([lambda: fail(errno.ENOENT), lambda: steps_taken.append(3)])
    assert steps_taken == [1, 2]
