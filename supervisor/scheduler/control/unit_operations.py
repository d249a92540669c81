"""Operations on tasks and services: start, stop, restart, pause and resume.

An operation stores the wanted state first, then acts, and answers after the effect is stored. Only a stop acts first,
so that a full disk does not keep the service alive that fills it. Changes are stored in order, and so are their
effects: of a concurrent start and stop the later one wins.

Every operation can be repeated. The id of a restart is stored with its effect, so a repeated request to the next
scheduler does not restart the service again.
"""

from collections.abc import Callable
from typing import Any

from store.database import Database
from store.tasks import get_task, update_task
from supervisor.scheduler.control.control_socket import Operation, Reply, done, refused, unavailable
from supervisor.scheduler.database.commits import Change, Write
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.service_controller import ServiceController

Arguments = dict[str, Any]
Act = Callable[[Change], None]


class UnitOperations:
    """Starts, stops and restarts services; pauses and resumes schedules of tasks."""

    def __init__(
        self,
        engine: RunEngine,
        controller: ServiceController,
        scheduled_starts: ScheduledStarts,
        units: dict[str, Unit],
    ) -> None:
        self._engine = engine
        self._controller = controller
        self._scheduled_starts = scheduled_starts
        self._units = units

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {
            "service_start": self.start,
            "service_stop": self.stop,
            "service_restart": self.restart,
            "task_pause": self.pause,
            "task_resume": self.resume,
        }

    def start(self, arguments: Arguments, reply: Reply) -> None:
        """Start all instances of a service."""
        unit = self._service(arguments, reply)
        if unit is None or self._refused_at_the_end(reply):
            return
        self._store(reply, _wanted(unit), lambda change: self._controller.start(unit, change))

    def stop(self, arguments: Arguments, reply: Reply) -> None:
        """Stop all instances of a service."""
        unit = self._service(arguments, reply)
        if unit is None:
            return
        change = self._engine.change()
        self._controller.stop(unit, change, by=arguments["by"])

        def again() -> None:
            if unit.stopped:
                reply(done())
            else:  # an earlier start request took effect meanwhile
                self._act(reply, lambda change: self._controller.stop(unit, change, by=arguments["by"]))

        if self._engine.storing:
            change.then(again)
            self._engine.commit(change)
        else:  # start requests are refused meanwhile, so none can follow
            self._engine.commit(change)
            reply(done())

    def restart(self, arguments: Arguments, reply: Reply) -> None:
        """Restart a service, all instances at once or one after the other; a stopped service starts."""
        unit = self._service(arguments, reply)
        if unit is None or self._refused_at_the_end(reply):
            return
        command: str = arguments["command"]
        if unit.last_restart == command:
            reply(done())
            return

        def act() -> None:
            if unit.rolling is not None:
                reply(refused(409, f"a rolling restart of {unit.name} is in progress"))
            else:
                self._act(reply, restart)

        def restart(change: Change) -> None:
            unit.last_restart = command
            change.write(lambda db: update_task(db, unit.name, last_restart=command))
            if arguments["rolling"]:
                self._controller.roll(unit, change)
            else:
                self._controller.restart(unit, change, by=arguments["by"])

        change = self._engine.change(unavailable(reply))
        change.write(_wanted(unit))
        change.then(act)
        self._engine.commit(change)

    def pause(self, arguments: Arguments, reply: Reply) -> None:
        """Pause the schedule of a task."""
        unit = self._task(arguments, reply)
        if unit is None:
            return

        def act(change: Change) -> None:
            unit.paused = True
            self._scheduled_starts.pause(unit, change)

        self._store(reply, lambda db: update_task(db, unit.name, paused=True), act)

    def resume(self, arguments: Arguments, reply: Reply) -> None:
        """Resume the schedule of a task."""
        unit = self._task(arguments, reply)
        if unit is None:
            return
        now_ms = self._engine.change().now_ms - unit.schedule.offset_ms

        def store(db: Database) -> None:
            record = get_task(db, unit.name)
            if record is not None and record.paused:
                update_task(db, unit.name, paused=False, last_instant=max(record.last_instant or 0, now_ms))

        def act(change: Change) -> None:
            if unit.paused and unit.configured:  # a reload may have removed it
                unit.paused = False
                self._scheduled_starts.resume(unit, change)

        self._store(reply, store, act)

    def _service(self, arguments: Arguments, reply: Reply) -> Unit | None:
        unit = self._unit("service", arguments, reply)
        if unit is not None and unit.service is None:
            reply(refused(409, f"{unit.name} is a task; use ringward run {unit.name}"))
            return None
        return unit

    def _task(self, arguments: Arguments, reply: Reply) -> Unit | None:
        unit = self._unit("task", arguments, reply)
        if unit is not None and unit.task is None:
            reply(refused(409, f"{unit.name} is a service and has no schedule; use ringward stop {unit.name}"))
            return None
        return unit

    def _unit(self, kind: str, arguments: Arguments, reply: Reply) -> Unit | None:
        name = arguments["task"]
        unit = self._units.get(name)
        if unit is None:
            reply(refused(404, f"there is no {kind} {name}"))
        return unit

    def _refused_at_the_end(self, reply: Reply) -> bool:
        if self._engine.ending:
            reply(refused(503, "the daemon is shutting down"))
        return self._engine.ending

    def _store(self, reply: Reply, write: Write, act: Act) -> None:
        """Store the wanted state, then act."""
        change = self._engine.change(unavailable(reply))
        change.write(write)
        change.then(lambda: self._act(reply, act))
        self._engine.commit(change)

    def _act(self, reply: Reply, act: Act) -> None:
        change = self._engine.change()
        act(change)
        change.then(lambda: reply(done()))
        self._engine.commit(change)


def _wanted(unit: Unit) -> Write:
    return lambda db: update_task(db, unit.name, stopped=False)
