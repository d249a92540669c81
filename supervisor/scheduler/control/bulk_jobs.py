"""Work on many rows: one job after the other, each in slices, with the ordinary work of the loop between them.

What a job is about is read once, in the reading thread. Then each slice is a change of its own, and the next one is not
begun before the loop has had a turn: so whatever came meanwhile is stored first, and waits for one slice at most.

How far a job has come stands in the store, in the transaction of each slice, until there is another job. The last one
announces the job as one event. When the scheduler dies in between, whole slices are done: the next scheduler announces
those, and the job goes on when somebody asks for the same again; the worker does when its command was not answered, and
gets the whole number, be there any slices left or not.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from store.database import Database
from store.meta import get_meta, set_meta
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.runs.run_engine import RunEngine

_PROGRESS = "bulk"
"""Name in the store of how far the last job has come: {command, event, began, affected, told}; `told`: how many of the
rows that are affected were announced."""

_PAUSE_MS = 50
"""So long a job that nobody hears of waits when the database has much to put into its place."""

Progress = dict[str, Any]


class Ending(Exception):
    """The daemon is being shut down."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work on many rows."""

    command: str
    """Id of what was asked; the same when it is asked again."""
    find: Callable[[Database], list[str]]
    """Read which rows, in slices."""
    work: Callable[[Database, str, int], int]
    """Change a slice at a time (ms since the epoch), in the store thread; returns how many rows were changed."""
    event: str | None
    """Kind of the event that tells of it; None: nobody is told."""
    done: Callable[[int], None]
    """Called with the number of rows changed."""
    failed: Callable[[BaseException], None]
    """Called when it was given up. Slices that were done stay done."""
    began_ms: int = 0
    """When it was first asked for, ms since the epoch: see :meth:`BulkJobs.began_ms`; 0: nobody will ask that."""


def last_job(db: Database) -> Progress | None:
    """How far the last job has come of which people are told; None: there was none yet."""
    found: Progress | None = get_meta(db, _PROGRESS)
    return found


class BulkJobs:
    """The jobs."""

    def __init__(self, loop: Loop, engine: RunEngine, reading: LongReads, last: Progress | None) -> None:
        """`last`: how far the last job of earlier schedulers had come."""
        self._loop = loop
        self._engine = engine
        self._reading = reading
        self._last = last
        self._waiting: deque[Job] = deque()
        self._job: Job | None = None
        self._slices: deque[str] = deque()
        self._affected = 0

    def announce_unreported(self, change: Change) -> None:
        """Announce what an earlier scheduler did and could not tell of."""
        if self._last is not None:
            self._announce(self._last, change)

    def began_ms(self, command: str) -> int | None:
        """When a command was first asked for that was the last of an earlier scheduler; None: it was not."""
        known = self._last
        return known.get("began") if known is not None and known["command"] == command else None

    def _done_before(self, command: str) -> int:
        """How many rows earlier schedulers changed for a command."""
        known = self._last
        return known["affected"] if known is not None and known["command"] == command else 0

    def submit(self, job: Job) -> None:
        """Do a job when those before it are done."""
        self._waiting.append(job)
        if self._job is None:
            self._begin()

    def _begin(self) -> None:
        if self._waiting:
            self._job = job = self._waiting.popleft()
            self._affected = 0
            self._reading.submit(job.find, lambda found: self._found(job, found))

    def _found(self, job: Job, found: list[str] | BaseException) -> None:
        if isinstance(found, BaseException):
            self._give_up(job, found)
            return
        self._slices.extend(found)
        self._next(job)

    def _next(self, job: Job) -> None:
        if not self._slices:
            self._finish(job)
        elif self._engine.ending:
            self._give_up(job, Ending("the daemon is shutting down"))
        else:
            self._commit_slice(job, self._slices.popleft())

    def _commit_slice(self, job: Job, rows: str) -> None:
        before, last, others = self._affected, not self._slices, self._done_before(job.command)
        changed, pause_ms = 0, 0

        def write(db: Database) -> None:
            nonlocal changed, pause_ms
            changed = job.work(db, rows, change.now_ms)
            pause_ms = _PAUSE_MS if job.event is None and db.has_backlog() else 0
            if job.event is not None:
                affected = others + before + changed
                set_meta(db, _PROGRESS, _progress(job, affected, affected if last else others))

        def stored() -> None:
            self._affected = before + changed
            # What else waits for the store goes first.
            self._loop.after(pause_ms, lambda: self._next(job))

        def on_failed(error: BaseException) -> bool:
            self._give_up(job, error)
            return True

        change = self._engine.change(on_failed)
        change.write(write)
        if last and job.event is not None:
            event = job.event
            change.tell(lambda _db: [(event, {"affected": before + changed})])
        change.then(stored)
        self._engine.commit(change)

    def _finish(self, job: Job) -> None:
        self._job = None
        job.done(self._done_before(job.command) + self._affected)
        self._begin()

    def _give_up(self, job: Job, error: BaseException) -> None:
        self._slices.clear()
        if job.event is not None and self._affected:
            change = self._engine.change()
            others = self._done_before(job.command)
            self._announce(_progress(job, others + self._affected, others), change)
            self._engine.commit(change)
        self._job = None
        job.failed(error)
        self._begin()

    @staticmethod
    def _announce(known: Progress, change: Change) -> None:
        affected: int = known["affected"]
        untold = affected - known.get("told", 0)
        if untold:
            change.write(lambda db: set_meta(db, _PROGRESS, {**known, "told": affected}))
            change.announce(known["event"], {"affected": untold})


def _progress(job: Job, affected: int, told: int) -> Progress:
    return {
        "command": job.command,
        "event": job.event,
        "began": job.began_ms,
        "affected": affected,
        "told": told,
    }
