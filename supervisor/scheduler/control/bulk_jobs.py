"""Changes of many rows: one job at a time, in slices between which the loop does its other work.

The rows of a job are found once, in the reading thread. Each slice is a change of its own. The next slice begins in a
later turn of the loop, so other changes wait for one slice at most.

Each slice stores the job's progress in its transaction, and the last one announces the whole job as one event. If the
scheduler dies, whole slices are done, and the next scheduler announces them. A worker that got no answer repeats its
command. The job then continues, and the answer has the total number of rows.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from store.daemon_values import get_meta, set_meta
from store.database import Database
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.loop.daemon_state import DaemonState
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop

_PROGRESS = "bulk"
"""Name in the store of the last job's progress: {command, event, began, affected, told}.

`told` is the number of rows that events have announced.
"""

_PAUSE_MS = 50
"""Pause between slices of a job without an event, while SQLite's write-ahead log waits for a checkpoint.

Without pauses, the log would grow with the job. No client waits for a job without an event.
"""

Progress = dict[str, Any]
T = TypeVar("T")


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
    done: Callable[[int], None]
    """Called with the number of changed rows."""
    failed: Callable[[BaseException], None]
    """Called when the job fails; slices that are stored remain."""
    began_ms: int = 0
    """Time of the command's first request in ms since the epoch, for :meth:`BulkJobs.began_ms`; 0 if not needed."""


def last_job(db: Database) -> Progress | None:
    """Return the stored progress of the last job with an event; None if there was none."""
    progress: Progress | None = get_meta(db, _PROGRESS)
    return progress


class BulkJobs:
    """Carries out jobs one after the other."""

    def __init__(
        self, loop: Loop, daemon: DaemonState, committer: Committer, reading: LongReads, last: Progress | None
    ) -> None:
        """`last`: the progress of the last job that an earlier scheduler began."""
        self._loop = loop
        self._daemon = daemon
        self._committer = committer
        self._reading = reading
        self._last = last
        self._waiting: deque[Job] = deque()
        self._job: Job | None = None
        self._slices: deque[str] = deque()
        self._affected = 0

    @property
    def ending(self) -> bool:
        """Whether the daemon is shutting down, when jobs fail."""
        return self._daemon.ending

    def read(self, find: Callable[[Database], T], then: Callable[[T | BaseException], None]) -> None:
        """Call ``find(db)`` in the reading thread, then `then` in the loop with its result or exception."""
        self._reading.submit(find, then)

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

    def submit(self, job: Job) -> None:
        """Queue a job; it begins after the jobs before it."""
        self._waiting.append(job)
        if self._job is None:
            self._start_next()

    def _start_next(self) -> None:
        if self._waiting:
            self._job = job = self._waiting.popleft()
            self._affected = 0
            self._reading.submit(job.find, lambda slices: self._extend(job, slices))

    def _extend(self, job: Job, slices: list[str] | BaseException) -> None:
        if isinstance(slices, BaseException):
            self._give_up(job, slices)
            return
        self._slices.extend(slices)
        self._next(job)

    def _next(self, job: Job) -> None:
        if not self._slices:
            self._finish(job)
        elif self.ending:
            self._give_up(job, ShuttingDown("the daemon is shutting down"))
        else:
            self._commit_slice(job, self._slices.popleft())

    def _commit_slice(self, job: Job, rows: str) -> None:
        before, last, others = self._affected, not self._slices, self._done_before(job.command)

        def work(db: Database) -> tuple[int, int]:
            """Return the number of changed rows, and the pause before the next slice in ms."""
            changed = job.work(db, rows, change.now_ms)
            if job.event is None:
                return changed, _PAUSE_MS if db.has_backlog() else 0
            affected = others + before + changed
            set_meta(db, _PROGRESS, _progress(job, affected, affected if last else others))
            return changed, 0

        def stored(worked: tuple[int, int]) -> None:
            changed, pause_ms = worked
            self._affected = before + changed
            # Even a pause of 0 lets other changes go first.
            self._loop.after(pause_ms, lambda: self._next(job))

        with self._committer.changing(lambda error: self._give_up(job, error)) as change:
            worked = change.read(work)
            if last and job.event is not None:
                event = job.event
                change.announce_result(lambda _db: [(event, {"affected": before + worked.result[0]})])
            worked.then(stored)

    def _finish(self, job: Job) -> None:
        self._job = None
        job.done(self._done_before(job.command) + self._affected)
        self._start_next()

    def _give_up(self, job: Job, error: BaseException) -> None:
        self._slices.clear()
        if job.event is not None and self._affected:
            with self._committer.changing() as change:
                others = self._done_before(job.command)
                self._announce(_progress(job, others + self._affected, others), change)
        self._job = None
        job.failed(error)
        self._start_next()

    @staticmethod
    def _announce(progress: Progress, change: Change) -> None:
        affected: int = progress["affected"]
        unannounced = affected - progress.get("told", 0)
        if unannounced:
            change.write(lambda db: set_meta(db, _PROGRESS, {**progress, "told": affected}))
            change.announce(progress["event"], {"affected": unannounced})


def _progress(job: Job, affected: int, announced: int) -> Progress:
    return {
        "command": job.command,
        "event": job.event,
        "began": job.began_ms,
        "affected": affected,
        "told": announced,
    }
