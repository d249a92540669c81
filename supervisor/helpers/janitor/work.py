"""The work of the janitor: what was purged, the budget, compression, one file at a time, and a copy of the database.

Whatever it is doing it can be killed: a log is there whole, as it was or as it shall be, or it is gone.
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
from logring.logfile.compress import SUFFIX, compress
from logring.logfile.opening import open_log_file
from logring.paths import frames_path, log_path, ring_path
from store.database import open_reader
from store.errors import Damaged, StoreError, Unusable
from store.recovery.copies import copied_at_ms, is_suspect, make_copy, suspect
from store.runs.bulk import purged_runs
from supervisor.ipc.counted import counted
from supervisor.ipc.janitor_job import Job, Report
from supervisor.ipc.log_line import Log

_LOG = ".log"
_FRAMES = frames_path(_LOG)
_LEFT = _LOG + SUFFIX
_SECTOR = 512
"""In which stat(2) counts what a file occupies."""


class LogFile(NamedTuple):
    """A log file and its sidecar."""

    folder: str
    name: str
    ended_ms: int
    """When it was written last: for a sealed one the end of its run. Since the epoch."""
    size: int
    """Of the log file alone, in bytes."""
    occupied: int
    """Bytes on the disk, of both."""
    done: bool
    """Whether it is compressed, or was found not to gain by that: it is read-only then."""

    @property
    def path(self) -> str:
        """Where it stands."""
        return f"{self.folder}/{self.name}"

    @property
    def task(self) -> str:
        """Name of the task or service."""
        return self.folder.split("/")[-2]


def find_logs(root: str) -> Iterator[LogFile]:
    """All log files below the folder `root`; half-made ones of a janitor that died are removed, and empty folders.

    Raises:
        OSError: a folder cannot be read.
    """
    for task in _folders(root):
        for period in _folders(task):
            yield from _logs_in(period)
            remove_if_empty(period)
        remove_if_empty(task)


def mark_done(path: str) -> None:
    """Remember, in the file's mode, that the log was dealt with: nobody will write it any more."""
    with suppress(FileNotFoundError):
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~stat.S_IWUSR)


def remove(path: str) -> None:
    """Remove a log and its sidecar, those that are there, and the folders that are empty then.

    Raises:
        OSError: it cannot be removed.
    """
    # In this order: a sidecar alone would never be found again.
    for part in (frames_path(path), path):
        with suppress(FileNotFoundError):
            os.unlink(part)
    folder = os.path.dirname(path)
    remove_if_empty(folder)
    remove_if_empty(os.path.dirname(folder))


def remove_if_empty(folder: str) -> None:
    """Remove a folder that is empty. Who needs it just now makes it again."""
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
"""So many bytes are copied in an hour at most, on average: a larger database is copied less often."""
_FREE = 3
"""There is to be so many times as much free as the copy takes."""


