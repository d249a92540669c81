"""Removes purged logs, enforces the budget, compresses old logs and copies the database.

The janitor can be killed at any moment: each log is complete, in its old or its new form, or gone. Log files are listed
without opening them.
"""

import errno
import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from logring.errors import LogError
from logring.layout import PAGE
from logring.log_paths import frames_path, log_path, ring_path
from logring.logfile.compress import SUFFIX, compress
from logring.logfile.open_log import open_log_file
from store.database import open_reader
from store.errors import DatabaseDamaged, DatabaseUnusable, StoreError
from store.recovery.copies import copied_at_ms, is_suspect, make_copy, suspect
from store.runs.bulk import purged_runs
from supervisor.ipc.log_jobs import JanitorJob, JanitorReport
from supervisor.ipc.log_line import Log
from supervisor.ipc.plural import counted

_LOG = ".log"
_FRAMES = frames_path(_LOG)
_LEFT = _LOG + SUFFIX
_SECTOR = 512
"""The unit of st_blocks in stat(2)."""


class LogFile(NamedTuple):
    """A log file with its sidecar."""

    folder: str
    name: str
    ended_ms: int
    """Time of the last write in ms since the epoch; for a sealed log, when its run ended."""
    size: int
    """Size of the log file without the sidecar, in bytes."""
    occupied: int
    """Disk usage of both files, in bytes."""
    done: bool
    """Whether the log is compressed or not worth compressing. It is read-only then."""

    @property
    def path(self) -> str:
        """The path of the log file."""
        return f"{self.folder}/{self.name}"

    @property
    def task(self) -> str:
        """The name of the task or service, from the path of the folder."""
        return self.folder.split("/")[-2]


def find_logs(root: str) -> Iterator[LogFile]:
    """Yield all log files below the folder `root`; remove incomplete files of a killed janitor and empty folders.

    Raises:
        OSError: a folder cannot be read.
    """
    for task in _folders(root):
        for period in _folders(task):
            yield from _logs_in(period)
            remove_if_empty(period)
        remove_if_empty(task)


def mark_done(path: str) -> None:
    """Make a log read-only, which marks it as done."""
    with suppress(FileNotFoundError):
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~stat.S_IWUSR)


def remove(path: str) -> None:
    """Remove a log, its sidecar and folders that become empty.

    Raises:
        OSError: a file cannot be removed.
    """
    # The sidecar first, because it is found only by its log.
    for part in (frames_path(path), path):
        with suppress(FileNotFoundError):
            os.unlink(part)
    folder = os.path.dirname(path)
    remove_if_empty(folder)
    remove_if_empty(os.path.dirname(folder))


def remove_if_empty(folder: str) -> None:
    """Remove a folder if it is empty. The next log creates it again."""
    with suppress(OSError):
        os.rmdir(folder)


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:  # removed meanwhile
        return []


def _logs_in(folder: str) -> list[LogFile]:
    logs: list[tuple[str, os.stat_result]] = []
    frames: dict[str, int] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                with suppress(FileNotFoundError):
                    if name.endswith(_LOG):
                        logs.append((name, entry.stat(follow_symlinks=False)))
                    elif name.endswith(_FRAMES):
                        info = entry.stat(follow_symlinks=False)
                        frames[name.removesuffix(_FRAMES) + _LOG] = info.st_blocks * _SECTOR
                    elif name.endswith(_LEFT):
                        os.unlink(entry.path)
    except FileNotFoundError:
        return []
    return [
        LogFile(
            folder=folder,
            name=name,
            ended_ms=info.st_mtime_ns // 1_000_000,
            size=info.st_size,
            occupied=info.st_blocks * _SECTOR + frames.get(name, 0),
            done=not info.st_mode & stat.S_IWUSR,
        )
        for name, info in logs
        if stat.S_ISREG(info.st_mode)
    ]


