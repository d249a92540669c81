"""Operations on tasks and services: start, stop, restart, pause, resume (one unit or many), and acknowledge.

An operation stores the wanted state first, then acts, and answers after the effect is stored. Only a stop acts first:
otherwise a service that fills the disk could not be stopped. Changes are stored in order, and so are their effects. Of
a concurrent start and stop, the later one wins.

Every operation can be repeated. The id of a restart, and of each operation on many units, is stored with its effect. If
a caller repeats the request to the next scheduler, it gets the same answer, and services do not restart again.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from store.database import Database
from store.tasks import get_task, update_task
from supervisor.ipc.unit_selection import ANY, Kinds, NotSelected, Selector, select
from supervisor.schedule.instants import upcoming
from supervisor.scheduler.control.socket_operation import (
    Arguments,
    Number,
    Reply,
    done,
    operation,
    refused,
    shutting_down,
    unavailable,
)
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change, Write
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.run_observer import StopRun
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.instance_transitions import ENDING, Event, State, step
from supervisor.scheduler.services.service_controller import ServiceController

Act = Callable[[Change], None]
Finish = Callable[[], None]

_SERVICES = Kinds(
    lambda unit: unit.kind == "service",
    "service",
    lambda unit: f"{unit.name} is a task; use ringward run {unit.name}",
)
_TASKS = Kinds(
    lambda unit: unit.kind == "task",
    "task",
    lambda unit: f"{unit.name} is a service and has no schedule; use ringward stop {unit.name}",
)

_UNCHANGED = "unchanged"
_BUSY = "busy"


class _Task(Arguments):
    task: str
    """Name of a task or a service."""


class _Schedule(_Task):
    count: Annotated[int, Meta(ge=0, le=10_000)]


class _Unit(_Task):
    by: str


class _Acknowledgement(_Unit):
    run: str | None
    for_ms: Number | None
    note: str | None


class _Restart(_Unit):
    command: str
    rolling: bool


class _Units(Arguments):
    verb: Literal["start", "stop", "restart", "pause", "resume"]
    names: Annotated[list[str], Meta(min_length=1)] | None
    group: str | None
    tag: str | None
    reach: list[str] | None
    command: str
    by: str
    rolling: bool
    force: bool


class _Verb(Struct, frozen=True):
    """An operation on units, except stop.

    Attributes:
        kinds: the kind of units that it applies to.
        result: the result that the answer gives for a changed unit.
        starts: whether it starts processes; then it is refused during a shutdown.
        changes: returns whether it would change a unit.
        stores: returns the write of the wanted state, which precedes the effect.
        acts: carries out the effect.
    """

    kinds: Kinds
    result: str
    starts: bool
    changes: Callable[[Unit], bool]
    stores: Callable[[Unit, Change], Write]
    acts: Callable[[Unit, Change, Any], None]


class UnitOperations:
    """Operations that start, stop and restart services, and that pause and resume schedules of tasks."""

    def __init__(
        self,
        core: Core,
        stop_run: StopRun,
        controller: ServiceController,
        scheduled_starts: ScheduledStarts,
        units: dict[str, Unit],
    ) -> None:
        self._committer = core.committer
        self._daemon = core.daemon
        self._stop_run = stop_run
        self._controller = controller
        self._scheduled_starts = scheduled_starts
        self._units = units
        self._verbs = {
            "start": _Verb(_SERVICES, "started", True, _would_start, _store_started, self._start),
            "restart": _Verb(_SERVICES, "restarted", True, lambda _unit: True, _store_started, self._restart),
            "pause": _Verb(_TASKS, "paused", False, lambda unit: not unit.paused, _store_paused, self._pause),
            "resume": _Verb(_TASKS, "resumed", False, lambda unit: unit.paused, _store_resumed, self._resume),
        }

    # One unit.

    @operation(_Unit)
    def service_start(self, request: _Unit, reply: Reply) -> None:
        """Start the instances of a service."""
        self._operate("start", request, reply)

    @operation(_Restart)
    def service_restart(self, request: _Restart, reply: Reply) -> None:
        """Restart the instances of a service."""
        self._operate("restart", request, reply)

    @operation(_Unit)
    def task_pause(self, request: _Unit, reply: Reply) -> None:
        """Pause the schedule of a task."""
        self._operate("pause", request, reply)

    @operation(_Unit)
    def task_resume(self, request: _Unit, reply: Reply) -> None:
        """Resume the schedule of a task."""
        self._operate("resume", request, reply)

    def _operate(self, name: str, request: _Unit, reply: Reply) -> None:
        verb = self._verbs[name]
        unit = self._unit(verb.kinds, request, reply)
        if unit is None or (verb.starts and self._refused_at_the_end(reply)):
            return
        command = request.command if isinstance(request, _Restart) else None
        if command is not None and unit.last_command == command:
            reply(done())
            return

        def act() -> None:
            if name == "restart" and unit.rolling is not None:
                reply(refused(409, f"a rolling restart of {unit.name} is in progress"))
                return
            with self._committer.changing() as change:
                if command is not None:
                    _remember(unit, command, change)
                verb.acts(unit, change, request)
                change.then(lambda: reply(done()))

        with self._committer.changing(unavailable(reply)) as change:
            change.write(verb.stores(unit, change))
            change.then(act)

    @operation(_Unit)
    def service_stop(self, request: _Unit, reply: Reply) -> None:
        """Stop all instances of a service."""
        unit = self._unit(_SERVICES, request, reply)
        if unit is not None:
            self._stop([unit], request, lambda: reply(done()))

    @operation(_Acknowledgement)
    def acknowledge(self, request: _Acknowledgement, reply: Reply) -> None:
        """Store that a person knows of a unit's present failure: the failed run, or that the service is flapping."""
        unit = self._unit(ANY, request, reply)
        if unit is None:
            return
        change = self._committer.change(unavailable(reply))
        for_ms = request.for_ms
        acknowledged = {
            "run": request.run,
            "flapping_since": unit.flapping_since,
            "at": change.now_ms,
            "until": None if for_ms is None else change.now_ms + for_ms,
            "by": request.by,
            "note": request.note,
        }
        self._store_acknowledged(unit, json.dumps(acknowledged), change, reply)

    @operation(_Unit)
    def unacknowledge(self, request: _Unit, reply: Reply) -> None:
        """Withdraw a unit's acknowledgement."""
        unit = self._unit(ANY, request, reply)
        if unit is not None:
            self._store_acknowledged(unit, None, self._committer.change(unavailable(reply)), reply)

    def _store_acknowledged(self, unit: Unit, acknowledged: str | None, change: Change, reply: Reply) -> None:
        change.write(lambda db: update_task(db, unit.name, acknowledged=acknowledged))
        change.then(lambda: reply(done()))
        self._committer.commit(change)

    def _unit(self, kinds: Kinds, request: _Unit, reply: Reply) -> Unit | None:
        unit = self._units.get(request.task)
        if unit is None:
            reply(refused(404, f'no {kinds.what} named "{request.task}"'))
        elif not kinds.fits(unit.definition):
            reply(refused(409, kinds.misfit(unit.definition)))
        else:
            return unit
        return None

    @operation(_Schedule)
    def schedule(self, request: _Schedule, reply: Reply) -> None:
        """Answer with a task's next `count` instants, and notes about clock changes."""
        name = request.task
        unit = self._units.get(name)
        if unit is None:
            reply(refused(404, f'no task named "{name}"'))
        elif unit.task is None:
            reply(refused(409, f"{name} is a service and has no schedule"))
        else:
            now_ms = self._committer.change().now_ms
            instants = upcoming(unit.schedule, unit.last_instant, now_ms, request.count)
            reply(done(items=[list(instant) for instant in instants]))

    # Many units.

    @operation(_Units)
    def units(self, request: _Units, reply: Reply) -> None:
        """Carry out an operation on all selected units, or on none if a part of the selector matches nothing.

        The answer lists, for each selected unit, its name, the result, and the ids of the runs that were asked to end.
        """
        names, reach = request.names, request.reach
        selector = Selector(
            None if names is None else tuple(names),
            request.group,
            request.tag,
            None if reach is None else tuple(reach),
        )
        verb = self._verbs.get(request.verb)
        try:
            definitions = [unit.definition for unit in self._units.values()]
            chosen = select(definitions, selector, ANY if verb is None else verb.kinds)
        except NotSelected as err:
            reply(refused(err.status, str(err), err.errors))
            return
        units = [self._units[definition.name] for definition in chosen]
        if verb is None:
            self._stop_many(units, request, reply)
        elif not (verb.starts and self._refused_at_the_end(reply)):
            self._carry_out(verb, units, request, reply)

    def _carry_out(self, verb: _Verb, units: Sequence[Unit], request: _Units, reply: Reply) -> None:
        command = request.command
        restarts = verb is self._verbs["restart"]
        repeated = [unit for unit in units if unit.last_command == command]
        new = [unit for unit in units if unit.last_command != command and verb.changes(unit)]
        results = {unit.name: [verb.result, _live_runs(unit) if restarts else []] for unit in (*repeated, *new)}

        def act() -> None:
            with self._committer.changing() as change:
                for unit in new:
                    if not unit.configured:  # a reload removed it while the wanted state was stored
                        results.pop(unit.name)
                    elif restarts and unit.rolling is not None:
                        results[unit.name] = [_BUSY, []]
                    else:
                        _remember(unit, command, change)
                        verb.acts(unit, change, request)
                change.then(lambda: reply(done(units=_answer(units, results))))

        if not new:
            reply(done(units=_answer(units, results)))
            return
        with self._committer.changing(unavailable(reply)) as change:
            for unit in new:
                change.write(verb.stores(unit, change))
                # If this scheduler dies before the effect, the next one carries it out from the wanted state. A restart
                # has no wanted state of its own, so its id is stored only with the effect.
                if not restarts:
                    change.write(_stored_command(unit, command))
            change.then(act)

    def _stop_many(self, units: Sequence[Unit], request: _Units, reply: Reply) -> None:
        """Stop the selected services, and all unfinished runs of the selected tasks."""
        command = request.command
        changed = [unit for unit in units if unit.last_command == command or _would_stop(unit)]
        results = {unit.name: ["stopped" if unit in changed else _UNCHANGED, _live_runs(unit)] for unit in units}

        def remember(change: Change) -> None:
            for unit in changed:
                _remember(unit, command, change)

        self._stop(units, request, lambda: reply(done(units=_answer(units, results))), remember)

    # Effects.

    def _start(self, unit: Unit, change: Change, _request: object) -> None:
        self._controller.start(unit, change)

    def _restart(self, unit: Unit, change: Change, request: _Restart | _Units) -> None:
        if request.rolling:
            self._controller.roll(unit, change)
        else:
            self._controller.restart(unit, change, by=request.by)

    def _pause(self, unit: Unit, change: Change, _request: object) -> None:
        unit.paused = True
        self._scheduled_starts.pause(unit, change)

    def _resume(self, unit: Unit, change: Change, _request: object) -> None:
        if unit.paused and unit.configured:  # a reload may have removed it
            unit.paused = False
            self._scheduled_starts.resume(unit, change)

    def _stop(
        self, units: Sequence[Unit], request: _Unit | _Units, finish: Finish, remember: Act = lambda _change: None
    ) -> None:
        """Stop units at once and store it afterwards; call `finish` when the answer may be sent.

        `remember` adds the id of the command to the change.
        """
        by, force = request.by, isinstance(request, _Units) and request.force

        def act(chosen: Iterable[Unit], change: Change) -> None:
            services = [unit for unit in chosen if unit.service is not None]
            if force:
                for unit in services:
                    self._controller.stop(unit, change, by=by)
            else:
                self._controller.stop_in_order(services, change, by=by)
            for unit in chosen:
                if force or unit.task is not None:
                    for run in _unfinished(unit):
                        self._stop_run(run, change, by=by, force=force)

        def again() -> None:
            started = [unit for unit in units if unit.service is not None and not unit.stopped and unit.configured]
            if not started:
                finish()
                return
            with self._committer.changing() as change:  # an earlier start request took effect in between; stop again
                act(started, change)
                change.then(finish)

        change = self._committer.change()
        remember(change)
        act(units, change)
        if self._committer.storing:
            change.then(again)
            self._committer.commit(change)
        else:  # nothing can be stored now; no start is pending, because those are refused meanwhile
            self._committer.commit(change)
            finish()

    def _refused_at_the_end(self, reply: Reply) -> bool:
        if self._daemon.ending:
            reply(shutting_down())
        return self._daemon.ending


