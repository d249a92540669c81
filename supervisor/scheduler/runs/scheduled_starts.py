"""Starts tasks at their scheduled instants.

Every instant is accounted for exactly once. One transaction stores the run, or the record of a missed instant, together
with the new ``last_instant`` of the task. The search for the next instant begins after ``last_instant``, so neither a
restart nor a clock that steps back runs an instant twice. :mod:`supervisor.schedule.catchup` decides about instants
that pass while the daemon is down, the host sleeps or the clock jumps.

While the database cannot be written, no run could start, so schedules are deferred. Afterwards, the instants that have
passed are handled as after any other gap. They are not queued, so a long outage takes no memory.

All instants are nominal. A task with ``jitter`` starts later by its own fixed part of the jitter.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

from store.errors import Conflict
from store.runs.ids import new_ulid
from store.tasks import update_task
from supervisor.config.model import Task
from supervisor.schedule.catchup import due_instants
from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import same_instants
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, Unit

_STEP_BACK_MS = 24 * 3600 * 1000
"""If ``last_instant`` is further ahead than this, the clock was wrong when it was stored.

The schedule then starts again from now: waiting for the clock to catch up would silence it for too long.
"""

_SILENT_MS = 600_000
"""Shorter delays of a task by a clock that was set back are not reported."""


class ScheduledRuns(Protocol):
    """Creates the runs of schedules."""

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create the first attempt of a run."""

    def record_refused(self, run: LiveRun, reason: str, change: Change, *, missed_count: int | None = None) -> None:
        """Store a run that never starts."""