_HOUR_MS = 3_600_000
_EACH_HOUR = 64 << 20
"""Limit of bytes to copy per hour on average, so that a larger database is copied less often."""
_FREE = 3
"""Required free space as a multiple of the database's size."""


def copy_database(database: str, log: Log) -> int | None:
    """Copy the database if a copy is due.

    Returns:
        When the next copy is due, in ms since the epoch; None if the database cannot be examined.
    """
    try:
        size = os.path.getsize(database)
        room = os.statvfs(os.path.dirname(database))
    except OSError as err:
        log.error(f"cannot copy the database: {err}")
        return None
    each_ms = _HOUR_MS * max(1, -(-size // _EACH_HOUR))
    now_ms = time.time_ns() // 1_000_000
    made_ms = copied_at_ms(database)
    if made_ms is not None and 0 <= now_ms - made_ms < each_ms:
        return made_ms + each_ms
    free = room.f_bavail * room.f_frsize
    if free < _FREE * size:
        log.warning(f"cannot copy the database: it has {size >> 20} MiB, and only {free >> 20} MiB are free")
        return now_ms + each_ms
    try:
        make_copy(database)
    except DatabaseUnusable as err:
        log.error(f"cannot copy the database; the previous copy is kept: {err}")
        suspect(database)
    except (StoreError, OSError) as err:
        log.warning(f"cannot copy the database: {err}")
    return now_ms + each_ms


_SHARE = 5
"""Without a configured budget, the logs may use one fifth of the file system."""
_LEAST_REST_MS = 60_000
_PURGED = 1000
_UNFINISHED, _UNREADABLE, _UNDELETABLE = "unfinished log", "unreadable log", "undeletable log"
_REMEDIES = {
    _UNFINISHED: "limit the logs of active runs with log_max_size, or raise max_log_bytes",
    _UNREADABLE: "check the files and remove damaged ones by hand",
    _UNDELETABLE: "correct the cause that the warnings above name",
}
"""Remedies for logs that the janitor may not or cannot remove."""
_REST_FACTOR = 50
"""The pause after a scan as a multiple of its duration, so that scans use at most 2 % of a core."""


def maintain(job: JanitorJob, log: Log) -> JanitorReport:
    """Remove purged files and old logs, compress logs and copy the database, as far as the job asks.

    Raises:
        OSError: the folders with the logs cannot be read.
    """
    removed, kept_numbers = _remove_purged(job, log)
    if not job.look:
        return JanitorReport(next_ms=None, rest_ms=0, removed=removed, kept=kept_numbers, damaged=_is_damaged(job))
    start_s = time.process_time()
    logs = list(find_logs(f"{job.data_dir}/logs"))
    looking_ms = (time.process_time() - start_s) * 1000
    times = (
        _compress_old(_keep_within(logs, _budget(job), log), job.compress_after_ms, log),
        copy_database(job.database, log) if job.copy else None,
    )
    next_ms = min((at for at in times if at is not None), default=None)
    rest_ms = max(_LEAST_REST_MS, int(looking_ms * _REST_FACTOR))
    return JanitorReport(next_ms=next_ms, rest_ms=rest_ms, removed=removed, kept=kept_numbers, damaged=_is_damaged(job))


def _is_damaged(job: JanitorJob) -> bool:
    return job.copy and is_suspect(job.database)


def _remove_purged(job: JanitorJob, log: Log) -> tuple[int, list[int]]:
    """Remove the files of purged runs; return the last examined number and the numbers whose files were kept.

    While a run has a ring, its log may still be written, even after the run has ended, if the disk was full or hung.
    """
    last = 0
    kept_numbers: list[int] = []
    try:
        db = open_reader(job.database)
        try:
            while (rows := purged_runs(db, last, _PURGED)) and len(kept_numbers) < _PURGED:
                for last, task, run_id in rows:
                    written = os.path.exists(ring_path(job.runtime_dir, run_id))
                    if written or not _remove(log_path(job.data_dir, task, run_id), log):
                        kept_numbers.append(last)
        finally:
            db.close()
    except StoreError as err:
        if job.copy and isinstance(err, DatabaseDamaged):
            suspect(job.database)
        log.warning(f"cannot read the purged runs: {err}")
    return last, kept_numbers


def _budget(job: JanitorJob) -> int:
    if job.max_log_bytes is not None:
        return job.max_log_bytes
    system = os.statvfs(job.data_dir)
    return system.f_blocks * system.f_frsize // _SHARE


def _keep_within(logs: list[LogFile], budget: int, log: Log) -> list[LogFile]:
    """Remove the oldest logs until the rest is within the budget; return the rest."""
    total = sum(log.occupied for log in logs)
    if total <= budget:
        return logs
    kept_logs = []
    removed: defaultdict[str, list[int]] = defaultdict(list)
    remaining: defaultdict[str, list[LogFile]] = defaultdict(list)
    for log_file in sorted(logs, key=lambda log_file: log_file.ended_ms):
        if total > budget:
            obstacle = _unfinished_or_unreadable(log_file)
            if obstacle is None and _remove(log_file.path, log):
                total -= log_file.occupied
                removed[log_file.task].append(log_file.occupied)
                continue
            remaining[obstacle or _UNDELETABLE].append(log_file)
        kept_logs.append(log_file)
    for task, sizes in removed.items():
        runs = counted(len(sizes), "run")
        log.info(f"{task}: removed the logs of {runs} ({sum(sizes)} bytes) to stay within {budget} bytes")
    if total > budget:
        obstacles = "; ".join(_obstacle_text(obstacle, some) for obstacle, some in remaining.items())
        log.warning(f"the logs use {total} bytes, more than the limit of {budget} bytes; not removed: {obstacles}")
    return kept_logs


def _obstacle_text(obstacle: str, some: list[LogFile]) -> str:
    size = sum(file.occupied for file in some)
    return f"{counted(len(some), obstacle)} ({size} bytes, oldest: {some[0].path}): {_REMEDIES[obstacle]}"


def _unfinished_or_unreadable(log_file: LogFile) -> str | None:
    """Return why a log may not be removed or compressed; None if nothing more is written to it."""
    try:
        file = open_log_file(log_file.path)
        if file is None:
            return _UNFINISHED
        try:
            return None if file.is_sealed() else _UNFINISHED
        finally:
            file.close()
    except (LogError, OSError):
        return _UNREADABLE


def _remove(path: str, log: Log) -> bool:
    try:
        remove(path)
    except OSError as err:
        log.warning(f"cannot remove {path}: {err.strerror}")
        return False
    return True


def _compress_old(logs: list[LogFile], after_ms: int, log: Log) -> int | None:
    """Compress old logs; return when the next log becomes old enough, in ms since the epoch; None if there is none."""
    now_ms = time.time_ns() // 1_000_000
    next_ms: int | None = None
    before = after = count = 0
    for log_file in logs:
        if log_file.done or log_file.size <= PAGE:
            continue
        due_ms = log_file.ended_ms + after_ms
        if due_ms > now_ms:
            next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
        elif _unfinished_or_unreadable(log_file) is None:
            try:
                size = _compress(log_file, log)
            except OSError as err:
                log.warning(f"cannot compress {log_file.path}: {err.strerror}")
                if err.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):  # the next one would fail as well
                    break
                continue
            if size is not None:
                before, after, count = before + log_file.size, after + size, count + 1
    if count:
        log.debug(f"compressed {count} logs of {before} bytes to {after}")
    return next_ms


def _compress(log_file: LogFile, log: Log) -> int | None:
    """Compress a sealed log; return its new size, or None if it was not compressed.

    Raises:
        OSError: the log cannot be compressed now.
    """
    try:
        done = compress(log_file.path)
    except LogError as err:
        log.warning(f"cannot compress {log_file.path}: {err}")
        done = False
    mark_done(log_file.path)
    try:
        return os.stat(log_file.path).st_size if done else None
    except FileNotFoundError:
        return None
