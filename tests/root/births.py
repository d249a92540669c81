"""Real starts for tests: the root's side of them without the rest of the root."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from supervisor.logline import Log
from supervisor.messages import Spawn
from supervisor.root import starts as starting
from supervisor.root.cgroups import Cgroup
from supervisor.root.spawn import Plan, Started
from supervisor.root.starts import Start, Starts
from supervisor.root.watch import Watch
from tests.waiting import until


class Heard(Log):
    """The daemon's log, for a look at it."""

    def __init__(self) -> None:
        super().__init__("supervisor", "info")
        self.text = ""

    def emit(self, line: bytes) -> None:
        self.text += line.decode()


class Nursery:
    """Starts, with what they come to."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.started: dict[str, Started] = {}
        self.failed: dict[str, str] = {}
        self.shown: list[int] = []
        self.log = Heard()
        env = {"PATH": os.environ["PATH"]}
        self.starts = Starts(self.watch, self.log, env, self.shown.append, self._on_started, self._on_failed)

    def _on_started(self, start: Start, started: Started) -> None:
        assert start.spawn.run not in self.started
        self.started[start.spawn.run] = started

    def _on_failed(self, start: Start, why: str) -> None:
        self.failed[start.spawn.run] = why

    def warm(self) -> int:
        """Have a spawner that is at work; returns its pid."""
        self.starts.wake()
        pid, sock = self.starts.pid, self.starts._sock
        assert pid is not None
        assert sock is not None
        until(lambda: self.starts._listens(sock), "the spawner")
        return pid

    def begin(self, spawn: Spawn, cgroup: Cgroup, nofile: int | None = None) -> bool:
        """Begin a start as after a quiet time; whether the spawner has it."""
        self.starts._last_s = -starting._QUIET_S
        plan = Plan(spawn, {"PATH": os.environ["PATH"]}, nofile, cgroup)
        self.starts.begin(Start(spawn, plan, None, []))
        return spawn.run in self.starts.under_way

    def turn(self, condition: Callable[[], bool], what: str) -> None:
        """Do what the control loop does, until something is true."""

        def turned() -> bool:
            if not condition():
                self.watch.round(0.05)
                self.starts.tend(time.monotonic())
            return condition()

        until(turned, what)

    def settle(self, spawn: Spawn) -> Started:
        """Until it has started."""
        self.turn(lambda: spawn.run in self.started, f"the start of {spawn.run}")
        return self.started.pop(spawn.run)

    def close(self) -> None:
        self.starts.close()
        for fd in self.shown:
            os.close(fd)


@contextlib.contextmanager
def nursery() -> Iterator[Nursery]:
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:  # what whoever started the tests left open is none of ours; the root does the same at its start
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing
                os.set_inheritable(fd, False)
    one = Nursery()
    try:
        yield one
    finally:
        one.close()
