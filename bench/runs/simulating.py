"""Time of ``ringward simulate`` for a year of five hundred tasks."""

import subprocess
import tempfile
import time
from pathlib import Path

from bench.client import Failed
from bench.daemon import DISK, RINGWARD
from bench.measure import Row, limit_row

_BAR_S = 30.0
_ZONES = ("Europe/Prague", "America/New_York", "Australia/Lord_Howe", "UTC")
_SCHEDULES = (
    *("cron = '{minute} {hour} * * *'",) * 14,
    *("cron = '{minute} * * * *'",) * 3,
    "cron = '*/15 * * * *'",
    "cron = ['{minute} {hour} * * mon-fri', '0 0 1 * *']",
    "every = '7m'",
)
"""Schedules of twenty tasks; most run once a day."""


def simulation(quick: bool) -> list[Row]:
    """Measure a simulation; the floor is ``ringward validate`` of the same file."""
    days, count = (30, 20) if quick else (365, 500)
    with tempfile.TemporaryDirectory(prefix="ringward-bench-", dir=DISK) as where:
        path = Path(where) / "ringward.toml"
        path.write_text("".join(map(_task, range(count))))
        path.chmod(0o600)
        floor_s = _seconds("validate", f"--config={path}")
        took_s = _seconds("simulate", f"--days={days}", "--duration=3m", f"--config={path}")
    return [limit_row(f"simulation of {days} days of {count} tasks", [(took_s, floor_s)], "{:.2f} s", _BAR_S)]


def _task(number: int) -> str:
    when = _SCHEDULES[number % len(_SCHEDULES)].format(minute=number % 60, hour=number // 20 % 24)
    return f"[tasks.t{number}]\nrun = 'true'\n{when}\ntimezone = '{_ZONES[number % len(_ZONES)]}'\n"


def _seconds(*arguments: object) -> float:
    start_s = time.monotonic()
    done = subprocess.run([RINGWARD, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"ringward {arguments[0]}: {done.stderr}")
    return time.monotonic() - start_s