class ScheduledStarts:
    """Fires the schedules of all tasks."""

    def __init__(self, core: Core, runs: ScheduledRuns) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._runs = runs
        self._deferred: set[Unit] = set()
        """Units that became due while the database could not be written."""

    def start(self, units: Iterable[Unit]) -> None:
        """Start the schedules of `units`; ``last_instant`` comes from the store (None for a new task)."""
        with self._committer.changing() as together:
            for unit in units:
                self._start(unit, together)

    def _start(self, unit: Unit, together: Change) -> None:
        """Start one schedule as part of the change `together`.

        If an instant is due, its runs get a change of their own: a conflict must not undo other schedules.
        """
        task = unit.task
        if task is None or unit.schedule.empty:
            return
        now_ms = together.now_ms
        # An interval does not follow the clock: a last instant in the future means that the clock was set back.
        ahead_ms = _STEP_BACK_MS if unit.schedule.follows_clock else 0
        if unit.last_instant is None or unit.last_instant > now_ms + ahead_ms:
            unit.last_instant = now_ms
        if unit.schedule_is_new:
            unit.last_instant = max(unit.last_instant, now_ms)
        unit.schedule_is_new = False
        if unit.newest_success is not None and unit.newest_success > unit.last_instant:
            unit.newest_success = None  # by a clock that was ahead; it would supersede all retries until then
        if unit.paused:
            self.pause(unit, together)
            return
        if task.at_ms is None:
            coming = unit.schedule.occurrences(unit.last_instant)
            first = next(coming, None)
            if first is None or first.at > now_ms - unit.schedule.offset_ms:
                self._arm(unit, together, coming=chain([] if first is None else [first], coming))
                return
        change = self._accounting(unit)
        self._account_for_the_past(unit, task, change)
        self._account(unit, task, change)
        self._committer.commit(change)

    def clock_stepped(self, units: Iterable[Unit], by_ms: int) -> None:
        """Follow a step of the wall clock; intervals of ``every`` continue as if it had not been set."""
        for unit in units:
            if not unit.schedule.follows_clock and unit.last_instant is not None:
                unit.last_instant += by_ms
        self.start(units)

    def waiting_for_clock(self, units: Iterable[Unit]) -> list[tuple[str, int]]:
        """Return the tasks that a clock set back delays, each with its next start (ms since the epoch), soonest first.

        Delays of a few minutes, and tasks without a next instant, are omitted.
        """
        now_ms = self._loop.now_ms()
        waiting = []
        for unit in units:
            last = unit.last_instant or 0
            if unit.task is None or unit.paused or unit.schedule.empty or last <= now_ms + _SILENT_MS:
                continue
            following = next((occurrence for occurrence in unit.schedule.occurrences(last) if occurrence.runs), None)
            if following is not None:
                waiting.append((unit.name, following.at + unit.schedule.offset_ms))
        return sorted(waiting, key=lambda entry: (entry[1], entry[0]))

    def pause(self, unit: Unit, change: Change) -> None:
        """Pause a schedule; instants that pass during the pause neither run nor count as missed."""
        self.end(unit)
        change.write(lambda db: update_task(db, unit.name, next_run_at=None))

    def resume(self, unit: Unit, change: Change) -> None:
        """Resume a paused schedule from now; an instant whose jitter has not yet passed still runs."""
        unit.last_instant = max(unit.last_instant or 0, change.now_ms - unit.schedule.offset_ms)
        if not unit.schedule.empty:
            self._arm(unit, change)

    def redefine(self, unit: Unit, task: Task, together: Change) -> None:
        """Apply a new definition as part of the change `together`, or of its own if an instant is due.

        A changed schedule counts from now: instants of the new schedule in the past are not caught up.
        """
        before, offset_ms = unit.task, unit.schedule.offset_ms
        if before is None or same_instants(before, task):
            unit.redefine(task)
            if unit.timer is not None and unit.schedule.offset_ms != offset_ms:
                change = self._accounting(unit)
                self._account(unit, task, change)
                self._committer.commit(change)
            return
        self.fire_due(unit)
        self.end(unit)
        unit.redefine(task)
        change = together if task.at_ms is None else self._accounting(unit)
        unit.last_instant = max(unit.last_instant or 0, change.now_ms)
        self._account_for_the_past(unit, task, change)
        if unit.paused or unit.schedule.empty:
            last = unit.last_instant
            change.write(lambda db: update_task(db, unit.name, last_instant=last, next_run_at=None))
        else:
            self._arm(unit, change)
        if change is not together:
            self._committer.commit(change)

    def fire_due(self, unit: Unit) -> None:
        """Fire a due instant at once, even if its jitter has not yet passed."""
        if unit.timer is not None or unit in self._deferred:
            first = next(unit.schedule.occurrences(unit.last_instant or 0), None)
            if first is not None and first.at <= self._loop.now_ms():
                self.end(unit)
                self._fire(unit, early_ms=unit.schedule.offset_ms)

    def go_on(self) -> None:
        """Fire the deferred units if the database can be written again."""
        if self._deferred and self._committer.storing:
            resting, self._deferred = self._deferred, set()
            for unit in resting:
                self._fire(unit)

    def end(self, unit: Unit) -> None:
        """Stop the schedule of a unit."""
        self._deferred.discard(unit)
        if unit.timer is not None:
            unit.timer.cancel()
            unit.timer = None

    def _arm(self, unit: Unit, change: Change, *, coming: Iterator[Occurrence] | None = None) -> None:
        """Set the timer for the next instant: the first of `coming`, if given.

        The timer also expires at instants that a clock change skips, because they are recorded. ``next_run_at`` is the
        next instant that runs.
        """
        self.end(unit)
        schedule, last = unit.schedule, unit.last_instant or 0
        if coming is None:
            coming = schedule.occurrences(last)
        following = next(coming, None)
        starts_at = None
        if following is not None:
            running = following if following.runs else next((instant for instant in coming if instant.runs), None)
            starts_at = None if running is None else running.at + schedule.offset_ms
            unit.timer = self._loop.at(following.at + schedule.offset_ms, lambda: self._fire(unit))
        change.write(lambda db: update_task(db, unit.name, last_instant=last, next_run_at=starts_at))

    def _accounting(self, unit: Unit) -> Change:
        """Return a change that creates runs for instants.

        A conflict means that an instant already has a run. The stored ``last_instant`` was too old, for example because
        it came from a backup. Repeating the change would conflict again, so only the timer is set.

        An interval conflicts after the clock was set back by a multiple of it. It continues a millisecond later, as
        otherwise all its instants would conflict until the clock has caught up.
        """
        before = unit.last_instant

        def on_conflict(_error: BaseException) -> None:
            if not unit.schedule.follows_clock and before is not None:
                unit.last_instant = before + 1
            with self._committer.changing() as retry:
                self._arm(unit, retry)

        return self._committer.change(on_conflict, given_up_on=Conflict)

    def _fire(self, unit: Unit, early_ms: int = 0) -> None:
        unit.timer = None
        task = unit.task
        if self._daemon.ending or unit.paused or task is None:
            return
        if not self._committer.storing:
            self._deferred.add(unit)
            return
        change = self._accounting(unit)
        self._account(unit, task, change, early_ms)
        self._committer.commit(change)

    def _account(self, unit: Unit, task: Task, change: Change, early_ms: int = 0) -> None:
        """Account for all due instants, and set the timer for the next one."""
        schedule, last = unit.schedule, unit.last_instant or 0
        now_ms = change.now_ms - schedule.offset_ms + early_ms
        coming = schedule.occurrences(last)
        first = next(coming, None)
        if first is None or first.at > now_ms:
            self._arm(unit, change, coming=chain([] if first is None else [first], coming))
            return
        due = due_instants(schedule, last, now_ms, catch_up=task.catch_up, window_ms=task.catch_up_window_ms)
        if due is not None:
            unit.last_instant = due.newest
            for at in due.skipped:
                self._record(unit, task, change, at, "dst_skipped")
            if due.missed:
                self._record(unit, task, change, due.missed_at, "missed", due.missed)
            coalesce = task.coalesce and len(due.runs) == 1  # catch_up asked for all of several
            for at in due.runs:
                request = RunRequest(trigger="cron", scheduled_at=at, coalesce=coalesce)
                self._runs.create_task_run(unit, task, change, request)
        self._arm(unit, change)

    def _account_for_the_past(self, unit: Unit, task: Task, change: Change) -> None:
        """Record ``at`` as missed if it passed before the daemon first saw the task."""
        if task.at_ms is None or task.at_ms == unit.known_at_ms:
            return
        unit.known_at_ms = task.at_ms
        if task.at_ms <= change.now_ms:
            unit.last_instant = max(unit.last_instant or 0, change.now_ms)
            self._record(unit, task, change, task.at_ms, "missed", 1)

    def _record(
        self, unit: Unit, task: Task, change: Change, at: int | None, reason: str, count: int | None = None
    ) -> None:
        run = LiveRun(unit, task, new_ulid(change.now_ms), trigger="cron", created_at=change.now_ms, scheduled_at=at)
        self._runs.record_refused(run, reason, change, missed_count=count)
