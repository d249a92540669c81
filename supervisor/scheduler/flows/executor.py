"""The executor of flows: it makes the runs of steps, decides about steps, and ends the runs of flows.

What follows from the end of a run is part of the same change, so a scheduler that dies at any time loses no step and
begins none twice.
"""

from collections.abc import Collection, Mapping
from functools import partial
from itertools import product
from typing import Any, Protocol

import msgspec

from store.runs.flows import Flow, FlowStep, forget_repeated, put_flow, put_graph, put_step, repeated_by
from store.runs.writes import Run, update_run
from supervisor.config.model import Task
from supervisor.config.value_records import Reference, Step, Template
from supervisor.ipc.messages import Exited
from supervisor.schedule.flow_graph import FLOW_STOPPED, TIMEOUT, UPSTREAM, Decision, Phase, advance, worst
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.flows.open_flows import (
    Item,
    OpenFlow,
    StepEnd,
    StoredFlows,
    decision_of,
    graph_text,
    read_flow,
    recalled,
)
from supervisor.scheduler.flows.step_values import FlowValues, MissingValue, Place, StepResult, raw_value, resolved
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import Due, LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.run_observer import FlowRuns, StopRequest
from supervisor.scheduler.runs.run_parameters import InvalidParameters, ParameterValues, complete_values
from supervisor.scheduler.runs.run_transitions import STARTED, State

HANDLERS_MS = 600_000
"""The time that failure and end steps have together after the time limit of their flow."""
MOST_ITEMS = 256
_MOST_ITEM_BYTES = 4096

_CAUSES = {"stopped": "stop", "daemon_stopped": "shutdown", "timeout": "timeout"}
"""The causes of the ends of flow runs, by end reason; the others have none."""
REMOVED, MISSING_VALUE, FAIL_FAST = "removed", "missing_value", "fail_fast"
"""Causes of decisions, besides those of :mod:`supervisor.schedule.flow_graph`."""


