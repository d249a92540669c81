"""In which order services start, and in which they stop: pure."""

import itertools
from collections.abc import Iterable, Mapping

from supervisor.scheduler.runs.live_units import Unit

_Place = tuple[int, int]
"""Priority, and how many services one after the other have to be there before."""


def start_order(units: Iterable[Unit]) -> list[Unit]:
    """Tasks first, then services: lower priorities earlier, the same ones as they are configured.

    What others depend on starts before them, whatever its priority.
    """
    known = list(units)
    places = _places({unit.name: unit for unit in known if unit.service is not None})
    return sorted(known, key=lambda unit: (unit.service is not None, places.get(unit.name, (0, 0))))


def stop_levels(units: Iterable[Unit]) -> list[list[Unit]]:
    """Services that stop together, those first that started last; a level begins when the one before has ended."""
    services = {unit.name: unit for unit in units if unit.service is not None}
    places = _places(services)
    ordered = start_order(services.values())
    levels = [list(level) for _, level in itertools.groupby(ordered, key=lambda unit: places[unit.name])]
    return [level[::-1] for level in levels[::-1]]


def _places(services: Mapping[str, Unit]) -> dict[str, _Place]:
    """That of each service: less than those of all that depend on it. There are no cycles."""
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
