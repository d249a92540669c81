"""``ringward run`` of a task that prints a million lines; the floor is ``ringward logs --raw`` of the same lines."""

import subprocess
import time

from bench.client import Failed
from bench.daemon import RINGWARD, Daemon, toml
from bench.measure import Row, in_turn, ratio_row

_BAR = 3.0


def run_many_lines(quick: bool) -> list[Row]:
    """Measure the command until all lines are printed and the run has ended."""
    lines = 20_000 if quick else 1_000_000
    with Daemon(f"[tasks.lines]\nrun = {toml(['seq', lines])}\n") as daemon:

        def printed(*command: str) -> float:
            argv = [str(RINGWARD), "--data", str(daemon.directory / "data"), *command]
            start_s = time.perf_counter()
            out = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
            took_s = time.perf_counter() - start_s
            if (found := out.count(b"\n")) != lines:
                raise Failed(f"{found} lines of {lines}")
            return took_s

        pairs = in_turn(1 if quick else 5, lambda: printed("run", "lines"), lambda: printed("logs", "--raw", "lines"))
    return [ratio_row(f"ringward run, {lines:,} lines", pairs, "{:.2f} s", _BAR)]