class _Engine(Protocol):
    """Creates, stops and ends runs."""

    @property
    def live(self) -> Mapping[str, LiveRun]:
        """All unfinished runs by id."""

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create the first attempt of a run."""

    def started(self, run_id: str, at: int, change: Change) -> None:
        """Note that a run is active since `at` (ms since the epoch)."""

    def stop(
        self, run: LiveRun, change: Change, *, cause: str = "stop", by: str | None = None, force: bool = False
    ) -> None:
        """End a run."""

    def ended_elsewhere(self, run: LiveRun, exited: Exited, why: str | None, change: Change) -> None:
        """End the run of a flow; `why` says what failed."""


class Flows(FlowRuns):
    """Executes the runs of flows."""

    def __init__(self, core: Core, engine: _Engine, units: dict[str, Unit], stored: StoredFlows) -> None:
        """`units` are all configured units; shared, not copied."""
        self._loop = core.loop
        self._committer = core.committer
        self._procedures = core.procedures
        self._log = core.log
        self._engine = engine
        self._units = units
        self._open = {flow.run_id: recalled(stored, flow, text) for flow, text in stored.flows}
        self._early_stops: dict[str, StopRequest] = {}
        """Requests to stop flows that are about to begin, by run."""
        self._taking_over = bool(stored.flows)
        """Whether the takeover has not yet found all runs of steps."""

    # As the executor of the runs of flows.

    def executes(self, run: LiveRun) -> bool:
        """Return whether a run is that of a flow."""
        return run.id in self._open or bool(isinstance(run.definition, Task) and run.definition.steps)

    def start(self, run: LiveRun) -> None:
        """Begin a flow: its run is active at once."""
        self._procedures.start(self._start(run))

    def _start(self, run: LiveRun) -> Procedure[None]:
        assert isinstance(run.definition, Task)  # noqa: S101 - see executes
        earlier: OpenFlow | None = None
        repeated: list[str] = []
        if run.retry_of is not None:
            change = self._committer.change()
            stored, asked = change.read(read_flow, run.retry_of), change.read(repeated_by, run.id)
            yield self._committer.stored(change)
            earlier = next((recalled(stored.result, *flow) for flow in stored.result.flows), None)
            repeated = asked.result
        with self._committer.changing() as change:
            flow = self._opened(run, run.definition, earlier, repeated, change)
            self._engine.started(run.id, change.now_ms, change)
            self._arm(flow)
            if run.state is State.STOPPING:  # while the earlier attempt was read
                self.stop(run, self._early_stops.pop(run.id), change)
            self._advance(flow, change)

    def _opened(
        self, run: LiveRun, task: Task, earlier: OpenFlow | None, repeated: Collection[str], change: Change
    ) -> OpenFlow:
        """Open a flow run; an attempt has the graph of the one before, and keeps the steps that succeeded.

        It keeps nothing of `repeated` steps and of those behind them.
        """
        steps = task.steps if earlier is None else tuple(earlier.steps.values())
        graph, now_ms = graph_text([self._without_secrets(step) for step in steps]), change.now_ms
        deadline = None if task.timeout_ms is None else now_ms + task.timeout_ms
        flow = OpenFlow(Flow(run.id, graph.hash, Phase.GOING.value, deadline), steps)
        flow.run, flow.started_at, flow.earlier = run, now_ms, earlier
        flow.values = FlowValues(run.id, run.attempt, run.scheduled_at, _with_defaults(run))
        self._open[run.id] = flow
        change.write(put_graph, task_name=run.unit.name, graph=graph, now_ms=max(now_ms, run.created_at))
        self._store(flow, change)
        if earlier is not None:
            if repeated:
                change.write(forget_repeated, run_id=run.id)
            flow.keep(earlier, repeated)
            for name in flow.decisions:
                row = FlowStep(run.id, name, Decision.SUCCEEDED.value, decided_at=now_ms)
                self._put_step(flow, row, change)
        return flow

    def _secret_params(self, step: Step) -> dict[str, Template]:
        """Return the texts that a step has for secret parameters of its task."""
        unit = self._units.get(step.unit) if step.params else None
        params = () if unit is None or unit.task is None else unit.task.params
        found = {param.name: step.params.get(param.name, ()) for param in params if param.secret}
        return {name: value for name, value in found.items() if value and all(isinstance(part, str) for part in value)}

    def _without_secrets(self, step: Step) -> Step:
        """Return a step as the database may have it; the next scheduler takes its secrets from the configuration."""
        hidden = self._secret_params(step)
        left = {name: value for name, value in step.params.items() if name not in hidden}
        return msgspec.structs.replace(step, params=left) if hidden else step

    def _recall_secrets(self, flow: OpenFlow) -> None:
        task = None if flow.run is None else flow.run.unit.task
        for step in () if task is None else task.steps:
            known = flow.steps.get(step.name)
            if known is not None and known.unit == step.unit and (hidden := self._secret_params(step)):
                flow.steps[step.name] = msgspec.structs.replace(known, params={**hidden, **known.params})

    def stop(self, run: LiveRun, request: StopRequest, change: Change) -> None:
        """Stop all runs of a flow, and begin nothing more. A shutdown stops the runs itself: the flow goes on later."""
        flow = self._open.get(run.id)
        if request.cause == "shutdown":
            return
        if flow is None:
            self._early_stops[run.id] = request
            return
        is_over = request.cause == TIMEOUT and flow.phase is not Phase.STOPPED
        self._enter(flow, Phase.OVER if is_over else Phase.STOPPED, change, by=request.by)
        for inner in [] if is_over else list(flow.going.values()):
            self._stop_run(inner, change, request.cause, request.by, force=request.force)
        self._advance(flow, change)

    def has_decided(self, run: LiveRun) -> bool:
        """Return whether the step of a run needs no further attempt, because its flow was stopped or is out of time."""
        flow = None if run.place is None else self._open.get(run.place.flow_run_id)
        if flow is None or run.place is None:
            return run.place is not None
        return flow.phase is Phase.STOPPED or flow.decisions.get(run.place.step) is not None

    # As a part of the takeover.

    def place_of(self, row: Run) -> Place | None:
        """Return the place of a stored run in its flow; None if it has none."""
        if row.flow_run_id is None or row.step is None:
            return None
        flow = self._open.get(row.flow_run_id)
        if flow is None or row.step not in flow.steps:
            return Place(row.flow_run_id, row.step, row.item, FlowValues(row.flow_run_id, 0, None, ParameterValues()))
        return flow.place(row.step, flow.item_named(row.step, row.item))

    def adopt(self, run: LiveRun) -> None:
        """Take over an unfinished run, of a flow or of a step."""
        flow = self._open.get(run.id)
        if flow is not None:
            flow.run = run
            flow.values.attempt, flow.values.scheduled_at, flow.values.params = (
                run.attempt,
                run.scheduled_at,
                run.params,
            )
        outer = None if run.place is None else self._open.get(run.place.flow_run_id)
        if outer is not None:
            outer.going[run.id] = run

    def snapshot(self, row: Run) -> dict[str, Any] | None:
        """Return the state of the run of a flow, as the root's snapshot has it for others; None for another run."""
        flow = self._open.get(row.id)
        if flow is None:
            return None
        flow.started_at = row.started_at or row.created_at
        stopped = flow.phase is Phase.STOPPED
        return {"started_at": flow.started_at, "cause": "stop" if stopped else None, "by": flow.stored.stopped_by}

    def forget(self, run_id: str) -> None:
        """Forget a flow run that ends as crashed."""
        self._open.pop(run_id, None)

    def resume(self, change: Change) -> None:
        """Let all flows go on, now that all runs are known; stop runs whose flow has ended as crashed."""
        self._taking_over = False
        for run in list(self._engine.live.values()):
            if run.place is not None and run.place.flow_run_id not in self._open:
                self._engine.stop(run, change, by="its flow has ended")
        for flow in list(self._open.values()):
            self._recall_secrets(flow)
            for run in flow.going.values():
                if run.state not in STARTED and run.place is not None and isinstance(run.definition, Task):
                    run.place, _ = _prepared(run.definition, flow.steps[run.place.step], run.place)
            for run in flow.going.values():  # the retry of an item that has not ended
                if run.place is not None:
                    flow.item_decisions[run.place.step].pop(run.place.item or "", None)
            self._arm(flow)
            for step in flow.items:
                self._begin_items(flow, flow.steps[step], change)
            self._advance(flow, change)

    # Steps.

    def step_ended(self, run: LiveRun, verdict: Verdict, again: LiveRun | None, change: Change) -> None:
        """Let the flow of a run go on after its end."""
        place = run.place
        flow = None if place is None else self._open.get(place.flow_run_id)
        if flow is None or place is None:
            return
        flow.going.pop(run.id, None)
        if again is not None:
            flow.going[again.id] = again
            return
        flow.values.results[place.step, place.item] = StepResult(
            verdict.exit_code, run.outputs.values, run.outputs.withheld
        )
        if flow.decisions.get(place.step) is None:
            step = flow.steps[place.step]
            removed = not run.unit.configured and run.state is State.ENDED and verdict.reason == "stopped"
            decided = StepEnd(Decision.FAILED, REMOVED) if removed else decision_of(verdict, step)
            if decided.cause is None and verdict.reason == "stopped" and flow.phase is Phase.STOPPED:
                decided = StepEnd(decided.decision, FLOW_STOPPED)
                change.write(update_run, run_id=run.id, cause=FLOW_STOPPED)
            decided = msgspec.structs.replace(decided, run_id=run.id, verdict=verdict)
            self._run_decided(flow, step, place.item, decided, change)
        self._advance(flow, change)

    def _run_decided(self, flow: OpenFlow, step: Step, item: str | None, decided: StepEnd, change: Change) -> None:
        """Note the result of a step's run; decide the step if it was the last one."""
        if decided.decision is Decision.FAILED:
            self._note_failure(flow, step.name, decided, change)
        if item is None:
            self._decide(flow, step.name, decided, change)
            return
        flow.item_decisions[step.name][item] = decided.decision
        self._begin_items(flow, step, change)

    def _note_failure(self, flow: OpenFlow, step: str, decided: StepEnd, change: Change) -> None:
        """Remember the step that failed first."""
        if flow.stored.failed_step is None:
            flow.failure = decided.verdict
            flow.stored = flow.stored._replace(failed_step=step, failed_run_id=decided.run_id)
            self._store(flow, change)

    def _decide(self, flow: OpenFlow, name: str, decided: StepEnd, change: Change) -> None:
        """Store the decision about a step; stop its runs, if any are left."""
        flow.decisions[name], flow.causes[name] = decided.decision, decided.cause
        if decided.decision is Decision.FAILED and decided.cause not in (None, UPSTREAM):
            self._note_failure(flow, name, decided, change)
        row = FlowStep(flow.stored.run_id, name, decided.decision.value, decided.cause, decided_at=change.now_ms)
        self._put_step(flow, row, change)
        self._announce(flow, name, decided.decision.value, decided.cause, change)
        for run in flow.runs_of(name):
            self._stop_run(run, change, TIMEOUT, f"timeout of {self._name(flow)}")

    def _advance(self, flow: OpenFlow, change: Change) -> None:
        """Carry out what follows from the decisions about the steps; end the flow after its last run."""
        if flow.is_advancing or self._taking_over:
            return
        flow.is_advancing = True
        coming = advance(flow.graph, flow.decisions, flow.phase)
        while coming.begin or coming.decide:
            for name, decided in coming.decide.items():
                self._decide(flow, name, StepEnd(decided.decision, decided.cause), change)
            for name in coming.begin:
                self._begin(flow, flow.steps[name], change)
            coming = advance(flow.graph, flow.decisions, flow.phase)
        flow.is_advancing = False
        if coming.end is not None and not flow.going and self._open.pop(flow.stored.run_id, None) is not None:
            self._end(flow, coming.end, change)

    def _begin(self, flow: OpenFlow, step: Step, change: Change) -> None:
        """Make the first runs of a step."""
        flow.decisions[step.name] = None
        if not step.each:
            self._store_begin(flow, step, change)
            self._create_run(flow, step, None, change)
            return
        try:
            if step.name not in flow.items:
                flow.set_items(step.name, _items_of(step, flow.place(step.name)))
        except MissingValue as err:
            self._log.warning(f"{self._name(flow)}: step {step.name} cannot begin: {err}")
            self._decide(flow, step.name, StepEnd(Decision.FAILED, MISSING_VALUE), change)
            return
        self._store_begin(flow, step, change)
        self._begin_items(flow, step, change)

    def _store_begin(self, flow: OpenFlow, step: Step, change: Change) -> None:
        self._put_step(flow, FlowStep(flow.stored.run_id, step.name, began_at=change.now_ms), change)
        self._announce(flow, step.name, "begun", None, change)

    def _begin_items(self, flow: OpenFlow, step: Step, change: Change) -> None:
        """Make runs for more items of a step, or decide it after the last one."""
        if self._taking_over or flow.decisions[step.name] is not None:
            return
        decisions, waiting = flow.item_decisions[step.name], flow.waiting_items(step.name)
        ends_early = flow.phase is Phase.STOPPED
        if step.fail_fast and Decision.FAILED in decisions.values():
            ends_early = True
            for run in flow.runs_of(step.name):
                self._stop_run(run, change, FAIL_FAST, FAIL_FAST)
        if waiting and not ends_early:
            going = len(flow.runs_of(step.name))
            room = len(waiting) if step.each_max is None else max(0, step.each_max - going)
            for item in waiting[:room]:
                self._create_run(flow, step, item, change)
        elif not flow.runs_of(step.name) and flow.decisions[step.name] is None:
            left = [Decision.STOPPED] if waiting else []
            self._decide(flow, step.name, StepEnd(worst([*decisions.values(), *left])), change)

    def _create_run(self, flow: OpenFlow, step: Step, item: Item | None, change: Change) -> None:
        """Make the run of a step or item; if its task is gone, it has failed."""
        unit, outer = self._units.get(step.unit), flow.run
        task = None if unit is None else unit.task
        if unit is None or task is None or outer is None:
            decided = StepEnd(Decision.FAILED, REMOVED)
            self._run_decided(flow, step, None if item is None else item.name, decided, change)
            return
        place, params = _prepared(task, step, flow.place(step.name, item))
        before = flow.run_to_continue(task, place)
        request = RunRequest(
            retry_of=None if before is None else before.id,
            attempt=0 if before is None else before.retry_attempt + 1,
            trigger=outer.trigger,
            by=outer.by,
            files=outer.files,
            params=params,
            place=place,
            needs_approval=step.needs_approval,
            due=Due("delay", change.now_ms + step.delay_ms) if step.delay_ms else None,
        )
        run = self._engine.create_task_run(unit, task, change, request)
        flow.going[run.id] = run

    def _stop_run(self, run: LiveRun, change: Change, cause: str, by: str | None, *, force: bool = False) -> None:
        """Stop the run of a step; one that has no process yet gets the cause that the root does not know."""
        if run.state in STARTED:
            cause = TIMEOUT if cause == TIMEOUT else "stop"
        elif cause != FAIL_FAST:
            cause = FLOW_STOPPED
        self._engine.stop(run, change, cause=cause, by=by, force=force)

    # Phases and ends.

    def _enter(self, flow: OpenFlow, phase: Phase, change: Change, by: str | None = None) -> None:
        deadline = change.now_ms + HANDLERS_MS if phase is Phase.TIMED_OUT else None
        flow.stored = flow.stored._replace(
            phase=phase.value, deadline=deadline, stopped_by=flow.stored.stopped_by if by is None else by
        )
        self._store(flow, change)
        self._arm(flow)

    def _arm(self, flow: OpenFlow) -> None:
        """Set the timer of the present phase, a time of the wall clock."""
        if flow.timer is not None:
            flow.timer.cancel()
        deadline = flow.stored.deadline
        flow.timer = None if deadline is None else self._loop.at(deadline, partial(self._out_of_time, flow))

    def _out_of_time(self, flow: OpenFlow) -> None:
        with self._committer.changing() as change:
            self._log.warning(f"{self._name(flow)} {flow.stored.run_id}: out of time")
            self._enter(flow, Phase.TIMED_OUT if flow.phase is Phase.GOING else Phase.OVER, change)
            self._advance(flow, change)

    def _end(self, flow: OpenFlow, reason: str, change: Change) -> None:
        if flow.timer is not None:
            flow.timer.cancel()
        if flow.run is None:
            return
        exited = Exited(
            run=flow.run.id,
            status=(0 if reason == "succeeded" else flow.exit_code) << 8,
            cause=_CAUSES.get(reason),
            by=flow.stored.stopped_by,
            started_at=flow.started_at,
            ended_at=max(change.now_ms, flow.started_at),
        )
        self._engine.ended_elsewhere(flow.run, exited, None if reason == "succeeded" else flow.why, change)

    @staticmethod
    def _store(flow: OpenFlow, change: Change) -> None:
        change.write(put_flow, flow=flow.stored)

    @staticmethod
    def _put_step(flow: OpenFlow, row: FlowStep, change: Change) -> None:
        items = msgspec.json.encode(flow.items[row.step]).decode() if row.step in flow.items else None
        change.write(put_step, step=row._replace(items=items, from_run_id=flow.kept_from.get(row.step)))

    @staticmethod
    def _name(flow: OpenFlow) -> str:
        return "" if flow.run is None else flow.run.unit.name

    def _announce(self, flow: OpenFlow, step: str, state: str, cause: str | None, change: Change) -> None:
        body: dict[str, object] = {
            "runId": flow.stored.run_id,
            "taskName": self._name(flow),
            "step": step,
            "state": state,
        }
        change.announce("flow.step", body if cause is None else {**body, "cause": cause})


