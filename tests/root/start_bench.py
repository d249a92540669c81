"""Real starts of runs for tests, without the rest of the root."""

import contextlib
import os
import select
from collections.abc import Callable, Iterator

import pytest

from supervisor.host.cgroups import Cgroup
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Spawn
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.process.cgroup_manager import CgroupManager
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.spawn import prefork
from supervisor.root.spawn import start_queue as starting
from supervisor.root.spawn.posix_spawn import StartedProcess
from supervisor.root.spawn.start_queue import Start, StartQueue
from tests.scheduler.fake_clock import FakeClock
from tests.support.waiting import until

DAEMON = "01TESTTESTTESTTESTTESTTEST"


class RecordedLog(Log):
    """The daemon's log, kept as text."""

    def __init__(self) -> None:
        super().__init__("supervisor", "info")
        self.text = ""

    def emit(self, line: bytes) -> None:
        self.text += line.decode()


class StandingClock(FakeClock):
    """A clock that stands still while a loop waits for real processes."""

    def wait(self, epoll: select.epoll, until_s: float | None) -> list[tuple[int, int]]:
        return epoll.poll(0 if until_s is not None and until_s <= self.monotonic else 0.05)


class StartBench:
    """A start queue and the results of its starts."""

    def __init__(self) -> None:
        self.clock = StandingClock()
        self.watch = EpollWatch(self.clock)
        self.started: dict[str, StartedProcess] = {}
        self.refused: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self.cgroups: dict[str, Cgroup | None] = {}
        self.notify_sockets: dict[str, NotifySocket | None] = {}
        self.shown: list[int] = []
        self.started_runs: list[str] = []
        self.dropped: list[str] = []
        self.log = RecordedLog()
        self.cgroup_manager = CgroupManager(DAEMON, self.log)
        self.cgroup_manager.enable(True)
        self.starts = StartQueue(
            self.watch,
            self.log,
            {"PATH": os.environ["PATH"]},
            self.cgroup_manager,
            self.shown.append,
            self,
        )
        self.prefork = self.starts.prefork

    def on_start(self, run: str) -> None:
        self.started_runs.append(run)

    def on_refused(self, spawn: Spawn, reason: str) -> None:
        self.refused[spawn.run] = reason

    def on_short(self, start: Start, reason: str) -> None:
        self.waiting[start.spawn.run] = reason

    def on_dropped(self, run: str) -> None:
        self.dropped.append(run)

    def on_started(self, start: Start, started: StartedProcess) -> None:
        assert start.spawn.run not in self.started
        self.started[start.spawn.run] = started
        self.cgroups[start.spawn.run] = start.cgroup
        self.notify_sockets[start.spawn.run] = start.notify_socket

    def warm(self) -> int:
        """Start the zygote, and wait until it listens; return its pid."""
        self.prefork.ensure_zygote()
        self.turn(lambda: self.prefork._listening, "the zygote")
        assert self.prefork._zygote is not None
        return self.prefork._zygote

    def prepare(self) -> int:
        """Prepare a spare process; return its pid."""
        self.warm()
        self.starts.expect()
        self.turn(lambda: self.prefork.ready, "the spare")
        assert self.prefork._child is not None
        return self.prefork._child.pid

    def begin(self, spawn: Spawn) -> bool:
        """Begin a start as after a quiet period; return whether it waits for a spare."""
        self.clock.advance(starting._QUIET_S)
        self.starts.start(spawn, 0)
        return spawn.run in self.starts.under_way

    def turn(self, condition: Callable[[], bool], description: str) -> None:
        """Run rounds of the control loop until the condition is true."""

        def turned() -> bool:
            if not condition():
                self.watch.round(self.starts.next_s())
                self.starts.tick(self.clock.monotonic_s())
            return condition()

        until(turned, description)

    def settle(self, spawn: Spawn) -> StartedProcess:
        """Wait for the start of a run, and return it."""
        self.turn(lambda: spawn.run in self.started, f"the start of {spawn.run}")
        return self.started.pop(spawn.run)

    def leave(self) -> None:
        """Release the cgroups of the started processes."""
        for cgroup in self.cgroups.values():
            if cgroup is not None:
                self.cgroup_manager.leave(cgroup)
        self.cgroups.clear()

    def clear(self) -> None:
        """Wait until the cgroups of this daemon are empty."""

        def empty() -> bool:
            self.cgroup_manager.sweep()
            return not self.cgroup_manager.dump()

        until(empty, "the processes in our cgroups to end")

    def close(self) -> None:
        self.starts.close()
        for fd in self.shown:
            os.close(fd)
        self.leave()
        self.clear()
        self.cgroup_manager.close()


@contextlib.contextmanager
def bench() -> Iterator[StartBench]:
    """Provide a bench whose processes may take long to end, for a busy machine."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:  # inherited from the test runner; the root does the same when it starts
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing
                os.set_inheritable(fd, False)
    with pytest.MonkeyPatch.context() as patch:
        for module in (prefork, starting):
            patch.setattr(module, "_END_S", 60.0)
        harness = StartBench()
        try:
            yield harness
        finally:
            harness.close()
