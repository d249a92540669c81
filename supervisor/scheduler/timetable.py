"""Firing tasks at their instants.

An instant is accounted for exactly once: the run (or what stands for it) and the task's new ``last_instant`` are one
transaction, and the next instant is always sought after ``last_instant``, so neither a restart nor a clock that steps
back runs one twice. Instants that pass while the daemon is down, the host sleeps or the clock jumps are a gap: the
newest runs when it is at most a day old, the others become one ``missed`` run that says how many.
"""

from store.errors import Conflict
from store.ids import new_ulid
from store.tasks import update_task
from supervisor.config.model import Task
from supervisor.scheduler.catchup import gap
from supervisor.scheduler.commit import Change
from supervisor.scheduler.cron import next_instant
from supervisor.scheduler.engine import Engine
from supervisor.scheduler.loop import Loop
from supervisor.scheduler.units import LiveRun, Unit

_CATCH_UP_WINDOW_MS = 24 * 3600 * 1000
_STEP_BACK_MS = 24 * 3600 * 1000
"""A clock that is further behind than this was wrong before: to wait for it would silence the schedule."""


class Timetable:
    """The schedules of all tasks."""

    def __init__(self, loop: Loop, engine: Engine) -> None:
        self._loop = loop
        self._engine = engine

    def begin(self, unit: Unit) -> None:
        """Start firing `unit`; its ``last_instant`` is what the store knows (None: never seen before)."""
        if not unit.crons:
            return
        now_ms = self._loop.now_ms()
        if unit.last_instant is None or unit.last_instant > now_ms + _STEP_BACK_MS:
            unit.last_instant = now_ms
        if (next_instant(unit.crons, unit.last_instant) or now_ms + 1) <= now_ms:
            self._fire(unit)
            return
        change = self._engine.change()
        self._arm(unit, change)
        self._engine.commit(change)

    def end(self, unit: Unit) -> None:
        """Fire no more."""
        if unit.timer is not None:
            unit.timer.cancel()
            unit.timer = None

    def _arm(self, unit: Unit, change: Change) -> None:
        self.end(unit)
        last = unit.last_instant
        following = next_instant(unit.crons, max(change.now_ms, last or 0))
        change.write(lambda db: update_task(db, unit.name, last_instant=last, next_run_at=following))
        if following is not None:
            unit.timer = self._loop.at(following, lambda: self._fire(unit))

    def _fire(self, unit: Unit) -> None:
        unit.timer = None
        if self._engine.ending or unit.task is None or unit.last_instant is None:
            return
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

        change = self._engine.change(on_failed)
        passed = gap(unit.crons, unit.last_instant, change.now_ms)
        if passed is not None:
            unit.last_instant = passed.newest
            stale = change.now_ms - passed.newest > _CATCH_UP_WINDOW_MS
            missed = passed.count if stale else passed.count - 1
            if missed:
                at = passed.newest if stale else passed.previous
                self._record_missed(unit, unit.task, change, at, missed)
            if not stale:
                run = self._engine.create_task_run(unit, unit.task, change, trigger="cron", scheduled_at=passed.newest)
                created.append(run)
        self._arm(unit, change)
        self._engine.commit(change)

    def _record_missed(self, unit: Unit, task: Task, change: Change, at: int | None, count: int) -> None:
        run = LiveRun(unit, task, new_ulid(change.now_ms), trigger="cron", created_at=change.now_ms, scheduled_at=at)
        self._engine.record_refused(run, "missed", change, missed_count=count)
