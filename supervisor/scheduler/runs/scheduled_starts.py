"""Starts tasks at their scheduled instants.

Every instant is accounted for exactly once. One transaction stores the run, or the record of a missed instant, together
with the new ``last_instant`` of the task. The search for the next instant begins after ``last_instant``, so neither a
restart nor a clock that steps back runs an instant twice. :mod:`supervisor.schedule.catchup` decides about instants
that pass while the daemon is down, the host sleeps or the clock jumps.

While the database cannot be written, no run could start, so schedules are deferred. Afterwards, the instants that have
passed are handled as after any other gap. They are not queued, so a long outage takes no memory.

All instants are nominal. A task with ``jitter`` starts later by its own fixed part of the jitter; after a gap, it
counts from the end of the gap. An instant is postponed only once, so that repeated gaps cannot silence a task.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

from msgspec.structs import replace

from store.errors import Conflict
from store.runs.ids import new_ulid
from store.tasks import update_task
from supervisor.config.model import Task
from supervisor.schedule.catchup import ON_TIME_MS, ClosedDay, due_instants
from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import Schedule, same_instants
from supervisor.schedule.windows import Windows
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.live_units import Due, LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.refused_runs import RefusedRuns
from supervisor.scheduler.runs.run_parameters import complete_values

_STEP_BACK_MS = 24 * 3600 * 1000
"""If ``last_instant`` is further ahead than this, the clock was wrong when it was stored.

The schedule then starts again from now: waiting for the clock to catch up would silence it for too long.
"""

_PAUSED = "paused: the schedule was paused at the time of the run"
_RECORD_EACH_MS = 60_000
"""Least time between records of instants on a closed day, which can be many."""
EARLY_MS = 10_000
"""How long before a scheduled time a job elsewhere may report: its clock is not exactly ours."""
_SILENT_MS = 600_000
"""Shorter delays of a task by a clock that was set back are not reported."""


class ScheduledRuns(Protocol):
    """Creates the runs of schedules."""

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create the first attempt of a run."""

    def pause_changed(self, unit: Unit) -> None:
        """Hold the runs inside flows of a task that was paused, or let them go on after its pause."""

    @property
    def refused(self) -> RefusedRuns:
        """The records of runs that never start."""


class InstantListener:
    """Follows the instants that run; the default methods do nothing."""

    def instants_due(self, unit: Unit, instants: Iterable[int], change: Change) -> None:
        """Note instants whose runs were just created, or that are recorded as missed; oldest first."""

    def pause_ended(self, unit: Unit, until: int) -> None:
        """Note that the pause of a schedule ended at `until` (ms since the epoch), perhaps while nothing ran."""


