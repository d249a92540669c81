"""Many short runs: ``true``, fifty at a time, from the trigger to the history."""

import os
import time

from bench.client import Failed, flood
from bench.daemon import Daemon
from bench.measure import Row, in_turn, rate_row

CONNECTIONS = 16
_COMMAND = ["/bin/sh", "-e", "-c", "true"]
DEADLINE_S = 120.0


def _spawned(count: int) -> float:
    """Measure bare runs a second: two pipes, posix_spawn, end of file, reap."""
    start_s = time.monotonic()
    for _ in range(count):
        (out, out_end), (err, err_end) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, out_end, 1), (os.POSIX_SPAWN_DUP2, err_end, 2)]
        pid = os.posix_spawn(_COMMAND[0], _COMMAND, os.environ, file_actions=actions, setsid=True)
        os.close(out_end)
        os.close(err_end)
        for fd in (out, err):
            os.read(fd, 1)
            os.close(fd)
        os.waitpid(pid, 0)
    return count / (time.monotonic() - start_s)


SHORT = "[tasks.true]\nrun = 'true'\nmax_concurrent = 50\nqueue_max = 10000\nkeep_runs = 100000\n"
"""The task ``true``."""


class ShortRuns:
    """Repeated runs of the task ``true`` over several connections; all of them must be in the history afterwards."""

    def __init__(self, daemon: Daemon) -> None:
        self._clients = [daemon.client() for _ in range(CONNECTIONS)]
        self._eye = daemon.client()
        self._done = 0
        self.accepted: list[float] = []
        """Accepted triggers a second, of each measurement."""

    def _count(self, status: str) -> int:
        total: int = self._eye.get(f"/api/tasks/true/runs?limit=1&status={status}")["total"]
        return total

    def measure(self, count: int) -> float:
        """Return the runs a second, end to end.

        Raises:
            Failed: not all runs ended with success within two minutes.
        """
        start_s = time.monotonic()
        flood(self._clients, "POST", "/api/tasks/true/run", count)
        self.accepted.append(count / (time.monotonic() - start_s))
        self._done += count
        while self._count("ended") < self._done:
            if time.monotonic() - start_s > DEADLINE_S:
                raise Failed("not all runs ended")
            time.sleep(0.02)
        took_s = time.monotonic() - start_s
        if self._count("succeeded") != self._done or self._count("pending,running"):
            raise Failed("a run is not in the history as it should be")
        return count / took_s


def short_runs(quick: bool) -> list[Row]:
    """Measure runs a second, end to end; the floor is bare spawning."""
    count = 200 if quick else 2000
    with Daemon(SHORT) as daemon:
        ours = ShortRuns(daemon)
        pairs = in_turn(2 if quick else 3, lambda: ours.measure(count), lambda: _spawned(count))
    middle = sorted(ours.accepted)[len(ours.accepted) // 2]
    return [
        rate_row("short runs, end to end", pairs, "{:.0f} /s", 800),
        Row("short runs: triggers accepted", f"{middle:.0f} /s", "", "", "", None),
    ]
