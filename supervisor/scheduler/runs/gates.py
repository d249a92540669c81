"""Gates of tasks (``requires``): a scheduled run waits until other tasks have succeeded.

The run is stored when it begins to wait, with the end of its wait, so the next scheduler looks again.
"""

from collections.abc import Mapping
from functools import partial

from store.database import Database
from store.runs.writes import merge_refused, outcome_since
from supervisor.config.model import Task
from supervisor.schedule.required_instants import previous_instant, required_instant
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.conditions import ConditionalRuns
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.run_observer import RunObserver
from supervisor.scheduler.runs.run_rows import refused_row
from supervisor.scheduler.runs.scheduled_starts import EARLY_MS


class Gates(RunObserver):
    """Opens and closes the gates of runs."""

    def __init__(
        self, core: Core, runs: ConditionalRuns, units: Mapping[str, Unit], notifications: Notifications
    ) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._procedures = core.procedures
        self._daemon = core.daemon
        self._log = core.log
        self._runs = runs
        self._units = units
        self._notifications = notifications
        self._waiting: dict[str, LiveRun] = {}
        """The runs that wait at their gates, by id."""

    def run_waits(self, run: LiveRun) -> None:
        """Look at the gate of a run now and, for the last time, when its wait ends."""
        if _is_gated(run) and run.due is not None:
            self._waiting[run.id] = run
            run.timer = self._loop.after(
                max(0, run.due.at - self._loop.now_ms()), partial(self._look_at, run, last=True)
            )
            self._loop.after(0, self._look_at, run)

    def redefined(self, unit: Unit, change: Change) -> None:  # noqa: ARG002 - the signature of them all
        """Look again at the gates of a task that changed, and of those that require it."""
        for run in self._waiting.values():
            if unit is run.unit or unit.name in _required_by(run):
                self._loop.after(0, self._look_at, run)

    def run_ended(
        self,
        run: LiveRun,
        verdict: Verdict,
        change: Change,
        *,
        will_retry: bool,  # noqa: ARG002 - the signature of them all
        ran_ms: int | None,  # noqa: ARG002
    ) -> None:
        """Look again at the gates of the tasks that require a run that succeeded."""
        self._waiting.pop(run.id, None)
        for waiting in self._waiting.values() if verdict.succeeded else ():
            if run.unit.name in _required_by(waiting):
                self._procedures.start(self._look(waiting, after=change))

    def _look_at(self, run: LiveRun, *, last: bool = False) -> None:
        self._procedures.start(self._look(run, last=last))

    def _look(self, run: LiveRun, *, last: bool = False, after: Change | None = None) -> Procedure[None]:
        """Let a run go on if its gate is open; end it if this is the `last` look."""
        if after is not None:
            yield after.stored
        if not _is_gated(run):
            self._waiting.pop(run.id, None)
            return
        change = self._committer.change()
        pending = change.read(_unmet, self._required(run))
        yield self._committer.stored(change)
        unmet = pending.result or []
        if not _is_gated(run) or self._daemon.ending:
            return
        if unmet and last:
            self._close(run, ", ".join(unmet))
        elif not unmet:
            self._waiting.pop(run.id, None)
            self._log.info(f"{run.unit.name} {run.id}: what it requires has succeeded")
            self._runs.end_wait(run)

    def _required(self, run: LiveRun) -> list[tuple[str, int, int, bool]]:
        """Return the instants that must have succeeded: task, time, tolerance, and whether the task is paused."""
        task, at = run.unit.task, run.scheduled_at
        if task is None or at is None:
            return []
        required = []
        previous = previous_instant(run.unit.schedule, task.every_ms, at)
        for name in task.requires:
            unit = self._units.get(name)
            if unit is None or unit.task is None:
                continue
            needed = required_instant(unit.schedule, unit.task.every_ms, unit.last_instant or at, previous, at)
            if needed is not None:
                early_ms = EARLY_MS if unit.task.external else 0
                required.append((name, needed, early_ms, unit.paused or self._daemon.paused))
        return required

    def _close(self, run: LiveRun, reasons: str) -> None:
        """Skip a run; it becomes part of the record of its local day, if there is one."""
        by = f"requires: {reasons}"
        with self._committer.changing() as change:
            if run.scheduled_at is not None:
                row = refused_row(run, "skipped", cause="gate", stopped_by=by)
                change.write(merge_refused, row, *run.unit.schedule.day_bounds(run.scheduled_at))
            self._notifications.gate_closed(run, reasons, change)
            self._runs.stop(run, change, cause="gate", by=by)


def _is_gated(run: LiveRun) -> bool:
    return run.due is not None and run.due.kind == "gate"


def _required_by(run: LiveRun) -> tuple[str, ...]:
    return run.definition.requires if isinstance(run.definition, Task) else ()


def _unmet(db: Database, required: list[tuple[str, int, int, bool]]) -> list[str]:
    """Return the tasks that have not succeeded, each with the reason."""
    unmet = []
    for name, at, early_ms, paused in required:
        outcome = outcome_since(db, name, at, early_ms)
        if outcome != "succeeded":
            unmet.append(f"{name} ({outcome or ('paused' if paused else 'no run')})")
    return unmet