def _would_start(unit: Unit) -> bool:
    """Return whether a start would change an instance; an instance that waits for dependencies keeps waiting."""
    return unit.stopped or any(
        instance.state is not State.HELD and step(instance.state, Event.UP)[0] is not instance.state
        for instance in unit.instances
    )


def _would_stop(unit: Unit) -> bool:
    if unit.service is None:
        return bool(_unfinished(unit))
    return not unit.stopped or any(
        instance.state is not State.STOPPED and instance.state not in ENDING for instance in unit.instances
    )


def _unfinished(unit: Unit) -> list[LiveRun]:
    return [*unit.active.values(), *unit.queue, *unit.waiting.values()]


def _live_runs(unit: Unit) -> list[str]:
    return [run.id for run in _unfinished(unit)]


def _store_started(unit: Unit, _change: Change) -> Write:
    return lambda db: update_task(db, unit.name, stopped=False)


def _store_paused(unit: Unit, _change: Change) -> Write:
    return lambda db: update_task(db, unit.name, paused=True)


def _store_resumed(unit: Unit, change: Change) -> Write:
    now_ms = change.now_ms - unit.schedule.offset_ms

    def store(db: Database) -> None:
        record = get_task(db, unit.name)
        if record is not None and record.paused:
            update_task(db, unit.name, paused=False, last_instant=max(record.last_instant or 0, now_ms))

    return store


def _remember(unit: Unit, command: str, change: Change) -> None:
    unit.last_command = command
    change.write(_stored_command(unit, command))


def _stored_command(unit: Unit, command: str) -> Write:
    return lambda db: update_task(db, unit.name, last_restart=command)


def _answer(units: Iterable[Unit], results: dict[str, list[Any]]) -> list[list[Any]]:
    """Return name, result and runs of each unit that is still configured or was changed."""
    return [
        [unit.name, *results.get(unit.name, [_UNCHANGED, []])]
        for unit in units
        if unit.configured or unit.name in results
    ]
