import pytest

from store.database import Database
from store.errors import Conflict
from store.migrations.runner import migrate
from store.runs.bulk import Retention, find_excess, find_expired, mark_deleted, purge
from store.runs.definitions import Definition, prune
from store.runs.filter import RunFilter
from store.runs.flows import (
    Flow,
    FlowStep,
    get_flow,
    graph_of,
    next_attempt,
    open_flows,
    outputs_of,
    put_flow,
    put_graph,
    put_outputs,
    put_step,
    runs_of,
    steps_of_open_flows,
)
from store.runs.run_pages import Sort, list_runs
from store.runs.runs_by_unit import RunScope, ended_runs, runs_by_id
from store.runs.writes import Approval, Run, approvals_of, get_run, insert_run, open_approvals, put_approval, update_run
from tests.store.making import T0, make_run

GRAPH = Definition('{"steps":[]}', "a" * 32)
ENDED = {"status": "ended", "end_reason": "succeeded", "started_at": T0, "ended_at": T0}


def begin(db: Database, **fields: object) -> Run:
    """Store a running flow with a run of a step."""
    run = make_run(task_name="f", status="running", started_at=T0, **fields)
    insert_run(db, run)
    put_graph(db, "f", GRAPH, T0)
    put_flow(db, Flow(run.id, GRAPH.hash, "going", T0 + 9))
    put_step(db, FlowStep(run.id, "s", began_at=T0))
    return run


def step_run(db: Database, flow: Run, **fields: object) -> Run:
    run = make_run(**{"task_name": "f:s", "flow_run_id": flow.id, "step": "s", **fields})
    insert_run(db, run)
    return run


def test_open_flows(writer: Database) -> None:
    """Flows that have not ended are read with graph, steps and runs; an ended one is read by its id only."""
    run = begin(writer)
    inner = step_run(writer, run)
    assert open_flows(writer) == [(Flow(run.id, GRAPH.hash, "going", T0 + 9), GRAPH.text)]
    assert steps_of_open_flows(writer) == [FlowStep(run.id, "s", began_at=T0)]
    assert runs_of(writer, [run.id]) == [inner]
    put_step(writer, FlowStep(run.id, "s", "failed", "upstream", None, T0 + 1))
    put_flow(writer, Flow(run.id, "other", "stopped", None, "me", "s", inner.id))
    update_run(writer, run.id, **ENDED)
    assert (open_flows(writer), steps_of_open_flows(writer)) == ([], [])
    assert get_flow(writer, run.id) == (
        Flow(run.id, GRAPH.hash, "stopped", None, "me", "s", inner.id),
        [FlowStep(run.id, "s", "failed", "upstream", T0, T0 + 1)],
    )
    assert get_flow(writer, inner.id) is None


def test_one_run_for_each_attempt(writer: Database) -> None:
    """A step has one run for each item and attempt; the same in another flow run is no conflict."""
    run, other = begin(writer), begin(writer)
    step_run(writer, run)
    for same in ({}, {"item": "eu"}):
        step_run(writer, other, **same)
        step_run(writer, other, **same, retry_attempt=1)
        with pytest.raises(Conflict):
            step_run(writer, other, **same)


def test_outputs(writer: Database) -> None:
    """Values are stored once for each run."""
    put_outputs(writer, "one", {"path": "é", "list": [1]})
    put_outputs(writer, "one", {"path": "later"})
    assert outputs_of(writer, ["one", "two"]) == {"one": {"path": "é", "list": [1]}}


def test_graph_is_kept_with_its_runs(writer: Database) -> None:
    """The graph of a flow is kept as long as a run of that time is."""
    begin(writer)
    assert (prune(writer), len(open_flows(writer)[0][1])) == (0, len(GRAPH.text))


def test_runs_of_steps_go_with_the_flow(writer: Database) -> None:
    """Runs of a step with a command are purged with the run of the flow; runs of named tasks are not."""
    run = begin(writer)
    inner, named = step_run(writer, run, **ENDED), step_run(writer, run, task_name="load", step="l", **ENDED)
    alone = make_run(task_name="f:s", **ENDED)
    insert_run(writer, alone)
    nothing = Retention(0, 0, 0)
    excess = find_excess(writer, {}, nothing, T0 + 1)
    assert mark_deleted(writer, excess[0], T0 + 1) == 2
    assert {one.id for one in (inner, named, alone) if get_run(writer, one.id) is not None} == {inner.id}
    (expired,) = find_expired(writer, T0 + 1)  # the open flow still reads its steps' runs
    assert purge(writer, expired) == 1
    update_run(writer, run.id, **ENDED)
    put_outputs(writer, inner.id, {"a": 1})
    excess = find_excess(writer, {}, nothing, T0 + 1)
    assert mark_deleted(writer, excess[0], T0 + 1) == 1
    (expired,) = find_expired(writer, T0 + 1)
    assert purge(writer, expired) == 3
    assert [get_run(writer, one.id, include_deleted=True) for one in (run, inner, named)] == [None] * 3
    assert (get_flow(writer, run.id), outputs_of(writer, [inner.id])) == (None, {})


