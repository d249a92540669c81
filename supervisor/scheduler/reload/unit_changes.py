"""Adds, redefines and removes tasks and services during a reload."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from store.tasks import update_task
from supervisor.config.diff import UnitChange
from supervisor.config.keys import Effect
from supervisor.config.model import Service, Task
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.service_controller import NOT_CONFIGURED, ServiceController

_SLICE = 200
"""Number of tasks to redefine in one turn of the loop."""


class RedefinedRuns(Protocol):
    """Applies changes of the configuration to runs."""

    def redefined(self, unit: Unit, change: Change) -> None:
        """Apply a unit's new definition to its queued runs."""

    def stop(self, run: LiveRun, change: Change, *, by: str | None = None) -> None:
        """End a run."""


class UnitChanges:
    """Applies new definitions to tasks and services.

    Args:
        units: all configured units; shared, not copied.
        leaving: removed tasks that still have active runs, by name.
    """

    def __init__(
        self,
        core: Core,
        runs: RedefinedRuns,
        controller: ServiceController,
        scheduled_starts: ScheduledStarts,
        units: dict[str, Unit],
        leaving: Mapping[str, Unit],
    ) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._runs = runs
        self._controller = controller
        self._scheduled_starts = scheduled_starts
        self.units = units
        self._leaving = dict(leaving)

    def store_mark(self, changed: UnitChange, change: Change) -> None:
        """Store the present as the last instant of a changed schedule.

        A scheduler that restarts before the task is redefined would otherwise catch up instants of the new schedule.
        """
        if not changed.has(Effect.SCHEDULE):
            return
        unit = self.units[changed.new.name]
        self._scheduled_starts.fire_due(unit)
        mark = max(unit.last_instant or 0, change.now_ms)
        change.write(update_task, unit.name, last_instant=mark)

    def redefine_tasks(self, changed: Sequence[UnitChange]) -> Procedure[Change | None]:
        """Redefine tasks in slices, because thousands at once would block the loop.

        Returns:
            The change of the last slice, which the caller must commit; None if a shutdown has begun.
        """
        change: Change | None = None
        for some in [changed[at : at + _SLICE] for at in range(0, len(changed), _SLICE)] or [[]]:
            if change is not None:
                self._committer.commit(change)
                yield self._loop.pause()
            if self._daemon.ending:
                return None
            change = self._committer.change()
            for change_of_unit in some:
                self.redefine(change_of_unit, change)
        return change

    def redefine(self, changed: UnitChange, change: Change) -> None:
        """Apply a new definition of the same kind to a unit."""
        unit, definition = self.units[changed.new.name], changed.new
        if isinstance(definition, Service):
            self._controller.replace(unit, definition, change)
        else:
            self._scheduled_starts.redefine(unit, definition, change)
        self._runs.redefined(unit, change)

    def remove(self, name: str, change: Change) -> None:
        """Remove a unit: stop a service; let active runs of a task finish, and stop its waiting ones."""
        unit = self.units.pop(name)
        unit.configured = False
        if unit.service is not None:
            self._controller.remove(unit, change)
            change.write(update_task, unit.name, rolling=None, fatal_since=None, flapping_since=None)
            return
        self._scheduled_starts.end(unit)
        waiting: list[LiveRun] = [*unit.queue, *unit.waiting.values()]
        for run in waiting:
            self._runs.stop(run, change, by=NOT_CONFIGURED)
        self._leaving = {name: removed for name, removed in self._leaving.items() if removed.active}
        if unit.active:
            self._leaving[unit.name] = unit

    def add(self, definition: Task | Service, change: Change) -> None:
        """Add a unit; it takes over active runs of a removed unit of that name.

        They count towards ``max_concurrent`` of a task.
        """
        unit = self.units[definition.name] = Unit(definition)
        if isinstance(definition, Service):
            self._controller.add(unit, change)
            return
        leaving = self._leaving.pop(unit.name, None)
        for run in [] if leaving is None else leaving.active.values():
            run.unit = unit
            unit.active[run.id] = run
        self._scheduled_starts.start([unit])

    def start_services(self, names: list[str], change: Change) -> None:
        """Release instances whose dependencies are now met, and start the dependencies of the named services.

        Call this after all other changes of the reload.
        """
        self._controller.dependency_gate.check_all(change)
        for unit in [unit for name in names if not (unit := self.units[name]).stopped]:
            self._controller.start_needed(unit, change)
