"""How costs grow with the number of runs in the history."""

import os
import sys
import time

import psutil

from bench.client import Client, Failed
from bench.daemon import Daemon, title
from bench.growth.series import CONSTANT, Series, median_ms
from bench.lifecycle.lifetime import pss_mb
from bench.queries.history import fill, task_name
from store.database import open_writer

_AMOUNTS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_TASKS = 100
_FULL_PAGE = 100_000
"""The least runs of which a page of the failed runs of one task is full. A part of a page takes less time."""
_TIMES = 30
_KEEP = "[defaults]\nkeep_runs = 1000000000\nkeep_refused = 1000000000\nkeep_for = '3650d'\n"
_ENOUGH_FREE = 12 << 30
"""Free bytes of the disk without which the largest history is left out."""


def runs(quick: bool) -> list[Series]:
    """Measure with up to ten million runs."""
    figures = {
        "newest": Series("newest page of runs, with their number", "{:.2f} ms", CONSTANT),
        "filter": Series("page of the failed runs of one task", "{:.2f} ms", CONSTANT),
        "one": Series("one run by its id", "{:.2f} ms", CONSTANT),
        "trigger": Series("trigger, until the run is stored", "{:.2f} ms", CONSTANT),
        "start": Series("start of the daemon, until it is ready", "{:.0f} ms", CONSTANT),
        "memory": Series("memory of the scheduler", "{:.1f} MB", CONSTANT),
    }
    for amount in _AMOUNTS[: 2 if quick else None]:
        if amount == _AMOUNTS[-1] and _free() < _ENOUGH_FREE:
            print(f"{amount:,} runs are left out: they need {_ENOUGH_FREE >> 30} GiB in /var/tmp", file=sys.stderr)
            continue
        for name, value in _measured(amount).items():
            if name != "filter" or quick or amount >= _FULL_PAGE:
                figures[name].values[amount] = value
    return list(figures.values())


def _free() -> int:
    return psutil.disk_usage("/var/tmp").free


def _measured(amount: int) -> dict[str, float]:
    tasks = "".join(f"[tasks.{task_name(number)}]\nrun = 'true'\n" for number in range(_TASKS))
    with Daemon(f"{_KEEP}{tasks}", start=False) as daemon:
        data = daemon.directory / "data"
        data.mkdir(mode=0o700)
        writer = open_writer(str(data / "ringward.db"))
        fill(writer, amount, _TASKS)
        writer.close()
        os.sync()
        start_s = time.monotonic()
        daemon.launch()
        daemon.wait_ready()
        ready_s = time.monotonic() - start_s
        client = daemon.client()
        newest = client.get("/api/runs?limit=50&naming=camel")
        if newest["total"] != amount:
            raise Failed(f"{newest['total']} runs instead of {amount}")
        found = {
            "start": ready_s * 1000,
            "newest": _page(client, "/api/runs?limit=50"),
            "filter": _page(client, f"/api/runs?limit=50&task_name={task_name(3)}&status=failed"),
            "one": _page(client, f"/api/runs/{newest['runs'][0]['id']}"),
            "trigger": median_ms(lambda: client.trigger(task_name(5)), _TIMES),
        }
        (scheduler,) = (process for process in daemon.processes() if title(process) == "ringward scheduler")
        found["memory"] = pss_mb(scheduler.pid)
        client.close()
    return found


def _page(client: Client, path: str) -> float:
    return median_ms(lambda: client.get(path), _TIMES)
