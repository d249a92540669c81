"""The dependency gate: instances of a service wait until its dependencies are met, and its sockets are bound."""

from collections.abc import Callable, Mapping

from supervisor.config.model import Task
from supervisor.config.value_records import Dependency, Until
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun, ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.readiness import is_ready
from supervisor.scheduler.services.start_order import start_order

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

    def followed(self, unit: Unit) -> list[tuple[Dependency, Unit]]:
        """Return the services whose restarts a service follows."""
        named = [each for each in _named(unit) if each.on_restart is not None and each.name in self.units]
        return [(each, self.units[each.name]) for each in named if self.units[each.name].service is not None]

    def cause(self, unit: Unit) -> str | None:
        """Return why the processes of a service must restart, because it follows another one; None: not, or not yet.

        It waits for all that it follows, also indirectly: one cause restarts it once, after them.
        """
        followed = self.followed(unit)
        for dependency, other in followed:
            unit.followed.setdefault(other.name, _runs_of(other) if _is_settled(other) else frozenset())
            if dependency.on_restart == "stop" and is_down(other):
                return f"{other.name} is {'stopped' if other.stopped else 'down'}"
        if any(self._is_moving(other) for _, other in followed):
            return None
        changed = (other.name for _, other in followed if not is_down(other) and self._has_changed(unit, other))
        return next((f"{name} was restarted" for name in changed), None)

    def note_followed(self, unit: Unit) -> None:
        """Remember the runs of all that a service follows, because its own processes start."""
        unit.followed = {other.name: _runs_of(other) for _, other in self.followed(unit)}

    def _is_moving(self, unit: Unit) -> bool:
        """Return whether a service restarts, or will because it follows another one."""
        if unit.stopped or is_down(unit):
            return False
        followed = [other for _, other in self.followed(unit)]
        return not _is_settled(unit) or any(self._is_moving(each) or self._has_changed(unit, each) for each in followed)

    @staticmethod
    def _has_changed(unit: Unit, followed: Unit) -> bool:
        return unit.followed.get(followed.name, _runs_of(followed)) != _runs_of(followed)

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
        if unit.service is not None and unit.withheld is not None:
            return f"it is disabled {unit.withheld}"
        if unit.service is not None:
            states = [instance.state.shown for instance in unit.instances if not is_ready(instance)]
            return f"it is {states[0] if states else State.RUNNING.shown}"
        if unit.active or unit.queue or unit.waiting:
            return "it is running" if unit.active else "it waits"
        return "it has failed" if unit.name in self.ended else "it has not run yet"


def _is_started(instance: ServiceInstance) -> bool:
    return instance.state is State.RUNNING or (instance.state is State.STARTING and instance.started_at is not None)


def is_down(unit: Unit) -> bool:
    """Return whether a service stays down until someone starts it, or ``fatal_retry`` does."""
    return unit.stopped or any(instance.state in (State.FATAL, State.EXITED) for instance in unit.instances)


def _is_settled(unit: Unit) -> bool:
    """Return whether all instances are ready, and no restart is under way."""
    return unit.rolling is None and all(is_ready(each) and each.next is None for each in unit.instances)


def _runs_of(unit: Unit) -> frozenset[str]:
    return frozenset(instance.run.id for instance in unit.instances if instance.run is not None)


def _named(unit: Unit) -> tuple[Dependency, ...]:
    return () if unit.service is None else unit.service.depends_on


Act = Callable[[Unit, ServiceInstance, Change], None]


