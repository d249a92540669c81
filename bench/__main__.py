"""``python -m bench [ROW ...] [--quick]``: measure a real daemon, print one table.

The table shows each figure beside its floor, measured in turn with it in the same run, and the bar to hold. Everything
runs on loopback and in temporary directories. ``--quick`` shortens everything, to check that it works; its figures mean
little.

``python -m bench.logs.ring_micro`` measures ring and log file alone, ``python -m bench.queries.store_micro`` the
database with a million runs, and ``python -m bench.logs.search`` the search.

``peers`` replaces the floor by other process managers on this machine; bench/peers/rows.py describes them.
"""

import sys
import time
from collections.abc import Callable

from bench.client import Failed
from bench.lifecycle import demo, lifetime, memory, metrics, reload, scale
from bench.logs import command_line, exporting, fanout, ingest, redraw, streams, unit_streams
from bench.measure import Row, arguments_of, conditions, table
from bench.peers import rows as peers
from bench.queries import dashboard, endpoints
from bench.runs import admission, notifying, sampling, short_runs, simulating

ROWS: dict[str, Callable[[bool], list[Row]]] = {
    "ingest": ingest.ingest,
    "eight": ingest.eight,
    "lines": ingest.line_by_line,
    "redraw": redraw.redraw,
    "stream": streams.output_to_stream,
    "trigger": streams.trigger_to_line,
    "run": command_line.run_many_lines,
    "export": exporting.export,
    "fanout": fanout.fanout,
    "streams": fanout.idle_streams,
    "unit": unit_streams.unit_streams,
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
    "slots": admission.admission,
    "dashboard": dashboard.dashboard,
    "demo": demo.demo,
    "endpoints": endpoints.endpoints,
    "filters": endpoints.filters,
    "peers": peers.peers,
}


def main() -> int:
    """Return 0, even if a bar is missed (other machines have other disks), or 1 after an error."""
    names, quick = arguments_of("bench", "Measure a real daemon, print one table.", ROWS)
    found: list[Row] = []
    status = 0
    start_s = time.monotonic()
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        try:
            found += ROWS[name](quick)
        except (Failed, OSError) as err:
            print(f"{name}: {type(err).__name__}: {err}", file=sys.stderr)
            found.append(Row(name, "failed", "", "", "", ok=False))
            status = 1
    print(table(found))
    print(conditions(start_s))
    return status


if __name__ == "__main__":
    sys.exit(main())
