"""Firing tasks at their instants.

An instant is accounted for exactly once: the run (or what stands for it) and the task's new ``last_instant`` are one
transaction, and the next instant is always sought after ``last_instant``, so neither a restart nor a clock that steps
back runs one twice. What becomes of instants that pass while the daemon is down, the host sleeps or the clock jumps
says :mod:`supervisor.schedule.catchup`.

While nothing can be stored nothing could start either, so schedules rest; what passes meanwhile is dealt with
afterwards, as after any other gap. So an outage of the database, however long, takes no memory for them.

All instants are nominal. A task with ``jitter`` lives that much later: it comes to an instant when the clock shows the
instant and its share of the jitter.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from store.errors import Conflict
from store.runs.ids import new_ulid
from store.tasks import update_task
from supervisor.config.model import Task
from supervisor.schedule.catchup import due_instants
from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import same_instants
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.run_engine import RunEngine

_STEP_BACK_MS = 24 * 3600 * 1000
"""A clock that is further behind than this was wrong before: to wait for it would silence the schedule."""

_SILENT_MS = 600_000
"""A clock that is set back by less silences nobody for long."""


class ScheduledStarts:
    """The schedules of all tasks."""

    def __init__(self, loop: Loop, engine: RunEngine) -> None:
        self._loop = loop
        self._engine = engine
        self._deferred: set[Unit] = set()
        """Those of which something is due, and which could not be stored."""

    def begin(self, units: Iterable[Unit]) -> None:
        """Start firing `units`; their ``last_instant`` is what the store knows (None: never seen before)."""
        together = self._engine.change()
        for unit in units:
            self._begin(unit, together)
        self._engine.commit(together)

    def _begin(self, unit: Unit, together: Change) -> None:
        """Start firing a unit, as part of a change with others unless something is due."""
        task = unit.task
        if task is None or unit.schedule.empty:
            return
        now_ms = together.now_ms
        if unit.last_instant is None or unit.last_instant > now_ms + _STEP_BACK_MS:
            unit.last_instant = now_ms
        if unit.schedule_is_new:
            unit.last_instant = max(unit.last_instant, now_ms)
        unit.schedule_is_new = False
        if unit.paused:
            self.pause(unit, together)
            return
        if task.at_ms is None:
            coming = unit.schedule.occurrences(unit.last_instant)
            first = next(coming, None)
            if first is None or first.at > now_ms - unit.schedule.offset_ms:
                self._arm(unit, together, coming=chain([] if first is None else [first], coming))
                return
        change, created = self._accounting(unit)
        self._account_for_the_past(unit, task, change)
        self._account(unit, task, change, created)
        self._engine.commit(change)

    def clock_stepped(self, units: Iterable[Unit], by_ms: int) -> None:
        """The wall clock was set; what comes at intervals goes on as if nothing had been."""
        for unit in units:
            if not unit.schedule.follows_clock and unit.last_instant is not None:
                unit.last_instant += by_ms
        self.begin(units)

    def waiting_for_clock(self, units: Iterable[Unit]) -> list[tuple[str, int]]:
        """Names of tasks that wait for a clock that was set back to catch up, and when each runs again; that first.

        What waits for some minutes only, or has no time to come, is left out.
        """
        now_ms = self._loop.now_ms()
        found = []
        for unit in units:
            last = unit.last_instant or 0
            if unit.task is None or unit.paused or unit.schedule.empty or last <= now_ms + _SILENT_MS:
                continue
            following = next((one for one in unit.schedule.occurrences(last) if one.runs), None)
            if following is not None:
                found.append((unit.name, following.at + unit.schedule.offset_ms))
        return sorted(found, key=lambda one: (one[1], one[0]))

    def pause(self, unit: Unit, change: Change) -> None:
        """Let the schedule rest; instants that pass meanwhile are not due, and nothing stands for them later."""
        self.end(unit)
        change.write(lambda db: update_task(db, unit.name, next_run_at=None))

    def resume(self, unit: Unit, change: Change) -> None:
        """Let a schedule that rested go on from now; what waits for its share of the jitter is still to come."""
        unit.last_instant = max(unit.last_instant or 0, change.now_ms - unit.schedule.offset_ms)
        if not unit.schedule.empty:
            self._arm(unit, change)

    def redefine(self, unit: Unit, task: Task, together: Change) -> None:
        """Give a task another definition, as part of a change with others unless something is due.

        A schedule that changed holds from now on, and catches up with nothing.
        """
        before, offset_ms = unit.task, unit.schedule.offset_ms
        if before is None or same_instants(before, task):
            unit.redefine(task)
            if unit.timer is not None and unit.schedule.offset_ms != offset_ms:
                change, created = self._accounting(unit)
                self._account(unit, task, change, created)
                self._engine.commit(change)
            return
        self.fire_due(unit)
        self.end(unit)
        unit.redefine(task)
        change = together if task.at_ms is None else self._accounting(unit)[0]
        unit.last_instant = max(unit.last_instant or 0, change.now_ms)
        self._account_for_the_past(unit, task, change)
        if unit.paused or unit.schedule.empty:
            last = unit.last_instant
            change.write(lambda db: update_task(db, unit.name, last_instant=last, next_run_at=None))
        else:
            self._arm(unit, change)
        if change is not together:
            self._engine.commit(change)

    def fire_due(self, unit: Unit) -> None:
        """Fire what is due, and the loop has not come to; also what only waits for its share of the jitter."""
        if unit.timer is not None or unit in self._deferred:
            first = next(unit.schedule.occurrences(unit.last_instant or 0), None)
            if first is not None and first.at <= self._loop.now_ms():
                self.end(unit)
                self._fire(unit, early_ms=unit.schedule.offset_ms)

    def go_on(self) -> None:
        """Something was stored: fire those that rested."""
        if self._deferred and self._engine.storing:
            resting, self._deferred = self._deferred, set()
            for unit in resting:
                self._fire(unit)

    def end(self, unit: Unit) -> None:
        """Fire no more."""
        self._deferred.discard(unit)
        if unit.timer is not None:
            unit.timer.cancel()
            unit.timer = None

    def _arm(self, unit: Unit, change: Change, *, coming: Iterator[Occurrence] | None = None) -> None:
        """Wait for the next instant: the first of `coming`, where these are known."""
        self.end(unit)
        schedule, last = unit.schedule, unit.last_instant or 0
        if coming is None:
            coming = schedule.occurrences(last)
        following = next(coming, None)
        starts_at = None
        if following is not None:
            running = following if following.runs else next((one for one in coming if one.runs), None)
            starts_at = None if running is None else running.at + schedule.offset_ms
            unit.timer = self._loop.at(following.at + schedule.offset_ms, lambda: self._fire(unit))
        change.write(lambda db: update_task(db, unit.name, last_instant=last, next_run_at=starts_at))

    def _accounting(self, unit: Unit) -> tuple[Change, list[LiveRun]]:
        """A change that is to create runs for instants, and where to note these."""
        created: list[LiveRun] = []

        def on_failed(error: BaseException) -> bool:
            if not isinstance(error, Conflict):
                return False
            # The instant has its run already: somebody put an older last_instant into the database.
            for run in created:
                self._engine.forget(run)
            retry = self._engine.change()
            self._arm(unit, retry)
            self._engine.commit(retry)
            return True

        return self._engine.change(on_failed), created

    def _fire(self, unit: Unit, early_ms: int = 0) -> None:
        unit.timer = None
        task = unit.task
        if self._engine.ending or unit.paused or task is None:
            return
        if not self._engine.storing:
            self._deferred.add(unit)
            return
        change, created = self._accounting(unit)
        self._account(unit, task, change, created, early_ms)
        self._engine.commit(change)

    def _account(self, unit: Unit, task: Task, change: Change, created: list[LiveRun], early_ms: int = 0) -> None:
        """Account for all instants that have come, and wait for the next one."""
        schedule, last = unit.schedule, unit.last_instant or 0
        now_ms = change.now_ms - schedule.offset_ms + early_ms
        coming = schedule.occurrences(last)
        first = next(coming, None)
        if first is None or first.at > now_ms:
            self._arm(unit, change, coming=chain([] if first is None else [first], coming))
            return
        found = due_instants(schedule, last, now_ms, catch_up=task.catch_up, window_ms=task.catch_up_window_ms)
        if found is not None:
            unit.last_instant = found.newest
            for at in found.skipped:
                self._record(unit, task, change, at, "dst_skipped")
            if found.missed:
                self._record(unit, task, change, found.missed_at, "missed", found.missed)
            coalesce = task.coalesce and len(found.runs) == 1  # several are what catch_up asked for
            for at in found.runs:
                run = self._engine.create_task_run(
                    unit, task, change, trigger="cron", scheduled_at=at, coalesce=coalesce
                )
                created.append(run)
        self._arm(unit, change)

    def _account_for_the_past(self, unit: Unit, task: Task, change: Change) -> None:
        """Let nobody wait for a single time that had passed when it was first seen."""
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
        self._engine.record_refused(run, reason, change, missed_count=count)
