"""Stops of several services in order: each stops after the services of the same request that depend on it have ended.

The wanted state of all of them is stored at once, so the next scheduler stops the services that still wait.
"""

from collections.abc import Callable, Iterable

from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.live_units import Unit

Stop = Callable[[Unit, Change, str | None], None]


class OrderedStop:
    """Services whose stop waits for the end of their dependents.

    Args:
        stop: stops the instances of a service.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._waiting: dict[Unit, tuple[list[Unit], str | None]] = {}
        """The dependents that each service waits for, and who asked for its stop."""

    def add(self, units: Iterable[Unit], change: Change, by: str | None) -> None:
        """Stop services, dependents first."""
        known = {unit.name: unit for unit in units}
        dependents: dict[Unit, list[Unit]] = {unit: [] for unit in known.values()}
        for unit in known.values():
            for one in () if unit.service is None else unit.service.depends_on:
                if one.name in known:
                    dependents[known[one.name]].append(unit)
        for unit, others in dependents.items():
            self._waiting[unit] = others, by
        self.look(change)

    def look(self, change: Change) -> None:
        """Stop the services whose dependents have ended."""
        while ready := [unit for unit in self._waiting if self._may_stop(unit)]:
            for unit in ready:
                _others, by = self._waiting.pop(unit)
                self._stop(unit, change, by)

    def cancel(self, unit: Unit) -> None:
        """Forget the stop of a service, which is to run again or is stopped by another request."""
        self._waiting.pop(unit, None)

    def _may_stop(self, unit: Unit) -> bool:
        others, _by = self._waiting[unit]
        return not unit.active or not any(other.active for other in others)
