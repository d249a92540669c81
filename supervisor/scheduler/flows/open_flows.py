"""Flow runs that have begun and not ended: their memory, which equals their rows, and how it is read at a start."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct

from store.database import Database
from store.runs import flows as store_flows
from store.runs.definitions import Definition
from store.runs.flows import Flow, FlowStep
from store.runs.phases import FAILURES
from store.runs.writes import Run
from supervisor.config.model import Task
from supervisor.config.value_records import Step
from supervisor.schedule.flow_graph import Decision, Phase, in_order, kept, reachable
from supervisor.scheduler.flows.step_values import FlowValues, Place, StepResult
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_parameters import NOTHING

_HASH_DIGITS = 32
_HOW = {
    "removed": "is no longer configured",
    "timeout": "did not end in time",
    "missing_value": "has no list of items",
}
"""How a step without a failed run has failed, by the cause of the decision."""


class _Graph(Struct):
    steps: tuple[Step, ...]


class Item(Struct, frozen=True):
    """One of the runs of a step with ``each``."""

    name: str
    each: dict[str, str]


def graph_text(steps: Sequence[Step]) -> Definition:
    """Return the stored form of a graph, with its hash."""
    text = msgspec.json.encode(_Graph(tuple(steps))).decode()
    return Definition(text, hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS])


class StoredFlows(Struct, frozen=True):
    """The open flow runs in the store."""

    flows: list[tuple[Flow, str]]
    """Each with the text of its graph."""
    steps: dict[str, list[FlowStep]]
    runs: dict[str, list[Run]]
    """By flow run, like `steps`; oldest first."""
    outputs: dict[str, dict[str, object]]
    """By run."""


def read_open_flows(db: Database) -> StoredFlows:
    """Read the open flow runs, with all that their memory consists of."""
    return _with_runs(db, store_flows.open_flows(db), store_flows.steps_of_open_flows(db))


def read_flow(db: Database, run_id: str) -> StoredFlows:
    """Read a flow run that may have ended; the result is empty if it is not stored."""
    found = store_flows.get_flow(db, run_id)
    text = None if found is None else store_flows.graph_of(db, found[0])
    return _with_runs(db, [], []) if found is None or text is None else _with_runs(db, [(found[0], text)], found[1])


def _with_runs(db: Database, flows: list[tuple[Flow, str]], all_steps: list[FlowStep]) -> StoredFlows:
    steps, runs = defaultdict[str, list[FlowStep]](list), defaultdict[str, list[Run]](list)
    for step in all_steps:
        steps[step.run_id].append(step)
    kept = {step.from_run_id for step in all_steps if step.from_run_id is not None}
    if flows:
        for run in store_flows.runs_of(db, [*(flow.run_id for flow, _ in flows), *kept]):
            runs[run.flow_run_id or ""].append(run)
    ended = [run.id for some in runs.values() for run in some if run.status == "ended"]
    return StoredFlows(flows, steps, runs, store_flows.outputs_of(db, ended) if ended else {})


class OpenFlow:
    """A flow run that has begun and not ended."""

    def __init__(self, stored: Flow, steps: Sequence[Step]) -> None:
        self.stored = stored
        self.graph = in_order(steps)
        self.steps = {step.name: step for step in steps}
        self.run: LiveRun | None = None
        """Its run; None until the takeover has adopted it."""
        self.started_at = 0
        self.values = FlowValues(stored.run_id, 0, None, NOTHING)
        self.decisions: dict[str, Decision | None] = {}
        """By step; None: it has begun."""
        self.causes: dict[str, str | None] = {}
        """Causes of the decisions."""
        self.items: dict[str, list[Item]] = {}
        """The items of each step that has them, in order."""
        self.item_decisions = defaultdict[str, dict[str, Decision]](dict)
        """By step and item."""
        self.kept_from: dict[str, str] = {}
        """The earlier attempt that has runs of a step, by step."""
        self.last_runs: dict[tuple[str, str | None], Run] = {}
        """The last ended run of each step and item, when the flow was read."""
        self.going: dict[str, LiveRun] = {}
        """The unfinished runs of its steps, by id."""
        self.earlier: OpenFlow | None = None
        """The attempt before, until the next restart."""
        self.is_advancing = False
        self._before: dict[str, frozenset[str]] = {}
        self.failure: Verdict | None = None
        """How the run ended that made it fail first."""
        self.timer: Timer | None = None

    @property
    def phase(self) -> Phase:
        """What it may still begin."""
        return Phase(self.stored.phase)

    @property
    def why(self) -> str | None:
        """What made it fail, in words; None if nothing did."""
        if self.stored.failed_step is None:
            return None
        step = self.stored.failed_step
        how = _HOW.get(self.causes.get(step) or "", "failed") if self.failure is None else self.failure.text
        return f"step {step} {how}"

    @property
    def exit_code(self) -> int:
        """The exit code of a flow that did not succeed."""
        return self.failure.exit_code if self.failure is not None and self.failure.exit_code > 0 else 1

    def place(self, step: str, item: Item | None = None) -> Place:
        """Return the place of a run of a step."""
        before = self._before.get(step)
        if before is None:
            before = self._before[step] = frozenset(reachable(self.graph, step))
        name, each = (None, {}) if item is None else (item.name, item.each)
        return Place(self.stored.run_id, step, name, self.values, each, before)

    def set_items(self, step: str, items: list[Item]) -> None:
        """Fix the items of a step that begins."""
        self.items[step] = items
        self.values.items[step] = [item.name for item in items]

    def keep(self, earlier: "OpenFlow", repeated: Collection[str]) -> None:
        """Take over the results of an earlier attempt: all of some steps, and the items that succeeded of others.

        Nothing is kept of `repeated` steps and of those behind them.
        """
        steps = kept(earlier.graph, earlier.decisions, repeated)
        for step in self.graph:
            is_whole = step.name in steps
            partly = step.when == "success" and step.name in earlier.items and steps.issuperset(step.after)
            if step.name in repeated or not (is_whole or partly):
                continue
            if step.name in earlier.items:
                self.set_items(step.name, earlier.items[step.name])
            done = {
                item for item, decision in earlier.item_decisions[step.name].items() if decision is Decision.SUCCEEDED
            }
            self.item_decisions[step.name] = dict.fromkeys(done, Decision.SUCCEEDED)
            for (name, item), result in earlier.values.results.items():
                if name == step.name and (is_whole or item in done):
                    self.values.results[name, item] = result
            self.kept_from[step.name] = earlier.kept_from.get(step.name, earlier.stored.run_id)
            if is_whole:
                self.decisions[step.name] = Decision.SUCCEEDED

    def run_to_continue(self, task: Task, place: Place) -> Run | None:
        """Return the run of a flow inside an earlier attempt whose next attempt a step is; None if it begins anew."""
        run = None if self.earlier is None else self.earlier.last_runs.get((place.step, place.item))
        return run if task.steps and run is not None and run.end_reason != "succeeded" else None

    def runs_of(self, step: str) -> list[LiveRun]:
        """Return the unfinished runs of a step."""
        return [run for run in self.going.values() if run.place is not None and run.place.step == step]

    def item_named(self, step: str, name: str | None) -> Item | None:
        """Return an item of a step."""
        return next((item for item in self.items.get(step, ()) if item.name == name), None)

    def waiting_items(self, step: str) -> list[Item]:
        """Return the items of a step that have no run yet."""
        begun = {run.place.item for run in self.runs_of(step) if run.place is not None}
        begun |= self.item_decisions[step].keys()
        return [item for item in self.items.get(step, ()) if item.name not in begun]


def recalled(stored: StoredFlows, flow: Flow, text: str) -> OpenFlow:
    """Return the memory of a flow run from its rows."""
    opened = OpenFlow(flow, msgspec.json.decode(text, type=_Graph).steps)
    for row in stored.steps.get(flow.run_id, ()):
        opened.decisions[row.step] = None if row.decision is None else Decision(row.decision)
        opened.causes[row.step] = row.cause
        if row.items is not None:
            opened.set_items(row.step, msgspec.json.decode(row.items, type=list[Item]))
        if row.from_run_id is not None:
            opened.kept_from[row.step] = row.from_run_id
    earlier = [run for name, run_id in opened.kept_from.items() for run in stored.runs[run_id] if run.step == name]
    for run in (*earlier, *stored.runs.get(flow.run_id, ())):
        step = opened.steps.get(run.step or "")
        if step is None or run.end_reason is None:
            continue
        opened.values.results[step.name, run.item] = StepResult(run.exit_code, stored.outputs.get(run.id, {}))
        verdict = Verdict(run.end_reason, run.exit_code, run.signal, cause=run.cause)
        if run.item is not None:
            opened.item_decisions[step.name][run.item] = decision_of(verdict, step).decision
        if run.id == flow.failed_run_id:
            opened.failure = verdict
        opened.last_runs[step.name, run.item] = run
    return opened


class StepEnd(Struct, frozen=True):
    """A decision about a step or item, from the end of its run if it had one."""

    decision: Decision
    cause: str | None = None
    run_id: str | None = None
    verdict: Verdict | None = None


def decision_of(verdict: Verdict, step: Step) -> StepEnd:
    """Return the decision about a step, or an item of it, from the end of its run."""
    if verdict.succeeded:
        return StepEnd(Decision.SUCCEEDED)
    if verdict.reason in FAILURES:
        return StepEnd(Decision.SUCCEEDED if step.optional else Decision.FAILED)
    if verdict.reason == "daemon_stopped":
        return StepEnd(Decision.INTERRUPTED)
    if verdict.reason == "stopped":
        return StepEnd(Decision.STOPPED, verdict.cause)
    return StepEnd(Decision.SUCCEEDED if step.optional else Decision.PASSED_OVER, verdict.cause)