class DependencyGate:
    """Holds instances until the dependencies of their service are met.

    New services also wait until removed ones have ended, which may have been renamed and have the same port.

    Args:
        run_task: starts a task that a service waits for.
        release: starts a held instance.
        report: stores and announces the state of an instance.
        sockets: binds the sockets of a service; returns why it must wait for them, or None.
        restart: restarts an instance; the last argument is the reason.
    """

    def __init__(
        self,
        *,
        run_task: Callable[[Unit, Task, Change], object],
        release: Act,
        report: Act,
        sockets: Callable[[Unit], str | None],
        restart: Callable[[Unit, ServiceInstance, Change, str], None],
    ) -> None:
        self._run_task = run_task
        self._release = release
        self._report = report
        self._sockets = sockets
        self._restart = restart
        self._dependencies = Dependencies({}, {})
        self._removed: dict[Unit, None] = {}
        """Removed services that have not ended, in the order of removal."""
        self._new: dict[Unit, None] = {}
        """Services that wait for all of these."""

    def know(self, units: Mapping[str, Unit], ended: dict[str, bool]) -> None:
        """Set the units, and the results of tasks that ended since the daemon started."""
        self._dependencies = Dependencies(units, ended)

    def missing(self, unit: Unit) -> str | None:
        """Return a text about what a service waits for first, and begin to bind its sockets; None: it may start.

        Removed services must end, its dependencies must be met, and its sockets must be bound.
        """
        if unit in self._new:
            return f"waits for the removed service {next(iter(self._removed)).name} to end"
        return self._dependencies.missing(unit) or self._sockets(unit)

    def removed(self, unit: Unit) -> None:
        """Hold services that are added until this one, which was removed, has ended."""
        self._removed[unit] = None

    def added(self, unit: Unit) -> None:
        """Hold a new service until the removed ones have ended."""
        if self._removed:
            self._new[unit] = None

    def has_ended(self, unit: Unit, change: Change) -> None:
        """Wait no longer for a removed service."""
        if unit not in self._removed:
            return
        del self._removed[unit]
        waiting = start_order(self._new)
        if not self._removed:
            self._new.clear()
        for other in waiting:
            self.check(other, change)

    def down(self, unit: Unit) -> list[Unit]:
        """Return the stopped or fatal services on which a service depends, directly or through waiting services.

        A dependency comes before its dependents. Disabled services are left out.
        """
        is_down: dict[Unit, bool] = {}
        ahead = [unit]
        while ahead:
            for other in self._dependencies.of(ahead.pop()):
                if other.service is None or other.withheld is not None or other in is_down:
                    continue
                states = {instance.state for instance in other.instances}
                is_down[other] = other.stopped or State.FATAL in states
                if is_down[other] or State.HELD in states:
                    ahead.append(other)
        return [other for other in reversed(is_down) if is_down[other]]

    def check_dependents(self, unit: Unit, change: Change) -> None:
        """Check the dependents of a unit whose state changed."""
        dependents = self._dependencies.dependents(unit.name)
        for other in dependents:
            self.check(other, change)
        for other in start_order(dependents) if unit.service is not None else ():
            self.follow(other, change)

    def check_all(self, change: Change) -> None:
        """Check all held instances after a reload, and run the tasks for which they wait."""
        self._dependencies.redefined()
        for unit in list(self._dependencies.units.values()):
            if self.check(unit, change):
                self.run_needed(unit, change)

    def check(self, unit: Unit, change: Change) -> bool:
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

    def follow(self, unit: Unit, change: Change) -> None:
        """Restart the processes of a service if it follows one that has restarted, or must not be up without it."""
        reason = self._dependencies.cause(unit)
        if reason is None:
            return
        self._dependencies.note_followed(unit)
        for instance in unit.instances:
            if instance.state in (State.STARTING, State.RUNNING):
                self._restart(unit, instance, change, reason)

    def starts(self, unit: Unit) -> None:
        """Note that processes of a service start, which know the present processes of all that it follows."""
        self._dependencies.note_followed(unit)

    def run_needed(self, unit: Unit, change: Change) -> None:
        """Run the tasks for which a service waits, unless they have ended since the daemon started."""
        for other in self._dependencies.of(unit):
            if other.task is None or other.name in self._dependencies.ended:
                continue
            soon = [run for run in other.waiting.values() if run.due is not None and run.due.kind != "at"]
            if not (other.active or other.queue or soon):
                self._run_task(other, other.task, change)

    def task_ended(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        """Record the result of a task, and check its dependents."""
        # A "crashed" run most likely died with the previous daemon, and says nothing about the task.
        if verdict.reason != "crashed":
            self._dependencies.ended[run.unit.name] = verdict.succeeded
            self.check_dependents(run.unit, change)
