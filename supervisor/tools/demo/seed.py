"""Stores the history of the demonstration: rows in the database, log files beside it."""

import os
import tempfile
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from logring.layout import BLOCK_SIZE
from logring.logfile.log_file import LogFileWriter
from logring.paths import frames_path, log_path
from logring.redraw.history_file import FramesWriter
from logring.ring.writer import RingWriter
from store.database import Database, open_writer
from store.metrics import add
from store.notifications import Notification, mark, notify
from store.runs.ids import new_ulid
from store.runs.writes import Run, insert_run
from supervisor.tools.demo.history import History
from supervisor.tools.demo.host import samples
from supervisor.tools.demo.output import STDERR, STDOUT, printed

LOGS = 250
"""Of so many runs of tasks, the newest, there are logs."""
_FILE_BLOCKS = 2000
_KEEP = 1000
_DATABASE = "ringward.db"
_SHARED = "/dev/shm"  # noqa: S108 - a directory of our own is made there


def seed(data_dir: str, now_ms: int, zone: ZoneInfo) -> int:
    """Fill a data directory, before the first start of a daemon on it.

    Args:
        data_dir: exists, and is empty.
        now_ms: the present, ms since the epoch.
        zone: of the schedules.

    Returns:
        How many runs there are.

    Raises:
        StoreError: the database cannot be written.
        OSError: a log cannot be written.
    """
    runs = _with_logs(data_dir, History(now_ms, zone).runs())
    database = open_writer(os.path.join(data_dir, _DATABASE))
    try:
        with database.transaction():
            for run in runs:
                insert_run(database, run)
            _notify(database, runs)
            for sample in samples(data_dir, now_ms):
                add(database, sample)
    finally:
        database.close()
    return len(runs)


def _with_logs(data_dir: str, runs: Sequence[Run]) -> list[Run]:
    """Write the logs of the newest; all runs, those with as many lines as they have."""
    lines: dict[str, int] = {}
    started = [run for run in runs if run.kind == "task" and run.started_at]
    with tempfile.TemporaryDirectory(dir=_SHARED if os.path.isdir(_SHARED) else None) as rings:
        for run in started[-LOGS:]:
            lines[run.id] = _write(data_dir, rings, run)
    return [run._replace(lines=lines.get(run.id, run.lines)) for run in runs]


def _write(data_dir: str, rings: str, run: Run) -> int:
    """Write a log as the daemon would have; returns its number of lines."""
    started, ended = run.started_at or run.created_at, run.ended_at or run.created_at
    path = log_path(data_dir, run.task_name, run.id)
    ring = RingWriter(os.path.join(rings, f"{run.id}.ring"), run.id, file_blocks=_FILE_BLOCKS)
    for stream in (STDOUT, STDERR):
        ring.redraw(stream, full=False)
    file = LogFileWriter(path, ring, _FILE_BLOCKS)
    frames = FramesWriter(frames_path(path), run.id, ring.frames, _FILE_BLOCKS * BLOCK_SIZE)
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
        return ring.lines
    finally:
        frames.close()
        file.close()
        ring.close()


def _notify(database: Database, runs: Sequence[Run]) -> None:
    """Of the failures of the last month that were not made up for, and two others."""
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
        how = f"with exit code {run.exit_code}" if run.end_reason == "failed" else "because it took too long"
        before = f", as did {run.retry_attempt} before it" if run.retry_attempt else ""
        told = _tell(
            database,
            "run.failed",
            "error",
            f"{run.task_name} failed",
            f"The run {run.id} ended: {how}{before}.",
            at,
            run,
        )
        if at < runs[-1].created_at - 6 * 86_400_000:
            mark(database, told.id, at + 3_600_000)
    _tell(database, "service.recovered", "info", "worker is back", "It was down for 5m12s.", runs[-1].created_at)


def _tell(
    database: Database, kind: str, severity: str, title: str, body: str, at: int, run: Run | None = None
) -> Notification:
    draft = Notification(
        id=new_ulid(),
        kind=kind,
        severity=severity,
        title=title,
        body=body,
        task_name=run.task_name if run else None,
        run_id=run.id if run else None,
        times=1,
        created_at=at,
        last_occurred_at=at,
    )
    return notify(database, draft, window_ms=3_600_000, keep=_KEEP)