def copy_database(database: str, log: Log) -> int | None:
    """Copy it if that is due; returns when it is due next, ms since the epoch."""
    try:
        size = os.path.getsize(database)
        room = os.statvfs(os.path.dirname(database))
    except OSError as err:
        log.error(f"the database is not copied: {err}")
        return None
    each_ms = _HOUR_MS * max(1, -(-size // _EACH_HOUR))
    now_ms = time.time_ns() // 1_000_000
    made_ms = copied_at_ms(database)
    if made_ms is not None and 0 <= now_ms - made_ms < each_ms:
        return made_ms + each_ms
    free = room.f_bavail * room.f_frsize
    if free < _FREE * size:
        log.warning(f"the database is not copied: it has {size >> 20} MiB, and only {free >> 20} MiB are free")
        return now_ms + each_ms
    try:
        make_copy(database)
    except Unusable as err:
        log.error(f"the database is not copied, and the copy of before is kept: {err}")
        suspect(database)
    except (StoreError, OSError) as err:
        log.warning(f"the database is not copied: {err}")
    return now_ms + each_ms


_SHARE = 5
"""Without a budget the logs may have one part in five of the file system."""
_LEAST_REST_MS = 60_000
_PURGED = 1000
_REST_FACTOR = 50
"""Looking takes 2 % of a core at most."""


def work(job: Job, log: Log) -> Report:
    """Do what is due now.

    Raises:
        OSError: the folders of the logs cannot be read.
    """
    removed, kept = _remove_purged(job, log)
    if not job.look:
        return Report(next_ms=None, rest_ms=0, removed=removed, kept=kept, damaged=_is_damaged(job))
    begin_s = time.process_time()
    logs = list(find_logs(f"{job.data_dir}/logs"))
    looking_ms = (time.process_time() - begin_s) * 1000
    times = (
        _compress_old(_keep_within(logs, _budget(job), log), job.compress_after_ms, log),
        copy_database(job.database, log) if job.copy else None,
    )
    next_ms = min((at for at in times if at is not None), default=None)
    rest_ms = max(_LEAST_REST_MS, int(looking_ms * _REST_FACTOR))
    return Report(next_ms=next_ms, rest_ms=rest_ms, removed=removed, kept=kept, damaged=_is_damaged(job))


def _is_damaged(job: Job) -> bool:
    return job.copy and is_suspect(job.database)


def _remove_purged(job: Job, log: Log) -> tuple[int, list[int]]:
    """Remove the files of purged runs; returns the number up to which that was done, and those that resist.

    While there is a ring its log may be written yet, though the run has ended: a disk was full, or hung.
    """
    last = 0
    kept: list[int] = []
    try:
        db = open_reader(job.database)
        try:
            while (found := purged_runs(db, last, _PURGED)) and len(kept) < _PURGED:
                for last, task, run_id in found:
                    written = os.path.exists(ring_path(job.runtime_dir, run_id))
                    if written or not _remove(log_path(job.data_dir, task, run_id), log):
                        kept.append(last)
        finally:
            db.close()
    except StoreError as err:
        if job.copy and isinstance(err, Damaged):
            suspect(job.database)
        log.warning(f"which runs were purged cannot be read: {err}")
    return last, kept


def _budget(job: Job) -> int:
    if job.max_log_bytes is not None:
        return job.max_log_bytes
    system = os.statvfs(job.data_dir)
    return system.f_blocks * system.f_frsize // _SHARE


def _keep_within(logs: list[LogFile], budget: int, log: Log) -> list[LogFile]:
    """Remove the logs that ended first until the others are within the budget; returns the others."""
    total = sum(one.occupied for one in logs)
    if total <= budget:
        return logs
    kept = []
    removed: defaultdict[str, list[int]] = defaultdict(list)
    for one in sorted(logs, key=lambda one: one.ended_ms):
        if total > budget and _is_sealed(one) and _remove(one.path, log):
            total -= one.occupied
            removed[one.task].append(one.occupied)
        else:
            kept.append(one)
    for task, sizes in removed.items():
        runs = counted(len(sizes), "run")
        log.info(f"{task}: removed the logs of {runs}, {sum(sizes)} bytes, to keep all within {budget}")
    if total > budget:
        log.warning(f"the logs occupy {total} bytes of {budget} allowed, and none is left whose run has ended")
    return kept


def _is_sealed(one: LogFile) -> bool:
    """Whether nothing will be added to a log; what cannot be read is not known to be so."""
    try:
        file = open_log_file(one.path)
        if file is None:
            return False
        try:
            return file.is_sealed()
        finally:
            file.close()
    except (LogError, OSError):
        return False


def _remove(path: str, log: Log) -> bool:
    try:
        remove(path)
    except OSError as err:
        log.warning(f"{path} cannot be removed: {err.strerror}")
        return False
    return True


def _compress_old(logs: list[LogFile], after_ms: int, log: Log) -> int | None:
    """Compress what is old enough; returns when the next one will be, ms since the epoch, or None."""
    now_ms = time.time_ns() // 1_000_000
    next_ms: int | None = None
    before = after = count = 0
    for one in logs:
        if one.done or one.size <= PAGE:
            continue
        due_ms = one.ended_ms + after_ms
        if due_ms > now_ms:
            next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
        elif _is_sealed(one):
            try:
                size = _compress(one, log)
            except OSError as err:
                log.warning(f"{one.path} is not compressed: {err.strerror}")
                if err.errno in (errno.ENOSPC, errno.EDQUOT):
                    break
                continue
            if size is not None:
                before, after, count = before + one.size, after + size, count + 1
    if count:
        log.debug(f"compressed {count} logs of {before} bytes to {after}")
    return next_ms


def _compress(one: LogFile, log: Log) -> int | None:
    """Compress a sealed log; returns its new size, or None when it stays as it is.

    Raises:
        OSError: it cannot be done now.
    """
    try:
        done = compress(one.path)
    except LogError as err:
        log.warning(f"{one.path} is not compressed: {err}")
        done = False
    mark_done(one.path)
    try:
        return os.stat(one.path).st_size if done else None
    except FileNotFoundError:
        return None
