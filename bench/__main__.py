"""``python -m bench [ROW ...] [--quick]``: measure a real daemon, print one table.

Every figure stands beside its floor, measured in the same run, in turn with it; the bars are those of the design. On
loopback and in temporary directories only. ``--quick`` shortens everything, to see that it works: its figures mean
little.

Parts are measured by ``python -m bench.ring_micro`` (ring and log file alone) and ``python -m bench.store_micro`` (the
database at a million runs), searching by ``python -m bench.search``.

``peers`` puts other process managers that are found on this machine in the floor's place, see bench/peers/rows.py.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

from bench import (
    dashboard,
    demo,
    endpoints,
    fanout,
    ingest,
    lifetime,
    memory,
    metrics,
    notifying,
    redraw,
    reload,
    sampling,
    scale,
    short_runs,
    simulating,
    streams,
)
from bench.client import Failed
from bench.measure import Row, table
from bench.peers import rows as peers

ROWS: dict[str, Callable[[bool], list[Row]]] = {
    "ingest": ingest.ingest,
    "eight": ingest.eight,
    "lines": ingest.line_by_line,
    "redraw": redraw.redraw,
    "stream": streams.output_to_stream,
    "trigger": streams.trigger_to_line,
    "fanout": fanout.fanout,
    "streams": fanout.idle_streams,
    "herd": fanout.herd,
    "short": short_runs.short_runs,
    "start": lifetime.cold_start,
    "idle": lifetime.idle,
    "revive": lifetime.revive,
    "stop": lifetime.clean_stop,
    "memory": memory.memory,
    "sampling": sampling.sampling,
    "metrics": metrics.metrics,
    "reload": reload.reload,
    "notify": notifying.dead_receiver,
    "scale": scale.scale,
    "simulate": simulating.simulation,
    "dashboard": dashboard.dashboard,
    "demo": demo.demo,
    "endpoints": endpoints.endpoints,
    "filters": endpoints.filters,
    "peers": peers.peers,
}


def main() -> int:
    """Returns 0 whether or not the bars are met (other machines have other disks), 1 when something did not work."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure a real daemon, print one table.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which to measure; all of: {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="see that it works; the figures mean little")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.rows if name not in ROWS]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    found: list[Row] = []
    status = 0
    start_s = time.monotonic()
    for name in arguments.rows or ROWS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        try:
            found += ROWS[name](arguments.quick)
        except (Failed, OSError) as err:
            print(f"{name}: {type(err).__name__}: {err}", file=sys.stderr)
            found.append(Row(name, "failed", "", "", "", ok=False))
            status = 1
    print(table(found))
    load = "/".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"\n{os.cpu_count()} cores, load {load}, {time.monotonic() - start_s:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
