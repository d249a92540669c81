"""Delay of output at a client: from the write of a line, and from the trigger."""

import json
import subprocess
import sys
import time

from bench.client import Client, Failed
from bench.daemon import Daemon, toml
from bench.measure import Row, latency_rows

_PAUSE_S = 0.02
ECHO = ["/bin/echo", "here"]


def clock(count: int) -> list[str]:
    """A program that prints the monotonic clock, line by line, with pauses."""
    code = (
        "import os, time\n"
        f"for i in range({count}):\n    time.sleep({_PAUSE_S})\n    os.write(1, b'%d\\n' % time.monotonic_ns())"
    )
    return [sys.executable, "-I", "-S", "-c", code]


def output_to_stream(quick: bool) -> list[Row]:
    """Measure from the write of a line to its receipt by an SSE client; the floor reads the pipe."""
    count = 50 if quick else 500
    floor: list[float] = []
    ours: list[float] = []
    with Daemon(f"[tasks.clock]\nrun = {toml(clock(count))}\n") as daemon:
        for _ in range(1 if quick else 2):
            reader = subprocess.Popen(clock(count), stdout=subprocess.PIPE, bufsize=0)
            assert reader.stdout is not None
            while lines := reader.stdout.read(4096):
                at_ns = time.monotonic_ns()
                floor += [(at_ns - int(line)) / 1e9 for line in lines.split()]
            reader.wait()
            client = daemon.client()
            ours += ticks(client, count)
            client.close()
    return latency_rows("output -> SSE client", ours, floor, (0.5, 5))


def ticks(client: Client, count: int) -> list[float]:
    """Run the task ``clock``, which prints so many lines; return the seconds from the write of each to its receipt."""
    run = client.trigger("clock")
    lines = [one for one in client.stream(f"/api/runs/{run['id']}/log/stream?from=0") if one.name == b"line"]
    if len(lines) != count:
        raise Failed(f"{len(lines)} lines of {count}")
    return [(line.at_ns - int(json.loads(line.data)["text"])) / 1e9 for line in lines]


def trigger_to_line(quick: bool) -> list[Row]:
    """Measure from the request of a trigger to the first line on a stream opened at its answer."""
    count = 20 if quick else 200
    floor: list[float] = []
    ours: list[float] = []
    with Daemon(f"[tasks.echo]\nrun = {toml(ECHO)}\n") as daemon:
        trigger, stream = daemon.client(), daemon.client()
        stream.get("/api/tasks")
        for _ in range(count):
            start_ns = time.monotonic_ns()
            child = subprocess.Popen(ECHO, stdout=subprocess.PIPE, bufsize=0)
            assert child.stdout is not None
            child.stdout.read(64)
            floor.append((time.monotonic_ns() - start_ns) / 1e9)
            child.wait()
            child.stdout.close()
            ours.append(first_line(trigger, stream))
    return latency_rows("trigger -> first line on a stream", ours, floor, (4, 15))


def first_line(trigger: Client, stream: Client) -> float:
    """Run the task ``echo``; return the seconds from the request to its only line on another connection."""
    start_ns = time.monotonic_ns()
    run = trigger.trigger("echo")
    lines = [one for one in stream.stream(f"/api/runs/{run['id']}/log/stream?from=0") if one.name == b"line"]
    if len(lines) != 1:
        raise Failed(f"{len(lines)} lines instead of one")
    return (lines[0].at_ns - start_ns) / 1e9