def test_retention_while_an_approval_waits(writer: Database) -> None:
    """A step that waits for its approval is kept, with the steps before it; afterwards its approval goes with it."""
    run = begin(writer)
    inner, waiting = step_run(writer, run, **ENDED), step_run(writer, run, task_name="f:deploy", step="deploy")
    put_approval(writer, Approval(waiting.id, None, False, 1000))
    nothing = Retention(0, 0, 0)
    assert find_excess(writer, {}, nothing, T0 + 1) == []
    assert open_approvals(writer) == approvals_of(writer, [inner.id, waiting.id])
    update_run(writer, waiting.id, status="running", started_at=T0)
    put_approval(writer, Approval(waiting.id, None, False, 1000, "approved", "user alice", T0, "tested"))
    assert open_approvals(writer) == {}
    update_run(writer, waiting.id, **ENDED)
    update_run(writer, run.id, **ENDED)
    (excess,) = find_excess(writer, {}, nothing, T0 + 1)
    mark_deleted(writer, excess, T0 + 1)
    assert approvals_of(writer, [waiting.id])[waiting.id].note == "tested"
    (expired,) = find_expired(writer, T0 + 1)
    assert purge(writer, expired) == 3
    assert approvals_of(writer, [waiting.id]) == {}


def test_run_of_a_kept_step_stays(writer: Database) -> None:
    """While a later attempt keeps a step, the deleted runs of that step stay readable."""
    first = begin(writer)
    inner = step_run(writer, first, **ENDED)
    update_run(writer, first.id, **ENDED)
    second = begin(writer)
    put_step(writer, FlowStep(second.id, "kept", "succeeded", from_run_id=first.id))
    excess = find_excess(writer, {}, Retention(0, 0, 0), T0 + 1)
    assert mark_deleted(writer, excess[0], T0 + 1) == 1
    assert find_expired(writer, T0 + 1) == []
    assert get_run(writer, inner.id) is not None


def test_rows_left_by_an_older_version(writer: Database) -> None:
    """What belongs to runs that 0.1.0 purged is removed when the database is opened."""
    run = begin(writer)
    writer.execute("DELETE FROM runs WHERE id = ?", [run.id])
    migrate(writer._take())
    assert get_flow(writer, run.id) is None


def test_runs_of_a_flow_in_lists_and_logs(writer: Database) -> None:
    """Lists have the runs of one flow, sorted by any field; logs also have those of flows inside it."""
    outer = begin(writer)
    inner = step_run(writer, outer, task_name="g", step="g", **ENDED)
    deep = step_run(writer, inner, task_name="g:a", step="a", lines=1, **ENDED)
    alone = make_run(task_name="g:a", lines=1, **ENDED)
    insert_run(writer, alone)
    for field in ("task_name", "status", "start_at", "exit_code", "duration", "created_at"):
        page, total = list_runs(writer, RunFilter(flow_run_id=outer.id), Sort(field), now_ms=T0)
        assert ([run.id for run in page], total) == ([inner.id], 1)
    scope = RunScope(frozenset({"g", "g:a"}), flow_run_id=outer.id)
    assert {run.id for run in ended_runs(writer, scope, 0, (0, ""), 9)} == {inner.id, deep.id}
    of_flow = RunScope(frozenset({"f", "g"}), frozenset({"g"}), frozenset({"f"}))
    assert {run.id for run in ended_runs(writer, of_flow, 0, (0, ""), 9)} == {inner.id}
    assert [run.id for run in runs_by_id(writer, [deep.id, alone.id], scope)] == [deep.id]


def test_next_attempt(writer: Database) -> None:
    """The attempt after a run is found, whether it has ended or not."""
    first = begin(writer)
    assert next_attempt(writer, first) is None
    update_run(writer, first.id, **ENDED)
    second = begin(writer, retry_of_run_id=first.id, retry_attempt=1)
    assert next_attempt(writer, first) == second.id
    update_run(writer, second.id, **ENDED)
    assert next_attempt(writer, first) == second.id
    assert graph_of(writer, Flow(first.id, GRAPH.hash, "going")) == GRAPH.text
