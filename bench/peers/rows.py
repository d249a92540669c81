"""Other process managers, each measured in turn with Ringward: ``python -m bench peers``.

Executables are found in the directories of the environment variable ``BENCH_PEERS`` (as in PATH), then in PATH; missing
ones are skipped. In the table, a peer replaces the floor, and a ratio below 1 means that Ringward needs less. All peers
have their shortest delays: ``startsecs = 0``, and no pause before a restart. The rows are:

cold start      from the execution to the first answer: of ``/healthz``, of supervisord's ``getState`` over XML-RPC, of
                circus' ``status``, of pm2's ``ping``. Like ``ringward up``, ``pm2 ping`` starts the daemon.
idle            processor and memory (PSS) of the manager while ten services sleep; Ringward also has ten tasks.
killed          from the death of a service to the first write of its successor. circus polls for ended programs: here
                every 10 ms (``check_delay``); in the row ``idle``, every 5 s, its default.
stop            from SIGTERM to the end of the daemon, and the number of processes left; all ten services obey.
ingest          from the request to start until the last line is readable: for Ringward through the API after the end
                of the run, for peers in the log file; in units of ``| cat > file``, measured right after each. A peer
                with an incomplete file has no figure ("loses output"). Ringward starts eight writers at once, peers
                one after the other, because circus refuses a start during another one.
first line      from the request to start until the first line arrives: for Ringward at an SSE client, for peers at a
                reader of the log file that the kernel wakes. ``supervisorctl tail -f`` reads that file, so it is later;
                pm2's bus and circus' pubsub are not measured.
output          from the write of a line to the same point.

short runs      runs of ``true`` a second over 16 connections until all are in the history; only RunWisp has runs. A
                ratio above 1 means that Ringward does more.

Peers write raw text to a file; Ringward also numbers, dates and indexes the lines. RunWisp has the same API as
Ringward, without a password here: its lines are read from its streams, and its logs from its API.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import psutil

from bench.client import Failed
from bench.daemon import Daemon, title, toml
from bench.lifecycle.lifetime import (
    SERVICES,
    SETTLE_S,
    SLEEP,
    TASKS,
    Fifo,
    cpu_ns,
    first_answer,
    idling,
    stopped,
    wait_running,
)
from bench.logs.ingest import WRITERS, Source, at_once, numbers, through_cat, through_daemon, wide
from bench.logs.streams import ECHO, clock, first_line, ticks
from bench.measure import Row, in_turn, latency_rows, peer_row
from bench.peers.circus import Circus
from bench.peers.peer import DEADLINE_S, Lost, Peer, Program
from bench.peers.pm2 import Pm2
from bench.peers.runwisp import RunWisp
from bench.peers.supervisord import Supervisord
from bench.runs.short_runs import SHORT, ShortRuns

_KINDS: tuple[type[Peer], ...] = (RunWisp, Supervisord, Circus, Pm2)
_BARS = {
    ("cold start", "supervisord"): 0.4 / 0.07,
    ("stop", "circus"): 0.3 / 0.17,
    ("first line", "pm2"): 4 / 2.3,
}
"""Allowed figure of Ringward as a multiple of the peer: bar divided by the peer's figure, on one machine.

