"""Reload of a configuration with 500 tasks, unchanged and with one changed task."""

import subprocess
import time

from bench.client import Failed
from bench.daemon import RINGWARD, Daemon
from bench.measure import Row, in_turn, quantile

_TASKS = 500
_MOVING = "run = 'exit 1'"


def reload(quick: bool) -> list[Row]:
    """Measure from the request to the answer, after everything is stored; the floor is ``ringward validate``."""
    text = "".join(f"[tasks.t{n}]\nrun = 'exit {n}'\ncron = '{n % 60} 3 1 1 *'\n" for n in range(_TASKS))
    rounds = 3 if quick else 20
    rows: list[Row] = []
    with Daemon(text) as daemon:
        client = daemon.client()
        client.post("/api/daemon/reload")  # the first one loads modules, which then stay loaded
        config = daemon.config.read_text()

        def floor() -> float:
            start_s = time.monotonic()
            subprocess.run([RINGWARD, "validate", daemon.config], check=True, stdout=subprocess.DEVNULL)
            return time.monotonic() - start_s

        for what, changes in (("the same", 0), ("one of them changed", 1)):
            count = 0

            def ours(changes: int = changes) -> float:
                nonlocal count
                count += 1
                if changes:
                    daemon.config.write_text(config.replace(_MOVING, f"run = 'echo {count}'"))
                start_s = time.monotonic()
                report = client.post("/api/daemon/reload")
                took_s = time.monotonic() - start_s
                if len(report["changed"]) != changes:
                    raise Failed(f"the reload changed {report['changed']}")
                return took_s

            pairs = in_turn(rounds, ours, floor)
            took_ms, floor_ms = (quantile([pair[one] for pair in pairs], 0.5) * 1000 for one in (0, 1))
            rows.append(
                Row(
                    f"reload of {_TASKS} tasks, {what}, p50",
                    f"{took_ms:.0f} ms",
                    f"{floor_ms:.0f} ms",
                    f"{took_ms / floor_ms:.2f} x",
                    "",
                    None,
                    f"max {max(pair[0] for pair in pairs) * 1000:.0f} ms",
                )
            )
        client.close()
    return rows
