"""``python -m bench.runs.trigger_trace [COUNT]``: where the time from a slow trigger to its first line goes.

The daemon has no code for it. The time stamps come from the daemon's records, in milliseconds, and from the client::

    request -> run created -> process started -> line read by the root -> line at the client
            API,           commit,            exec, output             doorbell,
            control socket spawn              of the program           API worker

The kernel counts for each process how long it waited for a processor. Where these waits make up a slow trigger, the
machine was busy; else the daemon was. Page faults that needed the disk and involuntary switches are shown, too.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.client import Client, Failed
from bench.daemon import Daemon, title, toml
from bench.logs.streams import ECHO
from bench.measure import quantile

_STEPS = ("created", "started", "line", "received")
_SHOWN = 10
_PROCESSES = {
    "ringward supervisor": "root",
    "ringward scheduler": "scheduler",
    "ringward gunicorn worker": "worker",
}


class Trace(NamedTuple):
    """One trigger.

    Attributes:
        number: which one.
        total_ms: from the request to the line at the client.
        steps_ms: the parts of it.
        waits_ms: how long the threads of each process waited for a processor meanwhile.
    """

    number: int
    total_ms: float
    steps_ms: tuple[float, ...]
    waits_ms: dict[str, float]


def _processes(daemon: Daemon) -> dict[str, int]:
    """Return the pid of each process on the way."""
    return {_PROCESSES[name]: process.pid for process in daemon.processes() if (name := title(process)) in _PROCESSES}


def _waited_ms(pid: int) -> float:
    """Return how long all threads of a process have waited for a processor: schedstat of proc(5)."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[1]) for file in files) / 1e6


def _trace(number: int, trigger: Client, stream: Client, pids: dict[str, int]) -> Trace:
    before = {name: _waited_ms(pid) for name, pid in pids.items()}
    wall_ms, start_ns = time.time_ns() / 1e6, time.monotonic_ns()
    run = trigger.trigger("echo")
    lines = [one for one in stream.stream(f"/api/runs/{run['id']}/log/stream?from=0") if one.name == b"line"]
    waits = {name: _waited_ms(pid) - before[name] for name, pid in pids.items()}
    if len(lines) != 1:
        raise Failed(f"{len(lines)} lines instead of one")
    total_ms = (lines[0].at_ns - start_ns) / 1e6
    (line,) = trigger.get(f"/api/runs/{run['id']}/log")["lines"]
    record = trigger.get(f"/api/runs/{run['id']}?naming=camel")
    stamps_ms = [_ms(record["createdAt"]), _ms(record["startedAt"]), line["ts"], wall_ms + total_ms]
    steps = tuple(end - start for start, end in zip([wall_ms, *stamps_ms[:-1]], stamps_ms, strict=True))
    return Trace(number, total_ms, steps, waits)


def _ms(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp() * 1000


def _table(traces: Sequence[Trace]) -> str:
    """Return quantiles of all steps, and the slowest triggers step by step."""
    names = list(traces[0].waits_ms)
    head = f"{'':>10}{'total':>9}" + "".join(f"{name:>10}" for name in _STEPS)
    lines = [head + "".join(f"{f'{name} waits':>17}" for name in names)]

    def row(label: str, values: Sequence[float]) -> None:
        widths = [9, *[10] * len(_STEPS), *[17] * len(names)]
        lines.append(
            f"{label:>10}" + "".join(f"{value:>{width}.2f}" for value, width in zip(values, widths, strict=True))
        )

    columns = list(zip(*((trace.total_ms, *trace.steps_ms, *trace.waits_ms.values()) for trace in traces), strict=True))
    for label, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        row(label, [quantile(column, share) for column in columns])
    for one in sorted(traces, key=lambda trace: -trace.total_ms)[:_SHOWN]:
        row(f"no. {one.number}", [one.total_ms, *one.steps_ms, *one.waits_ms.values()])
    return "\n".join(lines)


def main() -> int:
    """Trace triggers one after the other, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.runs.trigger_trace", description="Trace slow triggers.")
    parser.add_argument("count", nargs="?", type=int, default=300)
    count = parser.parse_args().count
    with Daemon(f"[tasks.echo]\nrun = {toml(ECHO)}\n") as daemon:
        trigger, stream = daemon.client(), daemon.client()
        stream.get("/api/tasks")
        pids = _processes(daemon)
        for _ in range(20):
            _trace(0, trigger, stream, pids)
        traces = [_trace(number, trigger, stream, pids) for number in range(count)]
        trigger.close()
        stream.close()
    print(_table(traces))
    print("\nms; each step ends with its name; the stamps in between have a resolution of 1 ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
