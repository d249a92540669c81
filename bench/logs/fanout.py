"""Many clients of one run: while it prints 1,000 lines/s, while it is silent, and at the moment of the trigger.

The clients share one process (`bench.logs.listeners`), which does too little to distort the figures.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.client import Failed
from bench.daemon import Daemon, title, toml
from bench.measure import Row, between, quantile

_CLIENTS = 200
_FEW = 10
_LINES_PER_S = 1000
_IDLE = 2000
_WARM_UP = 20
_HERD_LINES = 100
_WAIT_S = 60.0

Listeners = subprocess.Popen[str]


def fanout(quick: bool) -> list[Row]:
    """Measure 10 and 200 clients of a run with 1,000 lines/s: the load of the daemon, and the delay of lines."""
    rows = []
    for clients, most_share, quantile_name, most_ms in ((_FEW, 13, "p50", 2), (_CLIENTS, 30, "p99", 60)):
        found = followed(clients, 1000 if quick else 15_000)
        what = f"fan-out: {clients} clients, {_LINES_PER_S} lines/s"
        share = found["worker"] if clients == _CLIENTS else found["daemon"]
        whose = "API worker" if clients == _CLIENTS else "daemon"
        delay_ms = found[quantile_name] * 1000
        rows += [
            Row(
                f"{what}, {whose}",
                f"{share:.0f} % of a core",
                "",
                "",
                f"<= {most_share} % of a core",
                share <= most_share,
                f"whole daemon {found['daemon']:.0f} %, API worker {found['worker']:.0f} %",
            ),
            Row(
                f"{what}, {quantile_name}",
                f"{delay_ms:.1f} ms",
                "",
                "",
                f"<= {most_ms} ms",
                delay_ms <= most_ms,
                f"p50 {found['p50'] * 1000:.1f}, p99 {found['p99'] * 1000:.1f}, max {found['max'] * 1000:.1f} ms;"
                f" clients {100 * found['cpu'] / found['took']:.0f} % of a core",
            ),
        ]
    return rows


def followed(clients: int, count: int, lines_per_s: int = _LINES_PER_S) -> dict[str, float]:
    """Return the result of the listeners, and the load of the worker and of the whole daemon in percent of a core.

    Raises:
        Failed: a client did not get every line.
    """
    code = (
        "import os, time\n"
        f"start = time.monotonic() + 1\nfor i in range({count}):\n"
        f"    time.sleep(max(0, start + i / {lines_per_s} - time.monotonic()))\n"
        "    os.write(1, b'%d\\n' % time.monotonic_ns())"
    )
    with Daemon(f"[tasks.clock]\nrun = {toml([sys.executable, '-I', '-S', '-c', code])}\n") as daemon:
        client = daemon.client()
        run = client.trigger("clock")
        with _listening(daemon, "follow", clients, f"/api/runs/{run['id']}/log/stream?from=0") as listeners:
            _said(listeners)
            worker, processes = worker_of(daemon), daemon.processes()
            start_s, used_s, all_s = time.monotonic(), cpu_s(worker), sum(map(cpu_s, processes))
            found = _said(listeners)
            took_s = time.monotonic() - start_s
            found["worker"] = 100 * (cpu_s(worker) - used_s) / took_s
            found["daemon"] = 100 * (sum(map(cpu_s, processes)) - all_s) / took_s
        client.close()
    if found["lines"] != count or found["complete"] != clients:
        raise Failed(f"{found['complete']} of {clients} clients have all of {found['lines']} of {count} lines")
    return found


def idle_streams(quick: bool) -> list[Row]:
    """Measure the memory of 2,000 idle streams; the floor is the same worker with 20."""
    count = 200 if quick else _IDLE
    before, after = idle_memory_mb(count)
    more, bar = after - before, 40 * count / _IDLE
    each = f"{more / count * 1024:.1f} KB each"
    what = f"memory: {count} idle streams, more"
    return [Row(what, f"{more:.1f} MB", f"{before:.1f} MB", "", f"<= {bar:g} MB", more <= bar, each)]


def idle_memory_mb(count: int) -> tuple[float, float]:
    """Return the memory (PSS) of the worker with 20 idle streams, and with `count` more."""
    with Daemon('[tasks.silent]\nrun = "exec sleep 1000000"\n') as daemon:
        client = daemon.client()
        run = client.trigger("silent")
        target = f"/api/runs/{run['id']}/log/stream"
        with _listening(daemon, "hold", _WARM_UP, target) as first:
            _said(first)
            before = _memory_mb(daemon)
            with _listening(daemon, "hold", count, target) as listeners:
                _said(listeners)
                after = _memory_mb(daemon)
        client.close()
    return before, after


def herd(quick: bool) -> list[Row]:
    """Open 200 streams at the answer to a trigger: each must get every line, and ``done``."""
    rounds = 1 if quick else 25
    took: list[float] = []
    complete = 0
    with (
        Daemon(f"[tasks.short]\nrun = {toml(['seq', '1', _HERD_LINES])}\n") as daemon,
        _listening(daemon, "herd", _CLIENTS, "short") as listeners,
    ):
        assert listeners.stdin is not None
        for _ in range(rounds):
            print(file=listeners.stdin, flush=True)
            found = _said(listeners)
            if found["lines"] != _HERD_LINES:
                raise Failed(f"{found['lines']} lines of {_HERD_LINES}")
            complete += int(found["complete"])
            took.append(found["took"] * 1000)
    every = rounds * _CLIENTS
    return [
        Row(
            f"{_CLIENTS} streams at the trigger, with every line and done",
            f"{complete} of {every}",
            "",
            "",
            "all",
            complete == every,
            f"{quantile(took, 0.5):.0f} ms until all have ended, {between(took, '{:.0f} ms')}",
        )
    ]


@contextmanager
def _listening(daemon: Daemon, mode: str, count: int, target: str) -> Iterator[Listeners]:
    command = [sys.executable, "-m", "bench.logs.listeners", mode, daemon.port, daemon.authorization, count, target]
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_WAIT_S)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _said(listeners: Listeners) -> dict[str, Any]:
    assert listeners.stdout is not None
    line = listeners.stdout.readline()
    if not line:
        raise Failed("the listeners ended")
    found: dict[str, Any] = json.loads(line)
    return found


def worker_of(daemon: Daemon) -> psutil.Process:
    """Return the API worker."""
    for process in daemon.processes():
        if title(process) == "ringward gunicorn worker":
            return process
    raise Failed("there is no worker")


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _memory_mb(daemon: Daemon) -> float:
    """Return the memory (PSS) of the worker."""
    return float(worker_of(daemon).memory_full_info().pss) / (1 << 20)
