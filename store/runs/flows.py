"""Flows: runs whose steps are other runs, the decisions about the steps, and the values that runs write for others.

The graph of a flow run is stored once for each flow and hash, beside the definitions of tasks (store.runs.definitions).
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from store.connection import TEXTS
from store.database import Database
from store.runs.definitions import Definition, put_definition
from store.runs.phases import FIRST_ACTIVE
from store.runs.record import SELECT, Run, from_row


class Flow(NamedTuple):
    """A flow run that has begun. Times are in ms since the epoch.

    Attributes:
        run_id: Id of its run.
        graph: Hash of its graph.
        phase: What it may still begin, a name of supervisor.schedule.flow_graph.Phase.
        deadline: When this phase ends; None if it has no limit.
        stopped_by: Who stopped it, or the reason in words.
        failed_step: The step that failed first.
        failed_run_id: The run that made it fail; None if it did not begin.
    """

    run_id: str
    graph: str
    phase: str
    deadline: int | None = None
    stopped_by: str | None = None
    failed_step: str | None = None
    failed_run_id: str | None = None


class FlowStep(NamedTuple):
    """A step that has begun or is decided.

    Attributes:
        run_id: Id of the flow's run.
        step: Its name.
        decision: A name of supervisor.schedule.flow_graph.Decision; None: it has begun.
        cause: Cause of the decision, if its runs do not tell it.
        began_at: When it began; None if it did not.
        decided_at: When it was decided.
        items: JSON list of the names of its items; None if it has a single run.
        from_run_id: The flow run that has its runs, if that is an earlier attempt.
    """

    run_id: str
    step: str
    decision: str | None = None
    cause: str | None = None
    began_at: int | None = None
    decided_at: int | None = None
    items: str | None = None
    from_run_id: str | None = None


_FLOW = ", ".join(f"flows.{name}" for name in Flow._fields)
_STEP = ", ".join(f"flow_steps.{name}" for name in FlowStep._fields)
_PUT_FLOW = (
    f"INSERT INTO flows ({', '.join(Flow._fields)}) VALUES ({', '.join('?' * len(Flow._fields))})"  # noqa: S608 - constants
    " ON CONFLICT (run_id) DO UPDATE SET phase = excluded.phase, deadline = excluded.deadline,"
    " stopped_by = excluded.stopped_by, failed_step = excluded.failed_step, failed_run_id = excluded.failed_run_id"
)
_PUT_STEP = (
    f"INSERT INTO flow_steps ({', '.join(FlowStep._fields)}) VALUES ({', '.join('?' * len(FlowStep._fields))})"  # noqa: S608 - constants
    " ON CONFLICT (run_id, step) DO UPDATE SET decision = excluded.decision, cause = excluded.cause,"
    " decided_at = excluded.decided_at, items = excluded.items"
)
_NEXT_ATTEMPT = " UNION ALL ".join(
    f"SELECT id FROM runs INDEXED BY {index} WHERE state {which} AND task_name = ? AND created_at >= ?"  # noqa: S608 - constants
    " AND retry_of_run_id = ?"
    for index, which in (("runs_task", f"< {FIRST_ACTIVE}"), ("runs_active", f">= {FIRST_ACTIVE}"))
)
_OPEN = f"JOIN runs ON runs.id = flows.run_id WHERE runs.state >= {FIRST_ACTIVE}"


def put_graph(db: Database, task_name: str, graph: Definition, now_ms: int) -> None:
    """Store the graph of a flow run that begins now; it is kept as long as runs of this time are."""
    put_definition(db, task_name, graph, now_ms)


def put_flow(db: Database, flow: Flow) -> None:
    """Store a flow run that begins, or changes of one."""
    db.execute(_PUT_FLOW, flow)


def put_step(db: Database, step: FlowStep) -> None:
    """Store a step that begins or is decided."""
    db.execute(_PUT_STEP, step)


def put_repeated(db: Database, run_id: str, step: str) -> None:
    """Store the step from which a run that has not begun repeats the attempt before."""
    db.execute(_PUT_STEP, FlowStep(run_id, step))


def repeated_by(db: Database, run_id: str) -> list[str]:
    """Return the steps that :func:`put_repeated` stored for a run that has not begun."""
    has_begun = "EXISTS (SELECT 1 FROM flows WHERE run_id = flow_steps.run_id)"
    query = f"SELECT step FROM flow_steps WHERE run_id = ? AND NOT {has_begun}"  # noqa: S608 - constants
    return [step for (step,) in db.rows(query, [run_id])]


def forget_repeated(db: Database, run_id: str) -> None:
    """Remove what :func:`put_repeated` stored for a run that begins now."""
    db.execute("DELETE FROM flow_steps WHERE run_id = ?", [run_id])


def get_flow(db: Database, run_id: str) -> tuple[Flow, list[FlowStep]] | None:
    """Return a flow run and its steps; None if the run is not that of a flow which has begun."""
    row = db.row(f"SELECT {_FLOW} FROM flows WHERE run_id = ?", [run_id])  # noqa: S608 - constants
    if row is None:
        return None
    steps = db.rows(f"SELECT {_STEP} FROM flow_steps WHERE run_id = ?", [run_id])  # noqa: S608 - constants
    return Flow._make(row), [FlowStep._make(step) for step in steps]


def graph_of(db: Database, flow: Flow) -> str | None:
    """Return the text of the graph of a flow run; None if it is no longer stored."""
    task_name = "SELECT task_name FROM runs WHERE id = ?"
    query = f"SELECT definition FROM definitions WHERE task_name = ({task_name}) AND hash = ?"  # noqa: S608 - constants
    row = db.row(query, [flow.run_id, flow.graph])
    return None if row is None else row[0]


def step_names(db: Database, flow: Flow) -> set[str]:
    """Return the names of all steps of a flow run; none if its graph is no longer stored."""
    text = graph_of(db, flow)
    return set() if text is None else {step["name"] for step in json.loads(text)["steps"]}


def open_flows(db: Database) -> list[tuple[Flow, str]]:
    """Return the flow runs that have begun and not ended, each with the text of its graph."""
    graph = "(SELECT definition FROM definitions WHERE task_name = runs.task_name AND hash = flows.graph)"
    rows = db.rows(f"SELECT {_FLOW}, {graph} FROM flows {_OPEN}")  # noqa: S608 - constants
    return [(Flow._make(row[:-1]), row[-1]) for row in rows]


def steps_of_open_flows(db: Database) -> list[FlowStep]:
    """Return the steps of all open flow runs that have begun or are decided."""
    query = f"SELECT {_STEP} FROM flow_steps JOIN flows ON flows.run_id = flow_steps.run_id {_OPEN}"  # noqa: S608 - constants
    return [FlowStep._make(row) for row in db.rows(query)]


def next_attempt(db: Database, run: Run) -> str | None:
    """Return the id of the run that is the attempt after `run`; None if there is none."""
    row = db.row(_NEXT_ATTEMPT, [run.task_name, run.created_at, run.id] * 2)
    return None if row is None else row[0]


def runs_of(db: Database, flow_run_ids: Iterable[str]) -> list[Run]:
    """Return all runs of the steps of some flow runs, oldest first; deleted ones, too."""
    query = f"SELECT {SELECT} FROM runs WHERE flow_run_id IN {TEXTS} ORDER BY created_at, id"  # noqa: S608 - constants
    return [from_row(row) for row in db.rows(query, [json.dumps([*flow_run_ids])])]


def put_outputs(db: Database, run_id: str, outputs: dict[str, Any]) -> None:
    """Store the values that a run wrote."""
    text = json.dumps(outputs, ensure_ascii=False, separators=(",", ":"))
    db.execute("INSERT INTO run_outputs (run_id, outputs) VALUES (?, ?) ON CONFLICT DO NOTHING", [run_id, text])


def outputs_of(db: Database, run_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the values that runs wrote, by run id."""
    rows = db.rows(
        f"SELECT run_id, outputs FROM run_outputs WHERE run_id IN {TEXTS}",  # noqa: S608 - constants
        [json.dumps([*run_ids])],
    )
    return {run_id: json.loads(text) for run_id, text in rows}
