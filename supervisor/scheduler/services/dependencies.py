"""What services wait for before they start."""

from collections.abc import Mapping

from supervisor.config.model import Dependency, Until
from supervisor.scheduler.runs.live_units import ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.readiness import is_ready

_SAID = {"started": "start", "ready": "be ready", "succeeded": "succeed"}


def until(one: Dependency, unit: Unit) -> Until:
    """Until when `unit` is waited for."""
    if unit.service is None:
        return "succeeded"
    return one.until or ("started" if unit.service.ready is None else "ready")


class Dependencies:
    """Whether they are met.

    Args:
        units: all that is configured; the same object for everybody.
        ended: whether the last run of a task that ended since the daemon's start succeeded, by its name.
    """

    def __init__(self, units: Mapping[str, Unit], ended: dict[str, bool]) -> None:
        self.units = units
        self.ended = ended
        self._dependents: dict[str, list[str]] | None = None
        """By name: made when it is needed, since every change of a state asks for it."""

    def redefined(self) -> None:
        """Other units are configured, or they depend on others."""
        self._dependents = None

    def missing(self, unit: Unit) -> str | None:
        """What the service waits for, in words for people; None: it may start."""
        for one in _named(unit):
            other = self.units.get(one.name)
            if other is None:
                return f"waits for {one.name}, which is not configured yet"
            wanted = until(one, other)
            if not self._met(other, wanted):
                return f"waits for {one.name} to {_SAID[wanted]}: {self._standing(other)}"
        return None

    def of(self, unit: Unit) -> list[Unit]:
        """What the service depends on itself."""
        return [self.units[one.name] for one in _named(unit) if one.name in self.units]

    def dependents(self, name: str) -> list[Unit]:
        """Services that wait for `name` themselves."""
        if self._dependents is None:
            self._dependents = {}
            for unit in self.units.values():
                for one in _named(unit):
                    self._dependents.setdefault(one.name, []).append(unit.name)
        return [self.units[other] for other in self._dependents.get(name, ()) if other in self.units]

    def _met(self, unit: Unit, wanted: Until) -> bool:
        if wanted == "succeeded":
            return self.ended.get(unit.name, False)
        return bool(unit.instances) and all(map(is_ready if wanted == "ready" else _is_started, unit.instances))

    def _standing(self, unit: Unit) -> str:
        if unit.service is not None:
            states = [one.state.shown for one in unit.instances if not is_ready(one)]
            return f"it is {states[0] if states else State.RUNNING.shown}"
        if unit.active or unit.queue or unit.waiting:
            return "it is running" if unit.active else "it waits"
        return "it has failed" if unit.name in self.ended else "it has not run yet"


def _is_started(instance: ServiceInstance) -> bool:
    return instance.state is State.RUNNING or (instance.state is State.STARTING and instance.started_at is not None)


def _named(unit: Unit) -> tuple[Dependency, ...]:
    return () if unit.service is None else unit.service.depends_on