Unlike bars in seconds, these are comparable between machines.
"""
_ROUNDS = 5
_SLEEPS = [Program(f"s{number}", SLEEP, service=True) for number in range(10)]


@dataclass(frozen=True)
class Found:
    """A peer on this machine."""

    kind: type[Peer]
    executable: str

    @property
    def name(self) -> str:
        return self.kind.name

    def running(self, *programs: Program, start: bool = True) -> Peer:
        """Return the peer with these programs, as a context."""
        return self.kind(self.executable, programs, start=start)


def peers(quick: bool) -> list[Row]:
    """Measure all rows of all peers on this machine."""
    found = list(_found())
    rows = []
    for measure in (_cold_start, _idle, _revive, _stop, _ingest, _eight, _trigger, _output, _short) if found else ():
        for peer in found:
            try:
                rows += measure(peer, quick)
            except (Failed, OSError, psutil.Error) as err:
                what = measure.__name__.removeprefix("_")
                print(f"{what}, {peer.name}: {type(err).__name__}: {err}", file=sys.stderr)
                rows.append(Row(f"{what}, {peer.name}", "failed", "", "", "", ok=False))
    return rows


def _found() -> Sequence[Found]:
    path = os.pathsep.join(filter(None, (os.environ.get("BENCH_PEERS"), os.environ.get("PATH", os.defpath))))
    found = []
    for kind in _KINDS:
        if executable := shutil.which(kind.program, path=path):
            found.append(Found(kind, os.path.abspath(executable)))
        else:
            print(
                f"{kind.name} is skipped: no {kind.program} in BENCH_PEERS or PATH; to have it: {kind.install}",
                file=sys.stderr,
            )
    return found


def _cold_start(peer: Found, quick: bool) -> list[Row]:
    def theirs() -> float:
        with peer.running(Program("t", ["/bin/true"], service=False), start=False) as running:
            start_s = time.monotonic()
            running.launch()
            running.wait_answer()
            return time.monotonic() - start_s

    pairs = in_turn(2 if quick else _ROUNDS, lambda: first_answer()[0], theirs)
    bar = _BARS.get(("cold start", peer.name))
    return [peer_row(f"cold start to the first answer, {peer.name}", pairs, "{:.3f} s", bar)]


def _idle(peer: Found, quick: bool) -> list[Row]:
    settle_s, span_s = (1.0, 2.0) if quick else (SETTLE_S, 20.0)

    def used(processes: list[psutil.Process]) -> tuple[float, float]:
        shares, memory = idling(processes, span_s)
        return sum(shares), sum(memory)

    with Daemon(SERVICES + TASKS) as daemon:
        wait_running(daemon, 10)
        time.sleep(settle_s)
        ours = used(daemon.processes())
    with peer.running(*_SLEEPS) as running:
        running.wait_running(10)
        time.sleep(settle_s)
        theirs = used([psutil.Process(running.pid)])
    return [
        Row(
            f"idle: {what}, {peer.name}",
            unit.format(one),
            unit.format(other),
            f"{one / other:.2f} x" if other else "",
            "",
            None,
        )
        for what, unit, one, other in zip(
            ("processor", "memory (PSS)"), ("{:.2f} %", "{:.1f} MB"), ours, theirs, strict=True
        )
    ]


def _revive(peer: Found, quick: bool) -> list[Row]:
    count = 5 if quick else 30
    keen = Found(peer.kind.keen(), peer.executable)

    def ours(fifo: Fifo) -> list[float]:
        with Daemon(fifo.definition()) as daemon:
            return fifo.kills(count, lambda: wait_running(daemon, 1))

    def theirs(fifo: Fifo) -> list[float]:
        with keen.running(Program("s", fifo.command, service=True)) as running:
            return fifo.kills(count, lambda: running.wait_running(1))

    def alone(measure: Callable[[Fifo], list[float]]) -> list[float]:
        fifo = Fifo()
        try:
            return measure(fifo)
        finally:
            fifo.close()

    one, other = _rounds(1 if quick else _ROUNDS, lambda: alone(ours), lambda: alone(theirs))
    return latency_rows(f"service killed -> running again, {peer.name}", one, other)


def _stop(peer: Found, quick: bool) -> list[Row]:
    left: list[int] = []

    def theirs() -> float:
        with peer.running(*_SLEEPS) as running:
            running.wait_running(10)
            took_s, count = running.stop()
            left.append(count)
        return took_s

    pairs = in_turn(1 if quick else _ROUNDS, stopped, theirs)
    return [
        peer_row(f"clean stop, 10 services, {peer.name}", pairs, "{:.3f} s", _BARS.get(("stop", peer.name))),
        Row(f"clean stop: left behind, {peer.name}", "0", str(max(left)), "", "", None),
    ]


def _ingest(peer: Found, quick: bool) -> list[Row]:
    source = numbers(100_000 if quick else 5_000_000)
    return [_flood(peer, f"ingest: seq 1 {source.last}", source, 1, 2 if quick else _ROUNDS)]


def _eight(peer: Found, quick: bool) -> list[Row]:
    return [_flood(peer, f"{WRITERS} writers at once", wide(1 if quick else 20), WRITERS, 2 if quick else _ROUNDS)]


def _flood(peer: Found, what: str, source: Source, writers: int, rounds: int) -> Row:
    label = f"{what}, in cat's, {peer.name}"
    size_bytes = _printed_bytes(source)
    programs = [Program(f"flood{number}", source.argv, service=False) for number in range(writers)]
    own: list[float] = []
    with Daemon(source.definition(writers)) as daemon, peer.running(*programs) as running, ExitStack() as stack:
        clients = [stack.enter_context(closing(daemon.client())) for _ in programs]

        def ours() -> float:
            daemon.remove_logs()
            took_s = max(at_once(clients, source)) if writers > 1 else through_daemon(clients[0], source)
            own.append(took_s / through_cat(source, writers))
            return own[-1]

        def theirs() -> float:
            names = [program.name for program in programs]
            return running.flood(names, source, size_bytes) / through_cat(source, writers)

        try:
            return peer_row(label, in_turn(rounds, ours, theirs), "{:.2f} x")
        except Lost as err:
            print(err, file=sys.stderr)
            return Row(label, f"{statistics.median(own):.2f} x", "loses output", "", "", None)


def _printed_bytes(source: Source) -> int:
    counted = subprocess.run(
        ["/bin/sh", "-c", '"$@" | wc -c', "sh", *source.argv], stdout=subprocess.PIPE, check=True, timeout=DEADLINE_S
    )
    return int(counted.stdout)


def _trigger(peer: Found, quick: bool) -> list[Row]:
    count = 5 if quick else 50
    with (
        Daemon(f"[tasks.echo]\nrun = {toml(ECHO)}\n") as daemon,
        peer.running(Program("echo", ECHO, service=False)) as running,
        closing(daemon.client()) as trigger,
        closing(daemon.client()) as stream,
    ):

        def ours() -> list[float]:
            return [first_line(trigger, stream) for _ in range(count)]

        one, other = _rounds(2 if quick else _ROUNDS, ours, lambda: running.first_lines("echo", count))
    p50, p99 = latency_rows(f"trigger -> first line, {peer.name}", one, other)
    bar = _BARS.get(("first line", peer.name))
    if bar is not None:
        ok = statistics.median(one) <= bar * statistics.median(other)
        p50 = replace(p50, bar=f"<= {bar:.2f} x", ok=ok)
    return [p50, p99]


def _output(peer: Found, quick: bool) -> list[Row]:
    count = 25 if quick else 150
    argv = clock(count)
    with (
        Daemon(f"[tasks.clock]\nrun = {toml(argv)}\n") as daemon,
        peer.running(Program("clock", argv, service=False)) as running,
        closing(daemon.client()) as client,
    ):
        one, other = _rounds(
            1 if quick else _ROUNDS, lambda: ticks(client, count), lambda: running.ticks("clock", count)
        )
    return latency_rows(f"output -> who follows, {peer.name}", one, other)


def _short(peer: Found, quick: bool) -> list[Row]:
    count = 200 if quick else 2000
    rounds = 2 if quick else _ROUNDS
    with Daemon(SHORT) as daemon, peer.running(Program("true", ["/bin/true"], service=False)) as running:
        short_runs = ShortRuns(daemon)
        # The spare becomes a run.
        ours = [process for process in daemon.processes() if title(process) != "ringward spare"]
        theirs = [psutil.Process(running.pid)]
        try:
            pairs = [
                (
                    _rate_and_processor(ours, lambda: short_runs.measure(count), count),
                    _rate_and_processor(theirs, lambda: running.short_runs("true", count), count),
                )
                for _ in range(rounds)
            ]
        except NotImplementedError:
            return []
    rates, processor = ([(one[figure], other[figure]) for one, other in pairs] for figure in (0, 1))
    return [
        peer_row(f"short runs, {peer.name}", rates, "{:.0f} /s"),
        peer_row(f"short runs: processor time of each, {peer.name}", processor, "{:.2f} ms"),
    ]


def _rate_and_processor(processes: list[psutil.Process], work: Callable[[], float], count: int) -> tuple[float, float]:
    """Return the runs a second, and the processor time that these processes spent on each run, in ms."""
    before = {process.pid: cpu_ns(process) for process in processes}
    rate = work()
    spent_ns = sum(cpu_ns(process) - before[process.pid] for process in processes)
    return rate, spent_ns / count / 1e6


def _rounds(
    rounds: int, ours: Callable[[], list[float]], theirs: Callable[[], list[float]]
) -> tuple[list[float], list[float]]:
    """Return all times of Ringward and of the peer, measured in turn."""
    one, other = [], []
    for _ in range(rounds):
        one += ours()
        other += theirs()
    return one, other
