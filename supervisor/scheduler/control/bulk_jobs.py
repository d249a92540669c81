"""Changes of many rows: one job at a time, in slices between which the loop does its other work.

The rows of a job are found once, in the reading thread. Each slice is a change of its own. The next slice begins in a
later turn of the loop, so other changes wait for one slice at most.

Each slice stores the job's progress in its transaction, and the last one announces the whole job as one event. If the
scheduler dies, whole slices are done, and the next scheduler announces them. A worker that got no answer repeats its
command. The job then continues, and the answer has the total number of rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from store.daemon_values import get_meta, set_meta
from store.database import Database
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.procedures import Procedure, Refused, Turn, Wait

_PROGRESS = "bulk"
"""Name in the store of the last job's progress: {command, event, began, affected, told}.

`told` is the number of rows that events have announced.
"""

_PAUSE_MS = 50
"""Pause between slices of a job without an event, while SQLite's write-ahead log waits for a checkpoint.

Without pauses, the log would grow with the job. No client waits for a job without an event.
"""

Progress = dict[str, Any]


class ShuttingDown(Exception):
    """The daemon is shutting down."""


class Job(Struct, frozen=True, kw_only=True):
    """A change of many rows."""

    command: str
    """Id of the command, which a repetition of the command shares."""
    find: Callable[[Database], list[str]]
    """Return the ids of the rows, in slices; called in the reading thread."""
    work: Callable[[Database, str, int], int]
    """Change the rows of a slice and return their number; called in the store thread, with the time in ms."""
    event: str | None
    """Kind of the event that announces the job; None for no event."""
    record: Callable[[Change, Callable[[], int]], None] = lambda _change, _affected: None
    """Adds the job to the audit log in the change of each slice, with the number of rows up to there."""
    began_ms: int = 0
    """Time of the command's first request in ms since the epoch, for :meth:`BulkJobs.began_ms`; 0 if not needed."""


def last_job(db: Database) -> Progress | None:
    """Return the stored progress of the last job with an event; None if there was none."""
    progress: Progress | None = get_meta(db, _PROGRESS)
    return progress


class BulkJobs:
    """Carries out jobs one after the other."""

    def __init__(self, core: Core, reading: LongReads, last: Progress | None) -> None:
        """`last`: the progress of the last job that an earlier scheduler began."""
        self._loop = core.loop
        self._daemon = core.daemon
        self._committer = core.committer
        self._reading = reading
        self._last = last
        self._turn = Turn()

    def result_of(self, find: Callable[[Database], object]) -> Wait:
        """Return the wait for the result of ``find(db)`` in the reading thread."""
        return self._reading.result_of(find)

    def announce_unreported(self, change: Change) -> None:
        """Announce the slices that an earlier scheduler stored but did not announce."""
        if self._last is not None:
            self._announce(self._last, change)

    def began_ms(self, command: str) -> int | None:
        """Return when an earlier scheduler got `command` first, in ms; None if that was not its last command."""
        progress = self._last
        return progress.get("began") if progress is not None and progress["command"] == command else None

    def _done_before(self, command: str) -> int:
        """Return the number of rows that earlier schedulers changed for `command`."""
        progress = self._last
        return progress["affected"] if progress is not None and progress["command"] == command else 0

    def carry_out(self, job: Job) -> Procedure[int]:
        """Carry out a job after the jobs before it; return the number of changed rows.

        If it is refused, the slices that are stored remain, and are announced.
        """
        yield self._turn.take
        others, affected = self._done_before(job.command), 0
        try:
            slices = yield self._reading.result_of(job.find)
            for number, rows in enumerate(slices, 1):
                self._refuse_at_end()
                last = number == len(slices)
                change = self._committer.change()
                work = partial(
                    self._work, job=job, rows=rows, now_ms=change.now_ms, affected=others + affected, last=last
                )
                worked, total = change.read(work), others + affected
                job.record(change, lambda: total + worked.result[0])  # noqa: B023 - called before the next slice
                if last and job.event is not None:
                    event, before = job.event, affected
                    change.announce_result(lambda _db: [(event, {"affected": before + worked.result[0]})])  # noqa: B023 - called before the next slice
                yield self._committer.stored_or_refused(change)
                changed, pause_ms = worked.result
                affected += changed
                yield self._loop.pause(pause_ms)  # even a pause of 0 lets other changes go first
        except Refused:
            if job.event is not None and affected:
                with self._committer.changing() as change:
                    self._announce(_progress(job, others + affected, others), change)
            raise
        finally:
            self._turn.leave()
        return others + affected

    def _refuse_at_end(self) -> None:
        if self._daemon.ending:
            raise Refused(ShuttingDown("the daemon is shutting down"))

    def _work(self, db: Database, *, job: Job, rows: str, now_ms: int, affected: int, last: bool) -> tuple[int, int]:
        """Change the rows of a slice; return their number, and the pause before the next slice in ms."""
        changed = job.work(db, rows, now_ms)
        if job.event is None:
            return changed, _PAUSE_MS if db.has_backlog() else 0
        before = self._done_before(job.command)
        set_meta(db, _PROGRESS, _progress(job, affected + changed, affected + changed if last else before))
        return changed, 0

    @staticmethod
    def _announce(progress: Progress, change: Change) -> None:
        affected: int = progress["affected"]
        unannounced = affected - progress.get("told", 0)
        if unannounced:
            change.write(set_meta, _PROGRESS, {**progress, "told": affected})
            change.announce(progress["event"], {"affected": unannounced})


def _progress(job: Job, affected: int, announced: int) -> Progress:
    return {
        "command": job.command,
        "event": job.event,
        "began": job.began_ms,
        "affected": affected,
        "told": announced,
    }
