"""Handlers for flows: the steps of a run."""

from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import integer
from api.resources.runs.runs import details_of, the_run
from api.schemas import run_view
from api.schemas.records import RunDetails
from api.schemas.run_details import FlowSteps, RecentSteps, StepOfRun, StepRun, StepsOfRun
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.worker_context import Context
from store import tasks as store_tasks
from store.database import Database
from store.runs import flows as store_flows
from store.runs import run_pages
from store.runs.definitions import get_definition
from store.runs.filter import RunFilter
from store.runs.record import Run
from store.tasks import TaskRecord


class _GraphStep(Struct):
    """A step of a stored graph, without the values of its parameters and lists."""

    name: str
    unit: str
    after: list[str]
    when: str
    optional: bool = False
    delay_ms: int = 0


class _StoredGraph(Struct):
    steps: list[_GraphStep]


class _StoredSteps(NamedTuple):
    """What the database has about the steps of a run."""

    graph: list[_GraphStep]
    flow: store_flows.Flow | None
    steps: dict[str, store_flows.FlowStep]
    runs: list[Run]
    outputs: dict[str, dict[str, Any]]


@Operation("GET", "/api/runs/{runId}/steps", role=Role.VIEWER, answers={200: json_of(FlowSteps)}, refusals=(404, 409))
def list_run_steps(context: Context, call: Call) -> None:
    """List the steps of a run of a flow: what was decided about each, and their runs."""
    run = the_run(context, call.path["runId"])
    stored = context.reads(_stored, run)
    if stored is None:
        raise ApiError(409, f"{run.task_name} is no flow, so this run has no steps")
    details = details_of(context, call, stored.runs)
    layers: dict[str, int] = {}
    steps = []
    for step in stored.graph:
        layers[step.name] = max((layers[name] + 1 for name in step.after), default=0)
        steps.append(_step(step, layers[step.name], run, stored, details))
    flow = stored.flow
    call.answer(
        FlowSteps(
            run=run_view.camel(run),
            failed_step=UNSET if flow is None else flow.failed_step or UNSET,
            failed_run_id=UNSET if flow is None else flow.failed_run_id or UNSET,
            steps=steps,
        )
    )


@Operation(
    "GET",
    "/api/tasks/{taskName}/steps",
    role=Role.VIEWER,
    query=(integer("limit", "Maximum number of runs.", 30, minimum=1, maximum=100),),
    answers={200: json_of(RecentSteps)},
    refusals=(404, 409),
    tag="tasks",
)
def list_flow_steps(context: Context, call: Call) -> None:
    """List what was decided about the steps of a flow in its newest runs."""
    name = call.path["taskName"]
    graph, runs = context.pages(_recent, name, call.query["limit"])
    items = [StepsOfRun(run=run_view.camel(run), steps=steps) for run, steps in runs]
    call.answer(RecentSteps(steps=[step.name for step in graph], items=items))


def _recent(db: Database, name: str, limit: int) -> tuple[list[_GraphStep], list[tuple[Run, dict[str, str]]]]:
    """Return the configured steps of a flow, and its newest runs with the states of their steps."""
    record = store_tasks.get_task(db, name)
    if record is None:
        raise ApiError(404, f'No task named "{name}"')
    graph = _configured(record)
    if not graph:
        raise ApiError(409, f"{name} is no flow, so it has no steps")
    page, _total = run_pages.list_runs(db, RunFilter(task=name), limit=limit, now_ms=0)
    found = [(run, store_flows.get_flow(db, run.id)) for run in page]
    return graph, [
        (run, {} if known is None else {step.step: step.decision or "running" for step in known[1]})
        for run, known in found
    ]


def _configured(record: TaskRecord) -> list[_GraphStep]:
    steps = msgspec.json.decode(record.definition).get("steps", [])
    return _in_order([msgspec.convert({**step, "unit": step["task"]}, _GraphStep) for step in steps])


def _stored(db: Database, run: Run) -> _StoredSteps | None:
    """Return what is stored about the steps of a run; None if it is no run of a flow."""
    found = store_flows.get_flow(db, run.id)
    if found is None:  # it has not begun
        record = store_tasks.get_task(db, run.task_name)
        steps = [] if record is None else _configured(record)
        return _StoredSteps(steps, None, {}, [], {}) if steps else None
    flow, known = found
    text = get_definition(db, run.task_name, flow.graph)
    graph = [] if text is None else msgspec.json.decode(text, type=_StoredGraph).steps
    kept = {step.from_run_id for step in known if step.from_run_id is not None}
    runs = [run for run in store_flows.runs_of(db, {run.id, *kept}) if run.deleted_at is None]
    outputs = store_flows.outputs_of(db, [run.id for run in runs])
    return _StoredSteps(_in_order(graph), flow, {step.step: step for step in known}, runs, outputs)


def _in_order(graph: list[_GraphStep]) -> list[_GraphStep]:
    """Return steps, each behind those that it waits for."""
    done: dict[str, _GraphStep] = {}
    rest = graph
    while ready := [step for step in rest if done.keys() >= set(step.after)]:
        done |= {step.name: step for step in ready}
        rest = [step for step in rest if step.name not in done]
    return [*done.values()]


def _step(
    step: _GraphStep, layer: int, flow_run: Run, stored: _StoredSteps, details: dict[str, RunDetails]
) -> StepOfRun:
    known = stored.steps.get(step.name, store_flows.FlowStep(flow_run.id, step.name))
    source = known.from_run_id or flow_run.id
    runs = [run for run in stored.runs if run.step == step.name and run.flow_run_id == source]
    state = known.decision
    if state is None and runs:
        state = "running" if any(run.status == "running" for run in runs) else "pending"
    return StepOfRun(
        name=step.name,
        task=step.unit,
        after=step.after,
        when=step.when,
        optional=step.optional or UNSET,
        delay_ms=step.delay_ms or UNSET,
        state=state or "waiting",
        cause=known.cause or UNSET,
        layer=layer,
        began_at=known_rfc3339(known.began_at),
        decided_at=known_rfc3339(known.decided_at),
        kept_from=known.from_run_id or UNSET,
        runs=[_run(run, details[run.id], stored.outputs.get(run.id)) for run in runs],
    )


def _run(run: Run, details: RunDetails, outputs: dict[str, Any] | None) -> StepRun:
    return StepRun(
        id=run.id,
        task_name=run.task_name,
        item=run.item or UNSET,
        retry_attempt=run.retry_attempt,
        status=run.status,
        end_reason=run.end_reason or UNSET,
        end_cause=run.cause or UNSET,
        exit_code=run.exit_code,
        created_at=rfc3339(run.created_at),
        started_at=known_rfc3339(run.started_at),
        ended_at=known_rfc3339(run.ended_at),
        waiting_for=details.waiting_for or UNSET,
        approval=details.approval,
        outputs=outputs or UNSET,
    )
