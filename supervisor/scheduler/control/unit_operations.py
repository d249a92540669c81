"""Operations on tasks and services: start, stop, restart, pause, resume (one unit or many), and acknowledge.

An operation stores the wanted state first, then acts, and answers after the effect is stored. Only a stop acts first:
otherwise a service that fills the disk could not be stopped. Changes are stored in order, and so are their effects. Of
a concurrent start and stop, the later one wins.

Every operation can be repeated. The id of a restart, and of each operation on many units, is stored with its effect. If
a caller repeats the request to the next scheduler, it gets the same answer, and services do not restart again.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from store.daemon_values import set_meta
from store.database import Database
from store.deliveries import cancel_unacked
from store.tasks import get_task, update_task
from supervisor.config.model import Task
from supervisor.ipc.plural import counted_with_names
from supervisor.ipc.unit_selection import ANY, Kinds, NotSelected, Selector, select
from supervisor.schedule.instants import Instant, upcoming
from supervisor.scheduler.control.control_socket import (
    Answer,
    Arguments,
    Number,
    Rejected,
    RequestEntry,
    done,
    operation,
    refused,
    shutting_down,
)
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change, Write
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifications import end_public_incident, publish_note
from supervisor.scheduler.runs.live_units import LiveRun, Unit, Withheld
from supervisor.scheduler.runs.run_observer import StopRun
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.instance_transitions import ENDING, Event, State, step
from supervisor.scheduler.services.service_controller import ServiceController

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


def _is_no_service(unit: Task) -> str:
    return f"{unit.name} is a task; use ringward pause and ringward resume"


_DISABLABLE = replace(_SERVICES, misfit=_is_no_service)
PAUSE = "pause"
"""Name of the pause in the store."""
_UNCHANGED = "unchanged"
_BUSY = "busy"
_DISABLED = "disabled"


class _Task(Arguments):
    task: str
    """Name of a task or a service."""


class _Schedule(_Task, kw_only=True):
    count: Annotated[int, Meta(ge=0, le=10_000)]


class _Unit(_Task, kw_only=True):
    by: str
    until: Number | None = None
    """When a pause ends, in milliseconds since the epoch; None: when the task is resumed."""
    note: str | None = None


class _Acknowledgement(_Unit, kw_only=True):
    run: str | None
    for_ms: Number | None
    public: bool = False
    """Whether the public status page shows the note."""


class _Restart(_Unit, kw_only=True):
    command: str
    rolling: bool


class _Units(Arguments):
    verb: Literal["start", "stop", "restart", "pause", "resume", "enable"]
    names: Annotated[list[str], Meta(min_length=1)] | None
    group: str | None
    tag: str | None
    reach: list[str] | None
    command: str
    by: str
    rolling: bool
    force: bool
    disable: bool = False
    enable: bool = False
    until: Number | None = None
    note: str | None = None


class _UnitVerb(Struct, frozen=True):
    """An operation on units, except stop.

    Attributes:
        kinds: the kind of units that it applies to.
        result: the result that the answer gives for a changed unit.
        starts: whether it starts processes; then it is refused during a shutdown.
        changes: returns whether the request would change a unit.
        stores: returns the write of the wanted state, which precedes the effect.
        acts: carries out the effect.
    """

    kinds: Kinds
    result: str
    starts: bool
    changes: Callable[[Unit, Any], bool]
    stores: Callable[[Unit, Change, Any], Write]
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
            "start": _UnitVerb(_SERVICES, "started", True, _would_start, _store_started, self._start),
            "restart": _UnitVerb(_SERVICES, "restarted", True, _always, _store_started, self._restart),
            "pause": _UnitVerb(_TASKS, "paused", False, _would_pause, _store_paused, self._pause),
            "enable": _UnitVerb(_DISABLABLE, "enabled", False, _is_withheld, _store_enabled, self._enable),
            "resume": _UnitVerb(_TASKS, "resumed", False, _would_resume, _store_resumed, self._resume),
        }

    # One unit.

    @operation(_Unit)
    def service_start(self, request: _Unit, entry: RequestEntry) -> Procedure[Answer]:
        """Start the instances of a service."""
        return self._operate("start", request, entry)

    @operation(_Restart)
    def service_restart(self, request: _Restart, entry: RequestEntry) -> Procedure[Answer]:
        """Restart the instances of a service."""
        return self._operate("restart", request, entry)

    @operation(_Unit)
    def task_pause(self, request: _Unit, entry: RequestEntry) -> Procedure[Answer]:
        """Pause the schedule of a task."""
        return self._operate("pause", request, entry)

    @operation(_Unit)
    def task_resume(self, request: _Unit, entry: RequestEntry) -> Procedure[Answer]:
        """Resume the schedule of a task."""
        return self._operate("resume", request, entry)

    def _operate(self, name: str, request: _Unit, entry: RequestEntry) -> Procedure[Answer]:
        verb = self._verbs[name]
        unit = self._unit(verb.kinds, request)
        self._reject_at_the_end(verb)
        if verb.starts and unit.withheld is not None:
            return refused(409, f"{unit.name} is disabled {unit.withheld}; start it with: ringward start --enable")
        command = request.command if isinstance(request, _Restart) else None
        if command is not None and unit.last_command == command:
            return done()
        change = self._committer.change()
        change.write(verb.stores(unit, change, request))
        if command is None:
            entry.record(change)
        yield self._committer.stored_or_refused(change)
        if command is not None and unit.rolling is not None:
            return refused(409, f"a rolling restart of {unit.name} is in progress")
        change = self._committer.change()
        if command is not None:  # a restart, which has no wanted state of its own
            _remember(unit, command, change)
            entry.record(change)
        verb.acts(unit, change, request)
        yield self._committer.stored(change)
        return done()

    @operation(_Unit)
    def service_stop(self, request: _Unit, entry: RequestEntry) -> Procedure[Answer]:
        """Stop all instances of a service."""
        unit = self._unit(_SERVICES, request)
        change = self._committer.change()
        entry.record(change)
        yield from self._stop([unit], request, change)
        return done()

    @operation(_Acknowledgement)
    def acknowledge(self, request: _Acknowledgement, entry: RequestEntry) -> Procedure[Answer]:
        """Store that a person knows of a unit's present failure: the failed run, or that the service is flapping."""
        unit = self._unit(ANY, request)
        change = self._committer.change()
        for_ms = request.for_ms
        acknowledged = {
            "run": request.run,
            "flapping_since": unit.flapping_since,
            "at": change.now_ms,
            "until": None if for_ms is None else change.now_ms + for_ms,
            "by": request.by,
            "note": request.note,
        }
        if request.public and request.note:
            publish_note(unit, request.note, change)
        return self._store_acknowledged(unit, json.dumps(acknowledged), change, entry)

    @operation(_Unit)
    def unacknowledge(self, request: _Unit, entry: RequestEntry) -> Procedure[Answer]:
        """Withdraw a unit's acknowledgement; this ends its incident on the public status page."""
        unit, change = self._unit(ANY, request), self._committer.change()
        end_public_incident(unit, change)
        return self._store_acknowledged(unit, None, change, entry)

    def _store_acknowledged(
        self, unit: Unit, acknowledged: str | None, change: Change, entry: RequestEntry
    ) -> Procedure[Answer]:
        change.write(update_task, unit.name, acknowledged=acknowledged)
        if acknowledged is not None:
            change.write(cancel_unacked, unit.name, change.now_ms)
        entry.record(change)
        yield self._committer.stored_or_refused(change)
        return done()

    def _unit(self, kinds: Kinds, request: _Unit) -> Unit:
        unit = self._units.get(request.task)
        if unit is None:
            raise Rejected(refused(404, f'no {kinds.what} named "{request.task}"'))
        if not kinds.fits(unit.definition):
            raise Rejected(refused(409, kinds.misfit(unit.definition)))
        return unit

    @operation(_Schedule)
    def schedule(self, request: _Schedule, _entry: RequestEntry) -> Answer:
        """Answer with a task's next `count` instants, notes about clock changes and calendars, and requested runs."""
        name = request.task
        unit = self._units.get(name)
        if unit is None:
            return refused(404, f'no task named "{name}"')
        if unit.task is None:
            return refused(409, f"{name} is a service and has no schedule")
        now_ms = self._committer.change().now_ms
        instants = upcoming(unit.schedule, unit.last_instant, now_ms, request.count)
        for run in unit.waiting.values():
            if run.due is not None and run.due.kind == "at":
                at = run.due.at
                instants.append(Instant(at, unit.schedule.local(at), None, at, run=run.id))
        instants = sorted(instants, key=lambda instant: instant.starts_at)[: request.count]
        # API servers of earlier releases take the items apart.
        return done(
            items=[list(instant[:4]) for instant in instants],
            calendars=[one.calendar for one in instants],
            params=[shown_params(unit.task, one.params) for one in instants],
            runs=[one.run for one in instants],
            windows=[one.window for one in instants],
            deadlines=[None if one.run else unit.schedule.deadline(one.at) for one in instants],
        )

    # Many units.

    @operation(_Units)
    def units(self, request: _Units, entry: RequestEntry) -> Procedure[Answer]:
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
            kinds = verb.kinds if verb is not None else _DISABLABLE if request.disable else ANY
            chosen = select(definitions, selector, kinds)
        except NotSelected as err:
            raise Rejected(refused(err.status, str(err), err.errors)) from err
        units = [self._units[definition.name] for definition in chosen]
        if verb is None:
            return self._stop_many(units, request, entry)
        self._reject_at_the_end(verb)
        return self._carry_out(verb, units, request, entry)

    def _carry_out(
        self, verb: _UnitVerb, units: Sequence[Unit], request: _Units, entry: RequestEntry
    ) -> Procedure[Answer]:
        command = request.command
        restarts = verb is self._verbs["restart"]
        repeated = [unit for unit in units if unit.last_command == command]
        disabled = [unit for unit in units if verb.starts and not request.enable and unit.withheld is not None]
        new = [
            unit
            for unit in units
            if unit.last_command != command and unit not in disabled and verb.changes(unit, request)
        ]
        results = {unit.name: [verb.result, _live_runs(unit) if restarts else []] for unit in (*repeated, *new)}
        results |= {unit.name: [_DISABLED, []] for unit in disabled}
        if not new:
            return done(units=_answer(units, results))
        change = self._committer.change()
        for unit in new:
            change.write(verb.stores(unit, change, request))
            # If this scheduler dies before the effect, the next one carries it out from the wanted state. A restart has
            # no wanted state of its own, so its id and its audit entry are stored only with the effect.
            if not restarts:
                change.write(_stored_command(unit, command))
        if not restarts:
            _record(entry, change, units, results, request.note)
        yield self._committer.stored_or_refused(change)
        change = self._committer.change()
        for unit in new:
            if not unit.configured:  # a reload removed it while the wanted state was stored
                results.pop(unit.name)
            elif restarts and unit.rolling is not None:
                results[unit.name] = [_BUSY, []]
            else:
                _remember(unit, command, change)
                verb.acts(unit, change, request)
        _record(entry, change, units, results, request.note)
        yield self._committer.stored(change)
        return done(units=_answer(units, results))

    def _stop_many(self, units: Sequence[Unit], request: _Units, entry: RequestEntry) -> Procedure[Answer]:
        """Stop the selected services, and all unfinished runs of the selected tasks."""
        command = request.command
        changed = [unit for unit in units if unit.last_command == command or request.disable or _would_stop(unit)]
        results = {unit.name: ["stopped" if unit in changed else _UNCHANGED, _live_runs(unit)] for unit in units}
        change = self._committer.change()
        for unit in changed:
            _remember(unit, command, change)
        _record(entry, change, units, results, request.note)
        yield from self._stop(units, request, change)
        return done(units=_answer(units, results))

    # Effects.

    def _start(self, unit: Unit, change: Change, request: _Unit | _Units) -> None:
        if isinstance(request, _Units) and request.enable:
            self._withhold(unit, None, change)
        self._controller.start(unit, change)

    def _restart(self, unit: Unit, change: Change, request: _Restart | _Units) -> None:
        if request.rolling:
            self._controller.roll(unit, change)
        else:
            self._controller.restart(unit, change, by=request.by)

    def _pause(self, unit: Unit, change: Change, request: _Unit | _Units) -> None:
        unit.paused = True
        self._withhold(unit, _withheld_by(request, change), change)
        self._scheduled_starts.pause(unit, change)

    def _resume(self, unit: Unit, change: Change, _request: object) -> None:
        if unit.paused and unit.configured:  # a reload may have removed it
            unit.paused, unit.withheld = False, None
            self._scheduled_starts.resume(unit, change)

    def _enable(self, unit: Unit, change: Change, _request: object) -> None:
        self._withhold(unit, None, change)

    def _withhold(self, unit: Unit, withheld: Withheld | None, change: Change) -> None:
        unit.withheld = withheld
        change.write(update_task, unit.name, withheld=_text(withheld))
        self._controller.dependency_gate.check_dependents(unit, change)  # their details name it

    def _stop(self, units: Sequence[Unit], request: _Unit | _Units, change: Change) -> Procedure[None]:
        """Stop units at once, store it with `change`, and wait until the answer may be sent."""
        self._end(units, request, change)
        if not self._committer.storing:  # no start is pending, because those are refused meanwhile
            self._committer.commit(change)
            return
        yield self._committer.stored(change)
        started = [unit for unit in units if unit.service is not None and not unit.stopped and unit.configured]
        if started:  # an earlier start request took effect in between; stop again
            change = self._committer.change()
            self._end(started, request, change)
            yield self._committer.stored(change)

    def _end(self, units: Sequence[Unit], request: _Unit | _Units, change: Change) -> None:
        by, force = request.by, isinstance(request, _Units) and request.force
        services = [unit for unit in units if unit.service is not None]
        if isinstance(request, _Units) and request.disable:
            for unit in services:
                self._withhold(unit, _withheld_by(request, change), change)
        if force:
            for unit in services:
                self._controller.stop(unit, change, by=by)
        else:
            self._controller.stop_in_order(services, change, by=by)
        for unit in units:
            if force or unit.task is not None:
                for run in _unfinished(unit):
                    self._stop_run(run, change, by=by, force=force)

    def _reject_at_the_end(self, verb: _UnitVerb) -> None:
        if verb.starts and self._daemon.ending:
            raise Rejected(shutting_down())


