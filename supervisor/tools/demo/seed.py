"""Writes the history of the demo: rows in the database, log files and samples of the host's usage."""

import math
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from logring.layout import BLOCK_SIZE, RingShape
from logring.log_paths import frames_path, log_path
from logring.logfile.log_file import LogFileWriter
from logring.redraw.history_file import FramesWriter
from logring.ring.writer import RingWriter
from store.database import Database, open_writer
from store.metrics import COARSE_MS, FINE_MS, MetricSample, add
from store.notifications import Notification, mark, notify
from store.runs.definitions import put_definition
from store.runs.ids import new_ulid
from store.runs.writes import Run, insert_run
from store.service_uptime import add_time
from store.tasks import Promise, PromiseState, encode_promises, update_task, upsert_task
from supervisor.config.model import Config, Service, Task
from supervisor.config.public_definition import recorded_definition
from supervisor.config.value_types.durations import format_duration
from supervisor.ipc.plural import counted
from supervisor.tools.demo.history import OUTAGE_MS, DemoHistory, moment
from supervisor.tools.demo.sample_tasks import BACKUP, CRM, FINISH_BY_MS, INDEX

_HOUR_MS = 3_600_000
_HOURS = 24
_SEVERITIES = {"run.failed": "error", "run.timeout": "error", "service.recovered": "info", "task.late": "error"}


def samples(data_dir: str, now_ms: int) -> Iterator[MetricSample]:
    """Yield samples, oldest first: one per minute of the last day, and one every 5 s of the last hour."""
    rnd = random.Random(2417)  # noqa: S311 - nothing secret
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs(data_dir)
    disk_used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    busy = 0.0
    at = now_ms - _HOURS * _HOUR_MS
    while at < now_ms - FINE_MS:
        hours = (now_ms - at) / _HOUR_MS
        busy = max(0.0, busy * 0.9 + rnd.gauss(0, 0.04) + (0.5 if rnd.random() < 0.004 else 0))
        cpu = 9 + 5 * math.sin(hours / 4) + 60 * min(busy, 1.2) + rnd.uniform(0, 3)
        traffic = 90_000 * (1.6 + math.sin(hours / 4)) * rnd.uniform(0.6, 1.4)
        yield MetricSample(
            at,
            cpu=min(cpu, 97),
            load=cpu / 20,
            memory_used=int(memory * (0.38 + 0.03 * math.sin(hours / 3) + 0.05 * min(busy, 1))),
            swap_used=0,
            disk_used=disk_used,
            disk_read=busy * 4e6,
            disk_written=2e5 + busy * 9e6,
            received=traffic / 4,
            sent=traffic,
            cpu_pressure=min(busy * 6, 40),
            memory_pressure=0,
            io_pressure=min(busy * 9, 60),
            running=5 + (busy > 0.3),
            lag=rnd.uniform(0.1, 0.6),
        )
        at += COARSE_MS if hours > 1 else FINE_MS


STDOUT, STDERR = 0, 1
_AT_ONCE = 500
_TABLES = ("customers", "orders", "order_items", "products", "prices", "stock")
_GREEN, _RED, _YELLOW, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


class Part(NamedTuple):
    """Output that a run printed at the same time.

    Attributes:
        share: When it was printed, as a fraction of the run's duration.
    """

    share: float
    stream: int
    text: str


def printed(run: Run) -> Iterator[Part]:
    """Yield the output of a run, in order."""
    failed = run.end_reason != "succeeded"
    if run.task_name == BACKUP:
        yield from _backup(run, failed)
    elif run.task_name == "thumbnails":
        yield from _drawn(failed)
    elif run.task_name == INDEX:
        yield from _long(run, failed)
    else:
        yield from _plain(run, failed)


def _backup(run: Run, failed: bool) -> Iterator[Part]:
    started = run.started_at or run.created_at
    file = f"/var/backups/shop-{moment(started)[:10]}.sql.gz"
    yield Part(0, STDOUT, f"{moment(started)} dumping database shop to {file}\n")
    free = "1.9 GB" if failed else "212 GB"
    yield Part(0.01, STDOUT, f"free on /var/backups: {free}, the last dump took 38.4 GB\n")
    if failed:
        yield Part(0.012, STDOUT, f"{_YELLOW}warning: that may not be enough{_PLAIN}\n")
    for number, table in enumerate(_TABLES):
        share = 0.05 + number * 0.14
        yield Part(share, STDOUT, f"table {table}\n")
        for percent in range(25, 101, 25):
            if failed and number == 2 and percent > 50:
                yield Part(0.97, STDERR, f"gzip: {file}: No space left on device\n")
                yield Part(0.975, STDERR, "pg_dump: error: query failed: COPY order_items: broken pipe\n")
                text = "backup: /dev/sdb1 on /var/backups is full: 200 GB of 200 GB used\n"
                yield Part(0.98, STDERR, f"{_RED}{text[:-1]}{_PLAIN}\n")
                yield Part(0.99, STDOUT, f"removing the unfinished {file}\n")
                yield Part(1, STDOUT, f"{_RED}backup failed{_PLAIN}\n")
                return
            yield Part(share + percent / 1000, STDOUT, f"  {table:<12} {percent:>3} %\n")
    yield Part(0.97, STDOUT, f"{_GREEN}ok{_PLAIN}  the dump is complete and can be restored\n")


