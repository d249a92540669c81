"""Start of ``ringward demo`` with its year of history; the floor is a daemon without history."""

import subprocess
import time

from bench.client import Failed
from bench.daemon import RINGWARD, Daemon
from bench.measure import Row, in_turn, limit_row

_LINES = 5
_BAR_S = 3.0


def _demo() -> float:
    """Measure the seconds from the command until it announces the dashboard."""
    start_s = time.perf_counter()
    with subprocess.Popen([str(RINGWARD), "demo"], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        said = [demo.stdout.readline() for _ in range(_LINES)]
        took_s = time.perf_counter() - start_s
        demo.terminate()
    if "address" not in said[1]:
        raise Failed("the demonstration does not start")
    return took_s


def _bare() -> float:
    with Daemon("", start=False) as daemon:
        start_s = time.perf_counter()
        daemon.launch()
        daemon.wait_ready()
        return time.perf_counter() - start_s


def demo(quick: bool) -> list[Row]:
    """Measure the time from the command to the first answer."""
    pairs = in_turn(1 if quick else 5, _demo, _bare)
    return [limit_row("ringward demo -> its dashboard", pairs, "{:.2f} s", _BAR_S)]