def shown_params(task: Task, params: Mapping[str, str]) -> dict[str, str]:
    """Return values of parameters of a task, without those that are secret."""
    secret = {param.name for param in task.params if param.secret}
    return {name: "***" if name in secret else value for name, value in params.items()}


class _PauseOfAll(Arguments):
    by: str
    until: Number | None = None
    note: str | None = None


class _Resumption(Arguments):
    by: str


class DaemonPause:
    """Pauses and resumes the schedules of all tasks together.

    Args:
        stored: the stored pause; None if there is none.
    """

    def __init__(
        self, core: Core, scheduled_starts: ScheduledStarts, units: Mapping[str, Unit], stored: object
    ) -> None:
        self._loop, self._committer, self._daemon = core.loop, core.committer, core.daemon
        self._scheduled_starts = scheduled_starts
        self._units = units
        self._pause = None if stored is None else msgspec.convert(stored, Withheld)
        self._timer: Timer | None = None
        self._daemon.paused = self._pause is not None

    @property
    def pause(self) -> Withheld | None:
        """The pause; None if there is none."""
        return self._pause

    def lift(self) -> bool:
        """End the pause if its time has passed, or wait for that; return whether it ended.

        The schedules count from its end, so the usual rules apply to instants since then.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pause = self._pause
        if pause is None or pause.until is None:
            return False
        if pause.until > self._loop.now_ms():
            self._timer = self._loop.at(pause.until, self._go_on)
            return False
        for unit in self._units.values():
            self._scheduled_starts.end_pause(unit, pause.until)
        self._pause, self._daemon.paused = None, False
        with self._committer.changing() as change:
            self._store(None, change)
        return True

    def _go_on(self) -> None:
        if not self._daemon.ending and self.lift():
            self._scheduled_starts.start(self._units.values())

    @operation(_PauseOfAll)
    def daemon_pause(self, request: _PauseOfAll, entry: RequestEntry) -> Procedure[Answer]:
        """Pause all schedules, perhaps until a time; another pause replaces the first."""
        change = self._committer.change()
        pause = Withheld(by=request.by, at=change.now_ms, until=request.until, note=request.note)
        self._store(pause, change)
        entry.record(change, lambda: request.note or "")
        yield self._committer.stored_or_refused(change)
        self._pause, self._daemon.paused = pause, True
        change = self._committer.change()
        for unit in self._units.values():
            if unit.task is not None:
                self._scheduled_starts.pause(unit, change)
        yield self._committer.stored(change)
        self.lift()
        return done()

    @operation(_Resumption)
    def daemon_resume(self, request: _Resumption, entry: RequestEntry) -> Procedure[Answer]:
        """Resume all schedules that are not paused themselves, from now on."""
        change = self._committer.change()
        # A scheduler that dies before the effect leaves a pause that is over, which the next one ends.
        pause = Withheld(by=request.by, at=change.now_ms, until=change.now_ms)
        self._store(pause, change)
        entry.record(change)
        yield self._committer.stored_or_refused(change)
        self._pause = pause
        self._go_on()
        return done()

    def _store(self, pause: Withheld | None, change: Change) -> None:
        change.write(_store_pause, pause)


def _store_pause(db: Database, pause: Withheld | None) -> None:
    set_meta(db, PAUSE, None if pause is None else msgspec.to_builtins(pause))


def _would_start(unit: Unit, _request: object) -> bool:
    """Return whether a start would change an instance; an instance that waits for dependencies keeps waiting."""
    return unit.stopped or any(
        instance.state is not State.HELD and step(instance.state, Event.UP)[0] is not instance.state
        for instance in unit.instances
    )


def _always(_unit: Unit, _request: object) -> bool:
    return True


def _is_withheld(unit: Unit, _request: object) -> bool:
    return unit.withheld is not None


def _would_pause(unit: Unit, request: _Unit | _Units) -> bool:
    return not unit.paused or request.until is not None or request.note is not None


def _would_resume(unit: Unit, _request: object) -> bool:
    return unit.paused


def _withheld_by(request: _Unit | _Units, change: Change) -> Withheld:
    return Withheld(by=request.by, at=change.now_ms, until=request.until, note=request.note)


def _text(withheld: Withheld | None) -> str | None:
    return None if withheld is None else msgspec.json.encode(withheld).decode()


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


def _store_started(unit: Unit, _change: Change, _request: object) -> Write:
    return lambda db: update_task(db, unit.name, stopped=False, withheld=None)


def _store_enabled(unit: Unit, _change: Change, _request: object) -> Write:
    return partial(update_task, name=unit.name, withheld=None)


def _store_paused(unit: Unit, change: Change, request: _Unit | _Units) -> Write:
    return partial(update_task, name=unit.name, paused=True, withheld=_text(_withheld_by(request, change)))


def _store_resumed(unit: Unit, change: Change, _request: object) -> Write:
    now_ms = change.now_ms - unit.schedule.offset_ms

    def store(db: Database) -> None:
        record = get_task(db, unit.name)
        if record is not None and record.paused:
            update_task(db, unit.name, paused=False, withheld=None, last_instant=max(record.last_instant or 0, now_ms))

    return store


def _remember(unit: Unit, command: str, change: Change) -> None:
    unit.last_command = command
    change.write(_stored_command(unit, command))


def _stored_command(unit: Unit, command: str) -> Write:
    return lambda db: update_task(db, unit.name, last_restart=command)


def _record(
    entry: RequestEntry, change: Change, units: Iterable[Unit], results: dict[str, list[Any]], note: str | None
) -> None:
    """Add the request to the audit log, with the units that it changes; unless it changes none."""
    unaffected = (_UNCHANGED, _BUSY, _DISABLED)
    changed = [name for name, result, _runs in _answer(units, results) if result not in unaffected]
    if changed:
        effect = counted_with_names(changed, "unit") + (f": {note}" if note else "")
        entry.record(change, lambda: effect)


def _answer(units: Iterable[Unit], results: dict[str, list[Any]]) -> list[list[Any]]:
    """Return name, result and runs of each unit that is still configured or was changed."""
    return [
        [unit.name, *results.get(unit.name, [_UNCHANGED, []])]
        for unit in units
        if unit.configured or unit.name in results
    ]
