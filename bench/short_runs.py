"""Many short runs: ``true``, fifty at a time, from the trigger to the history."""

import os
import time

from bench.client import Client, Failed, flood
from bench.daemon import Daemon
from bench.measure import Row, in_turn, rate_row

_CONNECTIONS = 16
_COMMAND = ["/bin/sh", "-e", "-c", "true"]
_DEADLINE_S = 120.0


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


def _ended(client: Client, status: str) -> int:
    total: int = client.get(f"/api/tasks/true/runs?limit=1&status={status}")["total"]
    return total


def short_runs(quick: bool) -> list[Row]:
    """Measure runs a second, end to end; all of them must be in the history afterwards."""
    count = 200 if quick else 2000
    accepted: list[float] = []
    with Daemon("[tasks.true]\nrun = 'true'\nmax_concurrent = 50\nqueue_max = 10000\nkeep_runs = 100000\n") as daemon:
        clients = [daemon.client() for _ in range(_CONNECTIONS)]
        eye = daemon.client()
        done = 0

        def ours() -> float:
            nonlocal done
            start_s = time.monotonic()
            flood(clients, "POST", "/api/tasks/true/run", count)
            accepted.append(count / (time.monotonic() - start_s))
            done += count
            while _ended(eye, "ended") < done:
                if time.monotonic() - start_s > _DEADLINE_S:
                    raise Failed("not all runs ended")
                time.sleep(0.02)
            took_s = time.monotonic() - start_s
            if _ended(eye, "succeeded") != done or _ended(eye, "pending,running"):
                raise Failed("a run is not in the history as it should be")
            return count / took_s

        pairs = in_turn(2 if quick else 3, ours, lambda: _spawned(count))
    middle = sorted(accepted)[len(accepted) // 2]
    return [
        rate_row("short runs, end to end", pairs, "{:.0f} /s", 800),
        Row("short runs: triggers accepted", f"{middle:.0f} /s", "", "", "", None),
    ]
