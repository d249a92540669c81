"""The start times of the janitor, with real janitors and a clock that the test moves."""

import errno
import os
import select
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from logring.log_paths import ring_path
from supervisor.config.daemon_tables import Storage
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.database.janitor_client import JanitorClient
from supervisor.scheduler.loop.loop import Loop, Timer
from tests.helpers.janitor.support import HOUR_MS, DataDirectory
from tests.helpers.janitor.test_purged import note

MINUTE_MS = 60_000
AGAIN_MS = 5000


class ManualLoop:
    """A loop whose clock stands still until the test moves it."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.timers: list[tuple[float, Timer]] = []
        self.handlers: dict[int, Callable[[int], None]] = {}

    def now_s(self) -> float:
        return self.ms / 1000

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def after(self, delay_ms: float, function: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(partial(function, *arguments))
        self.timers.append((self.ms + delay_ms, timer))
        return timer

    def watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self.handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        del self.handlers[fd]

    def waiting(self) -> list[float]:
        """Return the delays of the pending timers in milliseconds."""
        self.timers = [entry for entry in self.timers if not entry[1].cancelled]
        return sorted(round(at - self.ms) for at, _ in self.timers)

    def advance(self, ms: float) -> None:
        self.ms += ms
        due = [timer for at, timer in self.timers if at <= self.ms]
        self.timers = [entry for entry in self.timers if entry[0] > self.ms]
        for timer in due:
            if not timer.cancelled:
                timer.function()

    def change(self, fd: int, events: int) -> None:
        """Ignore which events are wanted."""

    def janitor_ends(self) -> None:
        """Read what the janitor sends until it is reaped."""
        pidfd, reap = next(iter(self.handlers.items()))
        while self.handlers.get(pidfd) is reap:
            poll = select.poll()
            for fd in self.handlers:
                poll.register(fd, select.POLLIN)
            ready = poll.poll(60_000)
            assert ready
            self.handlers[ready[-1][0]](select.POLLIN)


class JanitorBench:
    """A janitor client with a data directory and a manual loop."""

    def __init__(self, directory: Path) -> None:
        self.place = DataDirectory(directory)
        self.loop = ManualLoop()
        self.growing = False
        self.log_pipe, self._saying = os.pipe()
        os.set_blocking(self.log_pipe, False)
        self.one = JanitorClient(
            cast(Loop, self.loop),
            cast(
                DaemonSettings,
                SimpleNamespace(
                    data_dir=str(directory),
                    runtime_dir=str(directory),
                    database=self.place.database,
                    database_url="kept from being copied",
                    log_level="info",
                ),
            ),
            cast(Storage, SimpleNamespace(compress_after_ms=HOUR_MS, max_log_bytes=None)),
            Log("scheduler", fd=self._saying),
            self,
        )

    def logs_may_grow(self) -> bool:
        return self.growing

    def files_removed(self, last: int, kept: list[int]) -> None:
        pass

    def database_damaged(self) -> None:
        pass

    def runs(self) -> bool:
        return bool(self.loop.handlers)

    def close(self) -> None:
        if self.runs():
            self.one.close()
            self.loop.janitor_ends()
        os.close(self.log_pipe)
        os.close(self._saying)


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[JanitorBench]:
    harness = JanitorBench(tmp_path)
    yield harness
    harness.close()


def test_idle_daemon(keeping: JanitorBench) -> None:
    """An idle daemon starts the janitor once, after a minute, and has no timer afterwards."""
    assert keeping.loop.waiting() == [MINUTE_MS]
    keeping.loop.advance(MINUTE_MS - 1)
    assert not keeping.runs()
    keeping.loop.advance(1)
    assert keeping.runs()
    keeping.loop.janitor_ends()
    assert not keeping.runs()
    assert keeping.loop.waiting() == []


def test_ended_runs(keeping: JanitorBench) -> None:
    """Any number of ended runs start one janitor a minute, and runs that end while it works start the next one."""
    for _ in range(3):
        keeping.one.request()
    assert keeping.loop.waiting() == [1000]
    keeping.loop.advance(1000)
    keeping.one.request()
    assert keeping.loop.waiting() == []
    keeping.loop.janitor_ends()
    assert keeping.loop.waiting() == [MINUTE_MS]
    for _ in range(5):
        keeping.loop.advance(1000)
        keeping.one.request()
    assert keeping.loop.waiting() == [MINUTE_MS - 5000]
    keeping.loop.advance(MINUTE_MS)
    keeping.loop.janitor_ends()
    assert keeping.loop.waiting() == []
    keeping.loop.advance(2 * MINUTE_MS)
    keeping.one.request()
    assert keeping.loop.waiting() == [1000]


def test_uncompressed_log(keeping: JanitorBench) -> None:
    """A log that is too new to compress starts the janitor when it is old enough."""
    now_ms = keeping.loop.now_ms()
    keeping.place.log("t", 1, ended_ms=now_ms - HOUR_MS // 2)
    keeping.loop.advance(MINUTE_MS)
    keeping.loop.janitor_ends()
    (wait_ms,) = keeping.loop.waiting()
    assert HOUR_MS // 2 - (keeping.loop.now_ms() - now_ms) - 10 <= wait_ms <= HOUR_MS // 2


def test_growing_logs(keeping: JanitorBench) -> None:
    """While runs write logs, the janitor starts every ten minutes to enforce the budget."""
    keeping.growing = True
    keeping.loop.advance(MINUTE_MS)
    keeping.loop.janitor_ends()
    assert keeping.loop.waiting() == [10 * MINUTE_MS]


def test_undeletable_files_are_retried(keeping: JanitorBench) -> None:
    """While files of purged runs cannot be removed, the janitor starts for them with growing delays."""
    keeping.loop.advance(MINUTE_MS)
    keeping.loop.janitor_ends()
    path = keeping.place.log("t", 1)
    ring = Path(ring_path(str(keeping.place.directory), Path(path).stem))
    ring.touch()
    note(keeping.place, path)
    keeping.one.purge()
    keeping.loop.janitor_ends()
    for wait_ms in (AGAIN_MS, 2 * AGAIN_MS):
        assert keeping.loop.waiting() == [wait_ms]
        keeping.loop.advance(wait_ms)
        keeping.loop.janitor_ends()
    assert keeping.place.logs() == [path]
    ring.unlink()
    keeping.loop.advance(4 * AGAIN_MS)
    keeping.loop.janitor_ends()
    assert (keeping.place.logs(), keeping.loop.waiting()) == ([], [])


def test_retry_delay_grows(keeping: JanitorBench) -> None:
    """The retry delay for the same files grows to ten minutes, and starts again at 5 s for other files."""
    keeping.loop.advance(MINUTE_MS)
    keeping.loop.janitor_ends()
    for number, delays_ms in (1, [AGAIN_MS << doubled for doubled in range(7)]), (2, []):
        path = keeping.place.log("t", number)
        Path(ring_path(str(keeping.place.directory), Path(path).stem)).touch()
        note(keeping.place, path)
        keeping.one.purge()
        keeping.loop.janitor_ends()
        for delay_ms in delays_ms:
            assert keeping.loop.waiting() == [delay_ms]
            keeping.loop.advance(delay_ms)
            keeping.loop.janitor_ends()
        assert keeping.loop.waiting() == [10 * MINUTE_MS if delays_ms else AGAIN_MS]


def test_killed_janitor(keeping: JanitorBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A janitor that dies without a report is logged, and started again after ten minutes."""
    suicidal = tmp_path / "python"
    suicidal.write_text("#!/bin/sh\nkill -9 $$\n")
    suicidal.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(suicidal))
    keeping.loop.advance(MINUTE_MS)
    keeping.loop.janitor_ends()
    keeping.loop.advance(0)
    assert b"the janitor was killed by SIGKILL" in os.read(keeping.log_pipe, 1000)
    assert keeping.loop.waiting() == [10 * MINUTE_MS]


def test_failed_start(keeping: JanitorBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A janitor that cannot be started is logged, and tried again after ten minutes."""
    monkeypatch.setattr("sys.executable", "/does/not/exist")
    keeping.loop.advance(MINUTE_MS)
    keeping.loop.advance(0)
    assert b"cannot start the janitor: No such file" in os.read(keeping.log_pipe, 1000)
    assert keeping.loop.waiting() == [10 * MINUTE_MS]


def test_a_janitor_that_cannot_be_tracked(keeping: JanitorBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a descriptor for its process, the janitor is killed and reaped, and started again ten minutes later."""
    pids = []

    def pidfd_open(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", pidfd_open)
        keeping.loop.advance(MINUTE_MS)
        keeping.loop.advance(0)
    assert b"cannot start the janitor: Too many open files" in os.read(keeping.log_pipe, 1000)
    assert [psutil.pid_exists(pid) for pid in pids] == [False]
    assert set(os.listdir("/proc/self/fd")) <= before
    assert keeping.loop.waiting() == [10 * MINUTE_MS]
    keeping.loop.advance(10 * MINUTE_MS)
    assert keeping.runs()
