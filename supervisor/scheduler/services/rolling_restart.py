"""Rolling restarts: one instance at a time, the next once the previous one is ready again.

Each step is stored, so a new scheduler continues the restart. An instance that does not become ready ends it. The
remaining instances keep their processes, because the new definition may be at fault.
"""

import json
from collections.abc import Callable

from store.tasks import update_task
from supervisor.ipc.log_line import Log
from supervisor.ipc.plural import counted
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.live_units import RollingRestart, ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.readiness import is_ready

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
        if roll is None or roll.index != instance.index:
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
        change.write(lambda db: update_task(db, unit.name, rolling=text))


def stored_roll(text: str | None) -> RollingRestart | None:
    """Return a rolling restart from its stored form; None if none is in progress."""
    return None if text is None else RollingRestart(*json.loads(text))


def stored_text(roll: RollingRestart | None) -> str | None:
    """Return a rolling restart in the form that :func:`stored_roll` reads."""
    return None if roll is None else json.dumps([roll.index, roll.end])
