"""Memory of the supervisor and of the rings, with much output through one ring, and with many rings.

The floor is the same daemon before that, idle. Peaks come from continuous samples. The memory of the supervisor (PSS)
includes a share of each ring page that it touched, so a second row shows the rings alone.
"""

import os
import time
from dataclasses import dataclass
from typing import Any

from bench.client import Client, Failed
from bench.daemon import Daemon, toml
from bench.logs.ingest import wide
from bench.measure import Row

_DEADLINE_S = 600.0
_EVERY_S = 0.02
_RINGS = 200
_CHATTER = 'i=0; while [ $i -lt 100 ]; do echo "line $i"; i=$((i+1)); done; exec sleep 1000000'


@dataclass
class Memory:
    """Memory at one moment, or its peak, in MB."""

    supervisor: float = 0.0
    private: float = 0.0
    """Anonymous pages of the supervisor, without rings."""
    rings: float = 0.0

    def grow(self, now: "Memory") -> None:
        """Take the maximum of each figure."""
        self.supervisor = max(self.supervisor, now.supervisor)
        self.private = max(self.private, now.private)
        self.rings = max(self.rings, now.rings)


def _now(daemon: Daemon) -> Memory:
    found = Memory()
    with open(f"/proc/{daemon.pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("Pss", "Pss_Anon"):
                setattr(found, {"Pss": "supervisor", "Pss_Anon": "private"}[name], int(rest.split()[0]) / 1024)
    for entry in os.scandir(_runtime_dir(daemon)):
        if entry.name.endswith(".ring"):
            try:
                found.rings += entry.stat().st_blocks * 512 / (1 << 20)
            except FileNotFoundError:
                continue
    return found


def _runtime_dir(daemon: Daemon) -> str:
    identity = (daemon.directory / "data" / "id").read_text().strip()
    for base in ("/run/ringward", f"{os.environ.get('XDG_RUNTIME_DIR')}/ringward", f"/dev/shm/ringward-{os.getuid()}"):
        if os.path.isdir(f"{base}/{identity}"):
            return f"{base}/{identity}"
    raise Failed("the runtime directory is not found")


def memory(quick: bool) -> list[Row]:
    """Measure 10 GB through one ring, and 200 live rings with some output each."""
    return [*_flood(200 if quick else 10_000), *_many(20 if quick else _RINGS)]


def _flood(megabytes: int) -> list[Row]:
    source = wide(megabytes)
    # Small log files suffice: the benchmark measures throughput.
    with Daemon(f'[tasks.flood]\nrun = {toml(source.argv)}\nlog_max_size = "64mb"\n') as daemon:
        client = daemon.client()
        before, most = _now(daemon), Memory()
        start_s = time.monotonic()
        run = client.trigger("flood")
        while (now := _run(client, run["id"]))["status"] != "ended":
            most.grow(_now(daemon))
            if time.monotonic() - start_s > _DEADLINE_S:
                raise Failed(f"{megabytes} MB take longer than {_DEADLINE_S:g} s")
            time.sleep(_EVERY_S)
        took_s = time.monotonic() - start_s
        page = client.get(f"/api/runs/{run['id']}/log?from=-1&limit=1")
        if now["endReason"] != "succeeded" or page["totalLines"] != source.lines:
            raise Failed(f"{now['endReason']}, {page['totalLines']} lines of {source.lines}")
        client.close()
    return _rows(f"memory: {megabytes / 1000:g} GB through one ring", before, most, f"in {took_s:.0f} s")


def _many(rings: int) -> list[Row]:
    task = f"[tasks.chat]\nrun = {toml(['/bin/sh', '-c', _CHATTER])}\nmax_concurrent = {rings}\n"
    with Daemon(task) as daemon:
        client = daemon.client()
        before, most = _now(daemon), Memory()
        runs = [client.trigger("chat")["id"] for _ in range(rings)]
        for run in runs:
            start_s = time.monotonic()
            while client.get(f"/api/runs/{run}/log?from=-1&limit=1")["totalLines"] != 100:
                most.grow(_now(daemon))
                if time.monotonic() - start_s > _DEADLINE_S:
                    raise Failed(f"run {run} prints nothing")
                time.sleep(_EVERY_S)
        time.sleep(1.0)
        most.grow(_now(daemon))
        client.close()
    each = (most.rings - before.rings) / rings * 1024
    return _rows(f"memory: {rings} live rings", before, most, f"{each:.0f} KB each")


def _run(client: Client, run: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/runs/{run}?naming=camel")
    return found


def _rows(what: str, before: Memory, most: Memory, note: str) -> list[Row]:
    return [
        Row(
            f"{what}, supervisor (PSS)",
            f"{most.supervisor:.1f} MB",
            f"{before.supervisor:.1f} MB",
            f"{most.supervisor / before.supervisor:.2f} x",
            "",
            None,
            f"{most.private:.1f} MB its own",
        ),
        Row(f"{what}, rings", f"{most.rings:.2f} MB", f"{before.rings:.2f} MB", "", "", None, note),
    ]
