"""The order in which services start and stop.

When one request stops several services, each stops after the other services of the request that depend on it. The
wanted state of all of them is stored at once. A scheduler that is restarted meanwhile can therefore stop the rest.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping

from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.live_units import Unit

Stop = Callable[[Unit, Change, str | None], None]
_Position = tuple[int, int]
"""Priority, and length of the longest chain of dependencies."""


def start_order(units: Iterable[Unit]) -> list[Unit]:
    """Return tasks first, then services by ascending priority; equal ones stay in the order of the configuration.

    A dependency starts before its dependents, whatever its own priority.
    """
    listed = list(units)
    positions = _positions({unit.name: unit for unit in listed if unit.service is not None})
    return sorted(listed, key=lambda unit: (unit.service is not None, positions.get(unit.name, (0, 0))))


def stop_levels(units: Iterable[Unit]) -> list[list[Unit]]:
    """Return groups of services that stop together, in reverse start order; each group waits for the previous one."""
    services = {unit.name: unit for unit in units if unit.service is not None}
    positions = _positions(services)
    ordered = start_order(services.values())
    levels = [list(level) for _, level in itertools.groupby(ordered, key=lambda unit: positions[unit.name])]
    return [level[::-1] for level in levels[::-1]]


def _positions(services: Mapping[str, Unit]) -> dict[str, _Position]:
    """Return the place of each service; a dependency has a lower place than its dependents.

    The configuration check has already rejected cycles.
    """
    below = {
        name: [dependency.name for dependency in unit.service.depends_on if dependency.name in services]
        for name, unit in services.items()
        if unit.service is not None
    }
    ordered: list[str] = []  # dependencies first; without recursion, which long chains would exhaust
    seen: set[str] = set()
    for first in services:
        waiting = [(first, False)]
        while waiting:
            name, complete = waiting.pop()
            if complete:
                ordered.append(name)
            elif name not in seen:
                seen.add(name)
                waiting.append((name, True))
                waiting += [(dependency, False) for dependency in below[name]]
    priorities = {name: unit.service.priority for name, unit in services.items() if unit.service is not None}
    for name in reversed(ordered):
        for dependency in below[name]:
            priorities[dependency] = min(priorities[dependency], priorities[name])
    depths: dict[str, int] = {}
    for name in ordered:
        depths[name] = max((depths[dependency] + 1 for dependency in below[name]), default=0)
    return {name: (priorities[name], depths[name]) for name in services}


class OrderedStop:
    """Services that stop once their dependents have ended.

    Args:
        stop: stops all instances of a service.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._waiting: dict[Unit, tuple[list[Unit], str | None]] = {}
        """The dependents that each service waits for, and the user who asked for the stop."""

    def add(self, units: Iterable[Unit], change: Change, by: str | None) -> None:
        """Stop services, dependents first."""
        by_name = {unit.name: unit for unit in units}
        dependents: dict[Unit, list[Unit]] = {unit: [] for unit in by_name.values()}
        for unit in by_name.values():
            for dependency in () if unit.service is None else unit.service.depends_on:
                if dependency.name in by_name:
                    dependents[by_name[dependency.name]].append(unit)
        for unit, others in dependents.items():
            self._waiting[unit] = others, by
        self.stop_unneeded(change)

    def stop_unneeded(self, change: Change) -> None:
        """Stop the services whose dependents have ended."""
        while ready := [unit for unit in self._waiting if self._may_stop(unit)]:
            for unit in ready:
                _others, by = self._waiting.pop(unit)
                self._stop(unit, change, by)

    def cancel(self, unit: Unit) -> None:
        """Forget the pending stop of a service, because a newer request starts or stops it."""
        self._waiting.pop(unit, None)

    def _may_stop(self, unit: Unit) -> bool:
        others, _by = self._waiting[unit]
        return not unit.active or not any(other.active for other in others)
