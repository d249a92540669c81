"""The work of the janitor: what was purged, the budget, compression, one file at a time, and a copy of the database.

Whatever it is doing it can be killed: a log is there whole, as it was or as it shall be, or it is gone.
"""

import errno
import os
import time
from collections import defaultdict

from logring.errors import LogError
from logring.layout import PAGE
from logring.logfile.compress import compress
from logring.logfile.opening import open_log_file
from logring.paths import log_path, ring_path
from store.database import open_reader
from store.errors import Damaged, StoreError
from store.recovery.copies import is_suspect, suspect
from store.runs.bulk import purged_runs
from supervisor.helpers.janitor.database_copy import copy_database
from supervisor.helpers.janitor.log_files import LogFile, find_logs, mark_done, remove
from supervisor.ipc.counted import counted
from supervisor.ipc.janitor_job import Job, Report
from supervisor.ipc.log_line import Log

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
