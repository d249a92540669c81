"""Ten thousand tasks with different schedules on one daemon: start, idling, list of tasks, reload of all."""

import contextlib
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

import psutil

from bench.client import Client, Failed
from bench.daemon import RINGWARD, Daemon
from bench.lifecycle.lifetime import cpu_ns
from bench.measure import Row, quantile

_ZONES = ("Europe/Prague", "America/New_York", "Australia/Lord_Howe", "UTC")
_BOOT_BAR_S = 5.0
_IDLE_BAR = 2.0
_LIST_BAR_MS = 100.0


def scale(quick: bool) -> list[Row]:
    """Measure all rows; the floor is ``ringward validate`` of the same file, or ``/healthz`` of the same worker."""
    count = 200 if quick else 10_000
    with Daemon(_tasks(count, shift=0), start=False) as daemon:
        floor_s = _seconds(
            lambda: subprocess.run([RINGWARD, "validate", daemon.config], check=True, stdout=subprocess.DEVNULL)
        )

        def boot() -> None:
            daemon.launch()
            daemon.wait_ready()

        boot_s = _seconds(boot)
        client = daemon.client()
        while len(client.get("/api/tasks")["items"]) < count:  # all are stored
            time.sleep(0.01)
        busy_s = sum(_spent_ns(daemon.processes()).values()) / 1e9
        rows = [
            _row(
                f"boot with {count:,} cron tasks",
                boot_s,
                floor_s,
                "{:.2f} s",
                _BOOT_BAR_S,
                f"{busy_s:.1f} s of processor",
            ),
            _idle(daemon, count, quick=quick),
            *_list(client, count, quick=quick),
            *_reload(daemon, client, count, floor_s),
        ]
        client.close()
    return rows


def _tasks(count: int, shift: int) -> str:
    """Return tasks that run once a day, each at its own time in one of several zones."""
    return "".join(
        f"[tasks.t{n}]\nrun = 'true'\ncron = '{(n + shift) % 60} {n // 60 % 24} * * *'\ntimezone = '{_ZONES[n % 4]}'\n"
        for n in range(count)
    )


def _seconds(work: Callable[[], object]) -> float:
    start_s = time.monotonic()
    work()
    return time.monotonic() - start_s


def _row(what: str, ours: float, floor: float, unit: str, bar: float | None, spread: str = "") -> Row:
    ratio = f"{ours / floor:.1f} x"
    shown = "" if bar is None else f"<= {unit.format(bar)}"
    return Row(what, unit.format(ours), unit.format(floor), ratio, shown, None if bar is None else ours <= bar, spread)


def _idle(daemon: Daemon, count: int, *, quick: bool) -> Row:
    """Measure idling, during which seven tasks a minute run."""
    time.sleep(1 if quick else 5)
    processes = daemon.processes()
    before, start_s = _spent_ns(processes), time.monotonic()
    time.sleep(2 if quick else 30)
    spent_ns = sum(ns - before[pid] for pid, ns in _spent_ns(processes).items() if pid in before)
    used = spent_ns / 1e9 / (time.monotonic() - start_s) * 100
    return Row(f"idle with {count:,} tasks", f"{used:.2f} %", "", "", f"<= {_IDLE_BAR} %", used <= _IDLE_BAR)


def _spent_ns(processes: Sequence[psutil.Process]) -> dict[int, int]:
    """Return the processor time of each existing process by pid: a spare becomes a run and ends with it."""
    found = {}
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[process.pid] = cpu_ns(process)
    return found


def _list(client: Client, count: int, *, quick: bool) -> list[Row]:
    """Measure the list unchanged, and with one changed task each time, up to its last byte, without decoding."""

    def ask(method: str, path: str) -> None:
        client.send(method, path)
        status, _ = client.answer()
        if status not in (200, 204):
            raise Failed(f"{method} {path}: {status}")

    def timed(path: str) -> float:
        return _seconds(lambda: ask("GET", path)) * 1000

    rows = []
    for what, words in (("the same", ()), ("one of them changed", ("pause", "resume"))):
        pairs = []
        for number in range(4 if quick else 20):
            if words:
                ask("POST", f"/api/tasks/t1/{words[number % 2]}")
            pairs.append((timed("/api/tasks"), timed("/healthz")))
        ours, floor = (statistics.median(pair[one] for pair in pairs) for one in (0, 1))
        worst = max(pair[0] for pair in pairs)
        name = f"GET /api/tasks of {count:,}, {what}, p50"
        rows.append(_row(name, ours, floor, "{:.1f} ms", _LIST_BAR_MS, f"max {worst:.0f} ms"))
    return rows


def _reload(daemon: Daemon, client: Client, count: int, floor_s: float) -> list[Row]:
    """Measure a reload that changes every schedule, and a client that pauses a task meanwhile."""
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace(_tasks(count, shift=0), _tasks(count, shift=1)))
    taken: list[float] = []
    done = threading.Event()

    def others() -> None:
        other = daemon.client()

        def pause() -> None:
            other.send("POST", "/api/tasks/t0/pause")
            other.answer()

        while not done.is_set() or not taken:
            taken.append(_seconds(pause))
            time.sleep(0.01)
        other.close()

    thread = threading.Thread(target=others)
    thread.start()
    start_s = time.monotonic()
    report = client.post("/api/daemon/reload")
    took_s = time.monotonic() - start_s
    done.set()
    thread.join()
    if len(report["changed"]) != count:
        raise Failed(f"the reload changed {len(report['changed'])} of {count}")
    worst = quantile(taken, 1.0) * 1000
    return [
        _row(f"reload of {count:,} tasks, all schedules changed", took_s, floor_s, "{:.2f} s", None),
        Row("a command meanwhile, worst", f"{worst:.0f} ms", "", "", "", None, f"{len(taken)} commands"),
    ]
