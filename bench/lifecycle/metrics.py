"""Cost of sampling the host, of keeping two weeks of samples, and of answering Prometheus."""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from itertools import count

from bench.client import Client, Failed
from bench.daemon import DISK, Daemon, title
from bench.lifecycle.lifetime import cpu_ns
from bench.measure import Row, in_turn, latency_rows, limit_row
from store.database import open_writer
from store.metrics import COARSE_MS, FINE_MS, MetricSample, add
from store.runs.ids import new_ulid
from store.runs.writes import Run, insert_run
from supervisor.host.host_usage import Host

_DAY_MS = 86_400_000
_MB = 1_000_000
_SIZE_BAR_MB = 64.0
_ANSWER_BAR_MS = 20.0
_SAMPLE_BAR_MS = 2.0
_SCRAPE_BAR_MS = 250.0
_FILES = ("stat", "loadavg", "meminfo", "net/dev", "diskstats", "pressure/cpu", "pressure/memory", "pressure/io")


def metrics(quick: bool) -> list[Row]:
    """Measure a daemon with many tasks that have run; the floor of answers is ``/healthz``."""
    tasks, days, rounds = (50, 2, 5) if quick else (1000, 14, 50)
    definitions = "".join(f"[tasks.t{number}]\nrun = 'true'\ncron = '0 0 1 1 *'\n" for number in range(tasks))
    with Daemon(definitions, start=False) as daemon:
        size_mb = _fill(daemon, tasks, days)
        daemon.launch()
        daemon.wait_ready()
        client = daemon.client()
        rows = [
            _sample(10 if quick else 200),
            _of_size(days, size_mb),
            *_answers(client, days, rounds),
            *_scrape(daemon, client, tasks, rounds),
        ]
        client.close()
    return rows


def _fill(daemon: Daemon, tasks: int, days: int) -> float:
    """Store one or two runs of each task, and samples; return the megabytes of the samples."""
    data = daemon.directory / "data"
    data.mkdir(mode=0o700)
    path = str(data / "ringward.db")
    now_ms = time.time_ns() // 1_000_000
    writer = open_writer(path)
    with writer.transaction():
        for number in range(tasks):
            for reason in ("succeeded", "failed"):
                run = Run(new_ulid(), f"t{number}", "task", "ended", reason, 0, 0, 0, None, "cron", now_ms)
                insert_run(writer, run._replace(started_at=now_ms, ended_at=now_ms + number, user_us=number))
    writer.close()
    before = os.path.getsize(path)
    writer = open_writer(path)
    first = (now_ms - days * _DAY_MS) // COARSE_MS * COARSE_MS
    with writer.transaction():
        for at in [*range(first, now_ms - _DAY_MS, COARSE_MS), *range(now_ms - _DAY_MS, now_ms, FINE_MS)]:
            value = at / 7 % 100
            add(writer, MetricSample(at, value, value, at, at, at, *([value] * 9)))
    writer.close()
    return (os.path.getsize(path) - before) / _MB


def _of_size(days: int, size_mb: float) -> Row:
    what = f"samples of {days} days: their size"
    return Row(what, f"{size_mb:.1f} MB", "", "", f"<= {_SIZE_BAR_MB:g} MB", size_mb <= _SIZE_BAR_MB)


def _answers(client: Client, days: int, rounds: int) -> list[Row]:
    now_s = time.time()
    rows = []
    for what, span_s in ((f"{days} days", days * 86_400), ("1 day", 86_400), ("1 hour", 3600)):
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s - span_s))
        ours, floor = _seconds(client, f"/api/system/metrics?from={since}", rounds)
        rows += latency_rows(f"samples of {what}: the answer", ours, floor, (_ANSWER_BAR_MS, None))
    return rows


def _scrape(daemon: Daemon, client: Client, tasks: int, rounds: int) -> list[Row]:
    (worker,) = [process for process in daemon.processes() if title(process).endswith("worker")]
    _timed(client, "/metrics")
    before = cpu_ns(worker)
    ours, floor = _seconds(client, "/metrics", rounds)
    used_ms = (cpu_ns(worker) - before) / 1e6 / rounds
    size_kb = len(_answer(client, "/metrics")) / 1000
    what = f"scrape of {tasks:,} tasks, {size_kb:,.0f} kB"
    taken = Row(f"{what}: processor of the worker", f"{used_ms:.1f} ms", "", "", "", None)
    return [*latency_rows(what, ours, floor, (_SCRAPE_BAR_MS, None)), taken]


def _seconds(client: Client, path: str, rounds: int) -> tuple[list[float], list[float]]:
    """Measure the time of answers, in turn with the floor."""
    pairs = in_turn(rounds, lambda: _timed(client, path), lambda: _timed(client, "/healthz"))
    return [ours for ours, _ in pairs], [floor for _, floor in pairs]


def _timed(client: Client, path: str) -> float:
    start_s = time.perf_counter()
    _answer(client, path)
    return time.perf_counter() - start_s


def _answer(client: Client, path: str) -> bytes:
    client.send("GET", path)
    status, body = client.answer()
    if status != 200:
        raise Failed(f"GET {path}: {status} {body.decode(errors='replace')}")
    return body


def _sample(rounds: int) -> Row:
    """Measure the processor time to read and store everything; the floor reads the files."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        writer = open_writer(os.path.join(folder, "ringward.db"))
        host = Host()
        now_ms = time.time_ns() // 1_000_000

        def sample() -> None:
            add(writer, MetricSample(now_ms + FINE_MS * next(numbers), **asdict(host.read())))

        numbers = count()
        pairs = in_turn(rounds, lambda: _processor_ms(sample), lambda: _processor_ms(_read_files))
        writer.close()
    return limit_row("a sample of the host, read and stored: processor", pairs, "{:.2f} ms", _SAMPLE_BAR_MS)


def _processor_ms(work: Callable[[], object]) -> float:
    start_s = time.thread_time()
    work()
    return (time.thread_time() - start_s) * 1000


def _read_files() -> None:
    for name in _FILES:
        with suppress(OSError), open(f"/proc/{name}", "rb", buffering=0) as file:
            file.read(65536)