def _with_defaults(run: LiveRun) -> ParameterValues:
    """Return the parameter values of a flow run, with the defaults of secret parameters, which are not kept."""
    params = run.definition.params if isinstance(run.definition, Task) else ()
    defaults = {param.name: param.default for param in params if param.secret and param.default is not None}
    return ParameterValues(run.params.shown, {**defaults, **run.params.secret})


def _prepared(task: Task, step: Step, place: Place) -> tuple[Place, ParameterValues]:
    """Return the place and the parameters of a run; the place says why the run cannot start, if so."""
    try:
        given = {name: resolved(template, place) for name, template in step.params.items()}
        return place, complete_values(task, given)
    except (MissingValue, InvalidParameters) as err:
        return msgspec.structs.replace(place, refusal=str(err)), ParameterValues()


def _items_of(step: Step, place: Place) -> list[Item]:
    """Return the items of a step: one for each combination of the values of ``each``.

    Raises:
        MissingValue: a list has no value, or is not a list of short texts; or there are too many items.
    """
    lists = {name: _list_of(values, name, place) for name, values in step.each.items()}
    items: dict[str, Item] = {}
    for combination in product(*lists.values()):
        name = base = ",".join(combination)
        number = 1
        while name in items:
            number += 1
            name = f"{base}#{number}"
        items[name] = Item(name, dict(zip(lists, combination, strict=True)))
        if len(items) > MOST_ITEMS:
            raise MissingValue(f"each has more than {MOST_ITEMS} items")
    return list(items.values())


def _list_of(values: Any, name: str, place: Place) -> list[str]:
    if not isinstance(values, Reference):
        return [resolved(template, place) for template in values]
    try:
        found = raw_value(values, place)
    except KeyError as err:
        if values.default is None:
            raise MissingValue(f"each.{name}: step {values.name} has no {values.key}") from err
        found = values.default
    if isinstance(found, str):
        try:
            found = msgspec.json.decode(found)
        except msgspec.DecodeError as err:
            raise MissingValue(f"each.{name}: {values.key} is not a list") from err
    short = isinstance(found, list) and all(
        isinstance(one, str) and len(one.encode()) <= _MOST_ITEM_BYTES for one in found
    )
    if not short:
        raise MissingValue(f"each.{name}: {values.key} is not a list of texts of at most {_MOST_ITEM_BYTES} bytes")
    return list(found)