def _drawn(failed: bool) -> Iterator[Part]:
    """Yield a progress bar for each folder."""
    yield Part(0, STDOUT, "thumbnails of pictures since yesterday\n")
    folders = ("summer", "shoes", "kitchen", "garden")
    for number, folder in enumerate(folders):
        for step in range(41):
            share = (number + step / 41) / len(folders)
            bar = "#" * (step * 3 // 4)
            text = f"\r{folder:<8} [{bar:<30}] {step * 100 // 40:>3} %  {step * 31 + number * 17} pictures"
            yield Part(share, STDOUT, text + ("\n" if step == 40 else ""))
            if failed and number == 2 and step == 17:
                yield Part(share, STDOUT, "\n")
                yield Part(1, STDERR, f"{_RED}kitchen/IMG_2417.tif: not a picture{_PLAIN}\n")
                return
    yield Part(1, STDOUT, f"{_GREEN}done{_PLAIN}\n")


def _long(run: Run, failed: bool) -> Iterator[Part]:
    """Yield some hundred lines at a time, until the run has as many as it must have."""
    started, took = run.started_at or 0, (run.ended_at or 0) - (run.started_at or 0)
    lines = run.lines - 1
    for first in range(0, lines, _AT_ONCE):
        share = first / lines
        at = moment(started + int(took * share))
        text = "".join(
            f"{at} product {number:06d} indexed: {number * 7919 % 97 + 3} words, {number * 31 % 19 + 1} ms"
            + (f" {_YELLOW}no description{_PLAIN}\n" if number % 983 == 0 else "\n")
            for number in range(first, min(first + _AT_ONCE, lines))
        )
        yield Part(share, STDOUT, text)
    end = f"{_RED}the index is broken{_PLAIN}\n" if failed else f"{_GREEN}{lines} products{_PLAIN}\n"
    yield Part(1, STDERR if failed else STDOUT, end)


def _plain(run: Run, failed: bool) -> Iterator[Part]:
    name, lines = run.task_name, max(2, run.lines)
    yield Part(0, STDOUT, f"{moment(run.started_at or run.created_at)} {name}: started\n")
    for number in range(1, lines - 1):
        yield Part(number / lines, STDOUT, f"{name}: {number} of {lines - 2}, {number * 137 % 900 + 12} records\n")
    if run.end_reason == "timeout":
        return
    error = "401 Unauthorized: the token has expired" if name == "sync-crm" else "no answer within 30 s"
    end = f"{_RED}{name}: {error}{_PLAIN}\n" if failed else f"{_GREEN}{name}: done{_PLAIN}\n"
    yield Part(1, STDERR if failed else STDOUT, end)


LOGS = 250
"""The number of newest runs of tasks that have logs."""
_FILE_BLOCKS = 2000
_KEEP = 1000
_DATABASE = "ringward.db"
_SHARED = "/dev/shm"  # noqa: S108 - a directory of our own is made there


def seed(data_dir: str, config: Config, now_ms: int, zone: ZoneInfo) -> int:
    """Fill a data directory, before the first start of a daemon on it.

    Args:
        data_dir: An existing, empty directory.
        config: The configuration, under which all runs seem to have started.
        now_ms: The present time in ms since the epoch.
        zone: The time zone of the schedules.

    Returns:
        The number of runs.

    Raises:
        StoreError: the database cannot be written.
        OSError: a log cannot be written.
    """
    runs = _with_logs(data_dir, DemoHistory(now_ms, zone).runs())
    database = open_writer(os.path.join(data_dir, _DATABASE))
    try:
        with database.transaction():
            hashes = _define(database, config)
            for run in runs:
                insert_run(database, run._replace(definition_hash=hashes[run.task_name]))
            _record_uptime(database, runs)
            _notify(database, runs)
            _promise(database, config, runs)
            for sample in samples(data_dir, now_ms):
                add(database, sample)
    finally:
        database.close()
    return len(runs)


def _with_logs(data_dir: str, runs: Sequence[Run]) -> list[Run]:
    """Write the logs of the newest runs; return all runs with the actual number of lines."""
    lines: dict[str, int] = {}
    started = [run for run in runs if run.kind == "task" and run.started_at]
    with tempfile.TemporaryDirectory(dir=_SHARED if os.path.isdir(_SHARED) else None) as rings:
        for run in started[-LOGS:]:
            lines[run.id] = _write(data_dir, rings, run)
    return [run._replace(lines=lines.get(run.id, run.lines)) for run in runs]


def _write(data_dir: str, rings: str, run: Run) -> int:
    """Write the log of a run in the same way as the daemon; return the number of lines."""
    started, ended = run.started_at or run.created_at, run.ended_at or run.created_at
    path = log_path(data_dir, run.task_name, run.id)
    ring = RingWriter.new(os.path.join(rings, f"{run.id}.ring"), run.id, RingShape(_FILE_BLOCKS))
    for stream in (STDOUT, STDERR):
        ring.redraw(stream, full=False)
    file = LogFileWriter(path, ring, _FILE_BLOCKS)
    frames = FramesWriter(frames_path(path), run.id, ring.blocks.frames, _FILE_BLOCKS * BLOCK_SIZE)
    try:
        for part in printed(run):
            ring.append(part.stream, part.text.encode(), started + int((ended - started) * part.share))
            file.write_closed()
            frames.write()
        if run.end_reason == "timeout":
            ring.system_line(f"timed out after {ended - started} ms: stopping", ended)
        ring.seal(ended)
        frames.write()
        file.finish()
        return ring.blocks.lines
    finally:
        frames.close()
        file.close()
        ring.close()


def _define(database: Database, config: Config) -> dict[str, str]:
    """Store the definitions; return their hashes by the names of tasks and services."""
    hashes = {}
    units: list[Task | Service] = [*config.tasks.values(), *config.services.values()]
    for unit in units:
        recorded = recorded_definition(unit)
        put_definition(database, unit.name, recorded, None)
        hashes[unit.name] = recorded.hash
    return hashes


def _record_uptime(database: Database, runs: Sequence[Run]) -> None:
    """Store how long instances were up, and how long they were down after failures."""
    for run in runs:
        if run.kind == "service" and run.started_at and run.ended_at:
            add_time(database, run.task_name, run.instance_index, "running", run.started_at, run.ended_at)
            if run.end_reason == "failed":
                end = run.ended_at + OUTAGE_MS
                add_time(database, run.task_name, run.instance_index, "backoff", run.ended_at, end)


def _notify(database: Database, runs: Sequence[Run]) -> None:
    """Store notifications about the last month's failures that no retry repaired, and two others."""
    since = runs[-1].created_at - 30 * 86_400_000
    repeated = {run.retry_of_run_id for run in runs}
    failed = [
        run
        for run in runs
        if run.created_at > since
        and run.kind == "task"
        and run.end_reason in ("failed", "timeout")
        and run.id not in repeated
    ]
    for run in failed:
        at = run.ended_at or run.created_at
        attempts = f" (after {counted(run.retry_attempt, 'failed attempt')})" if run.retry_attempt else ""
        ended = "timed out (SIGTERM)" if run.end_reason == "timeout" else f"failed with exit code {run.exit_code}"
        body = f"Run {run.id}: {ended}{attempts}."
        kind, word = ("run.timeout", "timed out") if run.end_reason == "timeout" else ("run.failed", "failed")
        notification = _add_notification(database, kind, f"{run.task_name} {word}", body, at, run)
        if at < runs[-1].created_at - 6 * 86_400_000:
            mark(database, notification.id, at + 3_600_000)
    _add_notification(
        database,
        "service.recovered",
        "worker is back",
        f"It was down for {format_duration(OUTAGE_MS)}.",
        runs[-1].created_at,
    )


def _promise(database: Database, config: Config, runs: Sequence[Run]) -> None:
    """Store that the last transfers to the CRM failed, and that one of them was not done by its deadline."""
    task = config.tasks[CRM]
    transfers = [run for run in runs if run.task_name == CRM and run.started_at]
    missed = next(run for run in reversed(transfers) if (run.scheduled_at or 0) + FINISH_BY_MS < runs[-1].created_at)
    instant = missed.scheduled_at or 0
    deadline = instant + FINISH_BY_MS
    outcomes = "".join("s" if run.end_reason == "succeeded" else "f" for run in transfers[-10:])
    state = PromiseState(
        late=Promise(deadline, instant, instant), outcomes=outcomes, failing_since=transfers[-1].ended_at
    )
    upsert_task(database, CRM, "task", recorded_definition(task).text)
    update_task(database, name=CRM, promises=encode_promises(state))
    _add_notification(database, "task.late", f"{CRM} is late", f"It was to be done by {moment(deadline)}.", deadline)


def _add_notification(
    database: Database, kind: str, title: str, body: str, at: int, run: Run | None = None
) -> Notification:
    draft = Notification(
        id=new_ulid(),
        kind=kind,
        severity=_SEVERITIES[kind],
        title=title,
        body=body,
        task_name=run.task_name if run else None,
        run_id=run.id if run else None,
        times=1,
        created_at=at,
        last_occurred_at=at,
    )
    return notify(database, draft, window_ms=3_600_000, keep=_KEEP)
