"""The stream of a unit with many instances; the floor is one stream for each of its runs."""

import select
import sys
import time
from collections.abc import Sequence

from bench.client import Client, Failed
from bench.daemon import Daemon, toml
from bench.logs.fanout import cpu_s, worker_of
from bench.measure import Row, in_turn, ratio_row

_INSTANCES = 64
_LINES_PER_S = 1000
_BAR = 1.3
_WARM_UP_S = 1.0
_CODE = f"""\
import os, time
at = time.monotonic()
while True:
    os.write(1, b"a line of a service, as services print them\\n" * {_LINES_PER_S // 50})
    at += 0.02
    time.sleep(max(0, at - time.monotonic()))
"""


def unit_streams(quick: bool) -> list[Row]:
    """Measure the processor time of the worker for each line that a client gets."""
    instances = 4 if quick else _INSTANCES
    command = toml([sys.executable, "-I", "-S", "-c", _CODE])
    with Daemon(f"[services.many]\nrun = {command}\ninstances = {instances}\nlog_max_size = '1mb'\n") as daemon:
        api = daemon.client()
        while len(runs := _running(api)) < instances:
            time.sleep(0.1)
        paths = [f"/api/runs/{run}/log/stream?from=-1" for run in runs]
        duration_s = 1.0 if quick else 6.0

        def one_stream() -> float:
            return _per_line_us(daemon, ["/api/tasks/many/log/stream?from=1"], duration_s)

        def streams_of_runs() -> float:
            return _per_line_us(daemon, paths, duration_s)

        pairs = in_turn(1 if quick else 5, one_stream, streams_of_runs)
        api.close()
    what = f"unit of {instances} instances, {_LINES_PER_S} lines/s each: processor time of a line"
    return [ratio_row(what, pairs, "{:.1f} us", _BAR)]


def _running(api: Client) -> list[str]:
    return [run["id"] for run in api.get("/api/tasks/many/runs?status=running&limit=1000")["items"]]


def _per_line_us(daemon: Daemon, paths: Sequence[str], duration_s: float) -> float:
    """Read all these streams together; return the time of the worker for a line."""
    worker = worker_of(daemon)
    clients = [daemon.client() for _ in paths]
    try:
        for client, path in zip(clients, paths, strict=True):
            client.send("GET", path)
        _lines(clients, _WARM_UP_S)
        used_s = cpu_s(worker)
        lines = _lines(clients, duration_s)
        used_s = cpu_s(worker) - used_s
    finally:
        for client in clients:
            client.close()
    if not lines:
        raise Failed("the streams sent no line")
    return used_s / lines * 1e6


def _lines(clients: Sequence[Client], duration_s: float) -> int:
    """Read for so long; return the number of lines."""
    poll = select.poll()
    by_fd = {client.fileno(): client for client in clients}
    for client in clients:
        poll.register(client, select.POLLIN)
    lines = 0
    end_s = time.monotonic() + duration_s
    while (left_s := end_s - time.monotonic()) > 0:
        for fd, _ in poll.poll(left_s * 1000):
            # Each line has a time in any form; the few that are cut at the end of a read do not matter.
            lines += by_fd[fd].receive().count(b'"ts":')
    return lines
