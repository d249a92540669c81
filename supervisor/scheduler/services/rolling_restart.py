"""Restarts that keep a service up: one instance at a time, and the next process before the present one stops.

Rolling restarts: one instance at a time, the next once the previous one is ready again.

Each step is stored, so a new scheduler continues the restart. An instance that does not become ready ends it. The
remaining instances keep their processes, because the new definition may be at fault.
"""

import json
from collections.abc import Callable
from typing import Protocol

from store.tasks import update_task
from supervisor.ipc.log_line import Log
from supervisor.ipc.plural import counted
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.live_units import LiveRun, NextRun, RollingRestart, ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.readiness import is_ready
from supervisor.scheduler.services.service_health import HealthMonitor, readiness

_UNDER_WAY = frozenset({State.STARTING, State.RUNNING, State.STOPPING, State.RESTARTING, State.FAILING, State.HELD})

Restart = Callable[[Unit, ServiceInstance, Change], None]


class RollingRestarts:
    """Carries out the rolling restarts of all services."""

    def __init__(self, notifications: Notifications, log: Log, restart: Restart) -> None:
        """`restart` restarts one instance."""
        self._notifications = notifications
        self._log = log
        self._restart = restart

    def start(self, unit: Unit, end: int, change: Change) -> None:
        """Restart the first `end` instances; a restart in progress starts over."""
        self._log.info(f"{unit.name}: rolling restart of {counted(end, 'instance')}")
        self._go(unit, RollingRestart(0, end), change)

    def advance(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        """Continue or end the restart after `instance` changed its state."""
        roll = unit.rolling
        if roll is None or roll.index != instance.index or instance.next is not None:
            return
        if is_ready(instance):
            self._go(unit, RollingRestart(roll.index + 1, roll.end), change)
        elif instance.state not in _UNDER_WAY:
            self._log.error(
                f"{unit.name}: the rolling restart ends at instance {roll.index}, which is not ready but"
                f" {instance.state.shown}{roll.rest()}"
            )
            self._notifications.rolling_failed(unit, instance, roll, change)
            self._set(unit, None, change)

    def clip(self, unit: Unit, count: int, change: Change) -> None:
        """Limit a restart in progress to the first `count` instances."""
        roll = unit.rolling
        if roll is not None and roll.index >= count:
            self._done(unit, change)
        elif roll is not None and roll.end > count:
            self._set(unit, RollingRestart(roll.index, count), change)

    def cancel(self, unit: Unit, reason: str, change: Change) -> None:
        """End a restart in progress, and log the reason; the remaining instances are not restarted."""
        if unit.rolling is not None:
            self._log.warning(f"{unit.name}: the rolling restart ends at instance {unit.rolling.index}: {reason}")
            self._set(unit, None, change)

    def _go(self, unit: Unit, roll: RollingRestart, change: Change) -> None:
        if roll.index >= min(roll.end, len(unit.instances)):
            self._done(unit, change)
        else:
            self._set(unit, roll, change)
            self._restart(unit, unit.instances[roll.index], change)

    def _done(self, unit: Unit, change: Change) -> None:
        self._log.info(f"{unit.name}: rolling restart done")
        self._set(unit, None, change)

    @staticmethod
    def _set(unit: Unit, roll: RollingRestart | None, change: Change) -> None:
        unit.rolling = roll
        text = stored_text(roll)
        change.write(update_task, unit.name, rolling=text)


class NextRuns(Protocol):
    """Creates and stops the runs that replace others."""

    def create_service_run(self, unit: Unit, index: int, trigger: str, change: Change) -> LiveRun:
        """Create another run of an instance."""

    def stop(self, run: LiveRun, change: Change, *, cause: str = "stop", by: str | None = None) -> None:
        """End a run."""


class Replacements:
    """Replaces the present runs of instances by their next ones (``restart_order = "new_first"``).

    The next run is stored with its instance before it starts, so a new scheduler goes on with both.

    Args:
        report: stores and announces the state of an instance.
        occupied: whether the present processes of a service must end before the next ones can start.
    """

    def __init__(
        self,
        runs: NextRuns,
        health: HealthMonitor,
        notifications: Notifications,
        log: Log,
        report: Restart,
        occupied: Callable[[Unit], bool],
    ) -> None:
        self._runs = runs
        self._health = health
        self._notifications = notifications
        self._log = log
        self._report = report
        self._occupied = occupied

    def start(self, unit: Unit, instance: ServiceInstance, change: Change) -> bool:
        """Start the next run beside the present one; return False if the present one must stop first."""
        service = unit.service
        if service is None or service.restart_order == "old_first" or instance.state is not State.RUNNING:
            return False
        if self._occupied(unit):
            return False
        self.cancel(instance, change)
        run = self._runs.create_service_run(unit, instance.index, "service", change)
        instance.next = NextRun(run.id, run)
        instance.line = "starts its next process"
        self._report(unit, instance, change)
        return True

    def cancel(self, instance: ServiceInstance, change: Change, by: str | None = None) -> None:
        """Stop the next run, because the instance stops, or gets another one."""
        run, instance.next = instance.next_run, None
        if run is not None:
            self._runs.stop(run, change, by=by)

    def started(self, following: NextRun, run: LiveRun, at: int, now_ms: int, *, retaken: bool = False) -> None:
        """Wait until the next run is ready; its process started at `at` (ms since the epoch)."""
        following.started_at = at
        probe = readiness(run)
        if probe is not None:
            self._health.await_ready(run, probe, now_ms - at, retaken=retaken)

    def unfit(self, following: NextRun, run: LiveRun, reason: str, change: Change) -> None:
        """Stop a next run that did not become ready in time."""
        following.reason = reason
        self._runs.stop(run, change, cause="unfit")

    def failed(self, unit: Unit, instance: ServiceInstance, run_id: str, outcome: str, change: Change) -> None:
        """Go on with the present run, because the next one has ended."""
        reason = (instance.next and instance.next.reason) or outcome
        instance.next, instance.line = None, f"was not restarted: {reason}"
        self._log.error(f"{unit.name}[{instance.index}] {run_id} did not replace the present run: {reason}")
        self._notifications.restart_failed(unit, instance, run_id, reason, change)
        self._report(unit, instance, change)


def stored_roll(text: str | None) -> RollingRestart | None:
    """Return a rolling restart from its stored form; None if none is in progress."""
    return None if text is None else RollingRestart(*json.loads(text))


def stored_text(roll: RollingRestart | None) -> str | None:
    """Return a rolling restart in the form that :func:`stored_roll` reads."""
    return None if roll is None else json.dumps([roll.index, roll.end])
