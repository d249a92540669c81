"""Cost of a failing run with a notification whose receiver does not answer."""

import socket
import time

from bench.client import Client, Failed, flood
from bench.daemon import Daemon
from bench.measure import Row, in_turn, ratio_row

_CONNECTIONS = 8
_DEADLINE_S = 120.0
_MAX_RATIO = 1.25
_TASK = """
[notify]
coalesce_window = "0s"
[tasks.false]
run = "false"
max_concurrent = 20
queue_max = 10000
keep_runs = 100000
"""


class _Failures:
    """Measure the milliseconds of each failing run on a daemon."""

    def __init__(self, daemon: Daemon, count: int) -> None:
        self._clients = [daemon.client() for _ in range(_CONNECTIONS)]
        self._eye: Client = daemon.client()
        self._count = count
        self._done = 0

    def __call__(self) -> float:
        start_s = time.monotonic()
        flood(self._clients, "POST", "/api/tasks/false/run", self._count)
        self._done += self._count
        while self._eye.get("/api/tasks/false/runs?limit=1&status=failed")["total"] < self._done:
            if time.monotonic() - start_s > _DEADLINE_S:
                raise Failed("not all runs ended")
            time.sleep(0.02)
        return (time.monotonic() - start_s) * 1000 / self._count


def dead_receiver(quick: bool) -> list[Row]:
    """Measure runs with a notification and a waiting message; the floor has the notification alone."""
    count = 100 if quick else 1000
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"json://127.0.0.1:{taken.getsockname()[1]}/"
        told = f"[notifiers.n]\nurl = '{url}'\n[[routes]]\nnotify = 'n'\n"
        with Daemon(_TASK + told) as ours, Daemon(_TASK) as plain:
            pairs = in_turn(1 if quick else 3, _Failures(ours, count), _Failures(plain, count))
            waiting = ours.client().get("/api/notifiers")["items"][0]["waiting"]
    if waiting != min(count * len(pairs), 1000):
        raise Failed(f"{waiting} messages wait")
    return [ratio_row("failing run, its message to a dead receiver", pairs, "{:.2f} ms", _MAX_RATIO)]
