"""The order in which services start and stop. Pure."""

import itertools
from collections.abc import Iterable, Mapping

from supervisor.scheduler.runs.live_units import Unit

_Place = tuple[int, int]
"""Priority, and length of the longest chain of dependencies."""


def start_order(units: Iterable[Unit]) -> list[Unit]:
    """Return tasks first, then services by priority, lowest first; ties keep the order of the configuration.

    A dependency starts before its dependents, whatever its priority.
    """
    known = list(units)
    places = _places({unit.name: unit for unit in known if unit.service is not None})
    return sorted(known, key=lambda unit: (unit.service is not None, places.get(unit.name, (0, 0))))


def stop_levels(units: Iterable[Unit]) -> list[list[Unit]]:
    """Return groups of services that stop together, in reverse start order; each waits for the previous group."""
    services = {unit.name: unit for unit in units if unit.service is not None}
    places = _places(services)
    ordered = start_order(services.values())
    levels = [list(level) for _, level in itertools.groupby(ordered, key=lambda unit: places[unit.name])]
    return [level[::-1] for level in levels[::-1]]


def _places(services: Mapping[str, Unit]) -> dict[str, _Place]:
    """Return the place of each service, which is less than that of its dependents. There are no cycles."""
    below = {
        name: [one.name for one in unit.service.depends_on if one.name in services]
        for name, unit in services.items()
        if unit.service is not None
    }
    ordered: list[str] = []  # dependencies first
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
                waiting += [(one, False) for one in below[name]]
    priorities = {name: unit.service.priority for name, unit in services.items() if unit.service is not None}
    for name in reversed(ordered):
        for one in below[name]:
            priorities[one] = min(priorities[one], priorities[name])
    depths: dict[str, int] = {}
    for name in ordered:
        depths[name] = max((depths[one] + 1 for one in below[name]), default=0)
    return {name: (priorities[name], depths[name]) for name in services}