class ScheduledStarts:
    """Fires the schedules of all tasks."""

    def __init__(
        self, core: Core, runs: ScheduledRuns, windows: Windows | None = None, listener: InstantListener | None = None
    ) -> None:
        self._windows = windows or Windows()
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._log = core.log
        self._runs = runs
        self._listener = listener or InstantListener()
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
        self._await_end_of_pause(unit)
        task = unit.task
        former, unit.former_schedule = unit.former_schedule, None
        unit.schedule.windows = self._windows.of(unit.name)
        if former is not None:
            former.windows = unit.schedule.windows
        if task is None or unit.schedule.empty:
            return
        now_ms = together.now_ms
        # An interval does not follow the clock: a last instant in the future means that the clock was set back.
        ahead_ms = _STEP_BACK_MS if unit.schedule.follows_clock else 0
        if unit.last_instant is None or unit.last_instant > now_ms + ahead_ms:
            unit.last_instant = now_ms
        if unit.newest_success is not None and unit.newest_success > unit.last_instant:
            unit.newest_success = None  # by a clock that was ahead; it would supersede all retries until then
        if self._is_paused(unit) and task.at_ms is None:
            self.pause(unit, together)
            return
        if task.at_ms is None and former is None:
            coming = unit.schedule.occurrences(unit.last_instant)
            first = next(coming, None)
            if first is None or first.at > now_ms - unit.schedule.offset_ms:
                self._arm(unit, together, coming=chain([] if first is None else [first], coming))
                return
        change = self._accounting(unit)
        if former is not None:
            self._account_for_former_schedule(unit, task, change, former)
        if former is not None or not self._postponed(unit, change):
            self._account_for_the_past(unit, task, change)
            self._account(unit, task, change)
        self._committer.commit(change)

    def _postponed(self, unit: Unit, change: Change) -> bool:
        """Return whether late instants wait for their jitter, so that a gap does not start all tasks at once.

        Instants are postponed once. Their start is stored, so a killed scheduler does not postpone them again.
        """
        offset_ms, now_ms, last = unit.schedule.offset_ms, change.now_ms, unit.last_instant or 0
        if not offset_ms:
            return False
        first = next(unit.schedule.running(last), None)
        if first is None or first.at + offset_ms > now_ms:
            return False
        latest = now_ms + offset_ms
        starts_at = unit.starts_at or 0
        if starts_at <= first.at + offset_ms < now_ms - ON_TIME_MS:
            starts_at = latest
        if starts_at <= now_ms:
            return False
        self.end(unit)
        unit.starts_at = at_ms = min(starts_at, latest)  # a clock that was set back must not prolong the wait
        unit.timer = self._loop.at(at_ms, self._fire, unit)
        change.write(update_task, unit.name, last_instant=last, next_run_at=at_ms)
        return True

    def _account_for_former_schedule(self, unit: Unit, task: Task, change: Change, former: Schedule) -> None:
        """Let a schedule that changed while no scheduler ran count from now, and its former schedule until now."""
        last = unit.last_instant or 0
        if not self._is_paused(unit):
            self._account_for_due(unit, task, change, former, change.now_ms)
        unit.last_instant = max(unit.last_instant or 0, change.now_ms)
        self._record_moved(unit, task, former, change)
        if task.at_ms is None and (past := due_instants(unit.schedule, last, change.now_ms, catch_up=0, window_ms=0)):
            self._log.info(
                f"{unit.name}: the schedule changed while the daemon was not running; its earlier times are not caught"
                f" up (the last one: {unit.schedule.local(past.newest)})"
            )

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
            if unit.task is None or self._is_paused(unit) or unit.schedule.empty or last <= now_ms + _SILENT_MS:
                continue
            following = next(unit.schedule.running(last), None)
            if following is not None:
                waiting.append((unit.name, following.at + unit.schedule.offset_ms))
        return sorted(waiting, key=lambda entry: (entry[1], entry[0]))

    def pause(self, unit: Unit, change: Change) -> None:
        """Pause a schedule; instants that pass during the pause neither run nor count as missed.

        The time of ``at``, which does not come again, is recorded as skipped.
        """
        self._runs.pause_changed(unit)
        self._await_end_of_pause(unit)
        if unit.task is not None and unit.task.at_ms is not None:
            self._arm(unit, change)
            return
        if unit.task is not None and unit.timer is not None:  # late instants may still wait for their jitter
            accounting = self._accounting(unit)
            self._account(unit, unit.task, accounting)
            self._committer.commit(accounting)
        self.end(unit)
        change.write(update_task, unit.name, next_run_at=None)

    def resume(self, unit: Unit, change: Change) -> None:
        """Resume a paused schedule from now; an instant whose jitter has not yet passed still runs."""
        self._runs.pause_changed(unit)
        self._await_end_of_pause(unit)
        unit.last_instant = max(unit.last_instant or 0, change.now_ms - unit.schedule.offset_ms)
        if not unit.schedule.empty and not self._is_paused(unit):
            self._arm(unit, change)

    def _is_paused(self, unit: Unit) -> bool:
        return unit.paused or self._daemon.paused

    def _await_end_of_pause(self, unit: Unit) -> None:
        if unit.pause_timer is not None:
            unit.pause_timer.cancel()
            unit.pause_timer = None
        if unit.paused and unit.withheld is not None and unit.withheld.until is not None:
            unit.pause_timer = self._loop.at(unit.withheld.until, self._pause_is_over, unit)

    def _pause_is_over(self, unit: Unit) -> None:
        if unit.configured and not self._daemon.ending and self.lift_pause(unit):
            self.start([unit])

    def lift_pause(self, unit: Unit) -> bool:
        """End the pause of a task if it had an end that has passed; return whether it did.

        Its schedule counts from that end, so the usual rules apply to instants since then.
        """
        until = None if unit.withheld is None else unit.withheld.until
        if not unit.paused or until is None or until > self._loop.now_ms():
            return False
        self.end_pause(unit, until)
        unit.paused, unit.withheld = False, None
        self._runs.pause_changed(unit)
        with self._committer.changing() as change:
            change.write(update_task, unit.name, paused=False, withheld=None)
        return True

    def end_pause(self, unit: Unit, until: int) -> None:
        """Account for the instants of a paused schedule up to `until` (ms since the epoch)."""
        self._listener.pause_ended(unit, until)
        task, until = unit.task, until - unit.schedule.offset_ms
        if task is None or unit.last_instant is None or unit.last_instant >= until:
            return
        change = self._accounting(unit)
        if task.at_ms is not None:
            self._account_for_due(unit, task, change, unit.schedule, until)
        unit.last_instant = last = max(unit.last_instant, until)
        change.write(update_task, unit.name, last_instant=last)
        self._committer.commit(change)

    def redefine(self, unit: Unit, task: Task, together: Change) -> None:
        """Apply a new definition as part of the change `together`, or of its own if an instant is due.

        A changed schedule counts from now: instants of the new schedule in the past are not caught up.
        """
        before, offset_ms = unit.task, unit.schedule.offset_ms
        if before is None or same_instants(before, task):
            self._define(unit, task)
            if unit.timer is not None and unit.schedule.offset_ms != offset_ms:
                change = self._accounting(unit)
                self._account(unit, task, change)
                self._committer.commit(change)
            return
        self.fire_due(unit)
        self.end(unit)
        former = unit.schedule
        self._define(unit, task)
        accounting = self._accounting(unit)
        self._record_moved(unit, task, former, accounting)
        self._committer.commit(accounting)
        change = together if task.at_ms is None else self._accounting(unit)
        unit.last_instant = max(unit.last_instant or 0, change.now_ms)
        self._account_for_the_past(unit, task, change)
        if (self._is_paused(unit) and task.at_ms is None) or unit.schedule.empty:
            last = unit.last_instant
            change.write(update_task, unit.name, last_instant=last, next_run_at=None)
        else:
            self._arm(unit, change)
        if change is not together:
            self._committer.commit(change)

    def _define(self, unit: Unit, task: Task) -> None:
        unit.redefine(task)
        unit.schedule.windows = self._windows.of(unit.name)

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
            running = following if following.runs else next(schedule.running(last), None)
            starts_at = None if running is None or self._is_paused(unit) else running.at + schedule.offset_ms
            due_ms = following.at
            if following.closed is not None:
                due_ms = max(due_ms, last + _RECORD_EACH_MS)
                due_ms = due_ms if running is None else min(due_ms, running.at)
            unit.timer = self._loop.at(due_ms + schedule.offset_ms, self._fire, unit)
        unit.starts_at = starts_at
        change.write(update_task, unit.name, last_instant=last, next_run_at=starts_at)

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
        if self._daemon.ending or task is None or (self._is_paused(unit) and task.at_ms is None):
            return
        if not self._committer.storing:
            self._deferred.add(unit)
            return
        change = self._accounting(unit)
        if early_ms or not self._postponed(unit, change):
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
        self._account_for_due(unit, task, change, schedule, now_ms)
        self._arm(unit, change)

    def _account_for_due(self, unit: Unit, task: Task, change: Change, schedule: Schedule, now_ms: int) -> None:
        """Run or record the instants of a schedule of the unit up to `now_ms`."""
        last, window_ms = unit.last_instant or 0, task.catch_up_window_ms
        due = due_instants(schedule, last, now_ms, catch_up=task.catch_up, window_ms=window_ms)
        if due is not None:
            unit.last_instant = due.newest
            if self._is_paused(unit):
                times = due.missed + len(due.runs)
                self._record(unit, task, change, due.newest, "skipped", times if times > 1 else None)
                return
            for at in due.skipped:
                self._record(unit, task, change, at, "dst_skipped")
            if task.external:
                unreported = sum(at - EARLY_MS > (unit.reported_at or 0) for at in due.runs)
                due = replace(due, runs=(), missed=due.missed + unreported, missed_at=due.newest)
            for day in due.closed:
                self._record_closed(unit, task, change, schedule, day)
            if due.missed:
                self._record(unit, task, change, due.missed_at, "missed", due.missed)
            coalesce = task.coalesce and len(due.runs) == 1  # catch_up asked for all of several
            for at in due.runs:
                params = complete_values(task, schedule.params_at(at))
                due_to = Due("gate", change.now_ms + task.gate_wait_ms) if task.requires else None
                request = RunRequest(trigger="cron", scheduled_at=at, coalesce=coalesce, params=params, due=due_to)
                self._runs.create_task_run(unit, task, change, request)
            if task.finish_by is not None:
                missed = [] if due.missed_at is None else [due.missed_at]
                self._listener.instants_due(unit, [*missed, *due.runs], change)

    def _account_for_the_past(self, unit: Unit, task: Task, change: Change) -> None:
        """Record ``at`` as missed if it passed before the daemon first saw the task."""
        if task.at_ms is None or task.at_ms == unit.known_at_ms:
            return
        unit.known_at_ms = task.at_ms
        if task.at_ms <= change.now_ms:
            unit.last_instant = max(unit.last_instant or 0, change.now_ms)
            self._record(unit, task, change, task.at_ms, "missed", 1)

    def _record_moved(self, unit: Unit, task: Task, former: Schedule, change: Change) -> None:
        """Record as missed the times that changed calendars moved into the past."""
        moved = [] if self._is_paused(unit) else unit.schedule.moved_into_the_past(former, change.now_ms)
        if moved:
            self._record(unit, task, change, moved[-1], "missed", len(moved))

    def _record_closed(self, unit: Unit, task: Task, change: Change, schedule: Schedule, day: ClosedDay) -> None:
        """Record instants that a calendar or a window skips: one run for each cause and local day."""
        run = LiveRun(
            unit, task, new_ulid(change.now_ms), trigger="cron", created_at=change.now_ms, scheduled_at=day.newest
        )
        bounds, by = schedule.day_bounds(day.newest), f"{day.cause}: {day.reason}"
        self._runs.refused.record_with_others(run, day.cause, change, bounds, count=day.count, by=by)

    def _record(
        self, unit: Unit, task: Task, change: Change, at: int | None, reason: str, count: int | None = None
    ) -> None:
        run = LiveRun(unit, task, new_ulid(change.now_ms), trigger="cron", created_at=change.now_ms, scheduled_at=at)
        cause, by = ("paused", _PAUSED) if reason == "skipped" else (None, None)
        self._runs.refused.record(run, reason, change, missed_count=count, cause=cause, by=by)
