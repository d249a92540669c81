"""The dependency gate: instances of a service wait until its dependencies are met."""

from collections.abc import Callable, Mapping

from supervisor.config.model import Task
from supervisor.config.value_records import Dependency, Until
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun, ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.readiness import is_ready

_SAID = {"started": "start", "ready": "be ready", "succeeded": "succeed"}


def until(dependency: Dependency, unit: Unit) -> Until:
    """Return the condition that a dependency sets on `unit`; tasks must succeed."""
    if unit.service is None:
        return "succeeded"
    return dependency.until or ("started" if unit.service.ready is None else "ready")


class Dependencies:
    """Decides whether the dependencies of services are met.

    Args:
        units: all configured units; shared, not copied.
        ended: by task name, whether the latest run succeeded; only tasks that ended since the daemon started.
    """

    def __init__(self, units: Mapping[str, Unit], ended: dict[str, bool]) -> None:
        self.units = units
        self.ended = ended
        self._dependents: dict[str, list[str]] | None = None
        """Dependents by name; cached, because each state change of an instance asks for them."""

    def redefined(self) -> None:
        """Discard the cache after a reload."""
        self._dependents = None

    def missing(self, unit: Unit) -> str | None:
        """Return a text about the first unmet dependency of a service; None if it may start."""
        for dependency in _named(unit):
            other = self.units.get(dependency.name)
            if other is None:
                return f"waits for {dependency.name}, which is not configured yet"
            condition = until(dependency, other)
            if not self._met(other, condition):
                return f"waits for {dependency.name} to {_SAID[condition]}: {self._standing(other)}"
        return None

    def of(self, unit: Unit) -> list[Unit]:
        """Return the configured units on which a service depends directly."""
        return [self.units[dependency.name] for dependency in _named(unit) if dependency.name in self.units]

    def dependents(self, name: str) -> list[Unit]:
        """Return the services that depend directly on the unit `name`."""
        if self._dependents is None:
            self._dependents = {}
            for unit in self.units.values():
                for dependency in _named(unit):
                    self._dependents.setdefault(dependency.name, []).append(unit.name)
        return [self.units[other] for other in self._dependents.get(name, ()) if other in self.units]

    def _met(self, unit: Unit, condition: Until) -> bool:
        if condition == "succeeded":
            return self.ended.get(unit.name, False)
        return bool(unit.instances) and all(map(is_ready if condition == "ready" else _is_started, unit.instances))

    def _standing(self, unit: Unit) -> str:
        if unit.service is not None:
            states = [instance.state.shown for instance in unit.instances if not is_ready(instance)]
            return f"it is {states[0] if states else State.RUNNING.shown}"
        if unit.active or unit.queue or unit.waiting:
            return "it is running" if unit.active else "it waits"
        return "it has failed" if unit.name in self.ended else "it has not run yet"


def _is_started(instance: ServiceInstance) -> bool:
    return instance.state is State.RUNNING or (instance.state is State.STARTING and instance.started_at is not None)


def _named(unit: Unit) -> tuple[Dependency, ...]:
    return () if unit.service is None else unit.service.depends_on


Act = Callable[[Unit, ServiceInstance, Change], None]


class DependencyGate:
    """Holds instances until the dependencies of their service are met.

    Args:
        run_task: starts a task that a service waits for.
        release: starts a held instance.
        report: stores and announces the state of an instance.
    """

    def __init__(self, *, run_task: Callable[[Unit, Task, Change], object], release: Act, report: Act) -> None:
        self._run_task = run_task
        self._release = release
        self._report = report
        self._dependencies = Dependencies({}, {})

    def know(self, units: Mapping[str, Unit], ended: dict[str, bool]) -> None:
        """Set the units, and the results of tasks that ended since the daemon started."""
        self._dependencies = Dependencies(units, ended)

    def missing(self, unit: Unit) -> str | None:
        """Return a text about the first unmet dependency of a service; None if it may start."""
        return self._dependencies.missing(unit)

    def down(self, unit: Unit) -> list[Unit]:
        """Return the stopped or fatal services on which a service depends, directly or through waiting services.

        A dependency comes before its dependents.
        """
        is_down: dict[Unit, bool] = {}
        ahead = [unit]
        while ahead:
            for other in self._dependencies.of(ahead.pop()):
                if other.service is None or other in is_down:
                    continue
                states = {instance.state for instance in other.instances}
                is_down[other] = other.stopped or State.FATAL in states
                if is_down[other] or State.HELD in states:
                    ahead.append(other)
        return [other for other in reversed(is_down) if is_down[other]]

    def check_dependents(self, unit: Unit, change: Change) -> None:
        """Check the dependents of a unit whose state changed."""
        for other in self._dependencies.dependents(unit.name):
            self._check(other, change)

    def check_all(self, change: Change) -> None:
        """Check all held instances after a reload, and run the tasks for which they wait."""
        self._dependencies.redefined()
        for unit in list(self._dependencies.units.values()):
            if self._check(unit, change):
                self.run_needed(unit, change)

    def _check(self, unit: Unit, change: Change) -> bool:
        """Release the held instances of a service if its dependencies are met; return whether they still wait."""
        held_back = [instance for instance in unit.instances if instance.state is State.HELD]
        missing = self.missing(unit) if held_back else None
        for instance in held_back:
            if missing is None:
                self._release(unit, instance, change)
            elif instance.line != missing:
                instance.line = missing
                self._report(unit, instance, change)
        return missing is not None

    def run_needed(self, unit: Unit, change: Change) -> None:
        """Run the tasks for which a service waits, unless they have ended since the daemon started."""
        for other in self._dependencies.of(unit):
            if other.task is None or other.name in self._dependencies.ended:
                continue
            if not (other.active or other.queue or other.waiting):
                self._run_task(other, other.task, change)

    def task_ended(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        """Record the result of a task, and check its dependents."""
        # A "crashed" run most likely died with the previous daemon, and says nothing about the task.
        if verdict.reason != "crashed":
            self._dependencies.ended[run.unit.name] = verdict.succeeded
            self.check_dependents(run.unit, change)
