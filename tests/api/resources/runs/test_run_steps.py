"""Flows: their records, the steps of their runs, and the runs inside them."""

import json
from typing import Any

import pytest

from store import tasks
from store.runs.definitions import Definition
from store.runs.flows import Flow, FlowStep, put_flow, put_graph, put_outputs, put_step
from store.runs.ids import new_ulid
from store.runs.writes import Run, delete_run, insert_run
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

STEPS: list[dict[str, Any]] = [
    {"name": "report", "task": "nightly:report", "after": ["load"], "when": "success", "optional": True},
    {"name": "extract", "task": "nightly:extract", "after": [], "when": "success"},
    {"name": "load", "task": "load", "after": ["extract"], "when": "success", "params": {"day": "${param:day}"}},
    {"name": "alarm", "task": "nightly:alarm", "after": ["load"], "when": "failure", "delay_ms": 60000},
]
GRAPH = Definition(
    json.dumps({"steps": [{**step, "unit": step["task"], "params": {}, "each": {}} for step in STEPS]}), "a" * 32
)


@pytest.fixture(scope="module", autouse=True)
def configured(shared: Daemon) -> None:
    with shared.lock:
        tasks.upsert_task(shared.db, "nightly", "task", json.dumps({"kind": "task", "run": "", "steps": STEPS}))
        step = {"kind": "task", "run": "./extract", "flow": "nightly", "step": "extract"}
        tasks.upsert_task(shared.db, "nightly:extract", "task", json.dumps(step))
        tasks.upsert_task(shared.db, "load", "task", '{"kind": "task", "run": "./load"}')


def store(daemon: Daemon, **columns: Any) -> Run:
    run = make_run(**columns)
    with daemon.lock:
        insert_run(daemon.db, run)
    return run


def begin(daemon: Daemon, **columns: Any) -> Run:
    """Store a run of the flow that has begun."""
    run = store(daemon, task="nightly", status="running", started_at=1000, **columns)
    with daemon.lock:
        put_graph(daemon.db, "nightly", GRAPH, 1000)
        put_flow(daemon.db, Flow(run.id, GRAPH.hash, "going", None, None, "extract", None))
    return run


def test_records(daemon: Daemon) -> None:
    """A flow is a task with steps; a step names its flow; other tasks have none of these fields."""
    flow = daemon.get("/api/tasks/nightly").json
    assert flow["kind"] == "task"
    assert flow["steps"] == [
        {name if name != "delay_ms" else "delayMs": value for name, value in step.items()} for step in STEPS
    ]
    assert "steps" not in flow["definition"]
    step = daemon.get("/api/tasks/nightly:extract").json
    assert (step["flow"], step["step"]) == ("nightly", "extract")
    assert not {"steps", "flow", "step"} & daemon.get("/api/tasks/load").json.keys()


def test_steps_of_a_run(daemon: Daemon) -> None:
    """The steps of a run have what was decided, their runs of all attempts, and what these wrote, in order."""
    flow = begin(daemon)
    ended: dict[str, Any] = {"status": "ended", "started_at": 1000, "ended_at": 2000, "flow_run_id": flow.id}
    first = store(daemon, task="nightly:extract", step="extract", end_reason="failed", exit_code=3, **ended)
    second = store(
        daemon,
        task="nightly:extract",
        step="extract",
        end_reason="succeeded",
        exit_code=0,
        retry_attempt=1,
        retry_of_run_id=first.id,
        **ended,
    )
    load = store(daemon, task="load", step="load", flow_run_id=flow.id, status="running", started_at=2000)
    with daemon.lock:
        put_outputs(daemon.db, second.id, {"path": "rows.csv", "count": 3})
        put_step(daemon.db, FlowStep(flow.id, "extract", "succeeded", None, 1000, 2000))
        put_step(daemon.db, FlowStep(flow.id, "load", None, None, 2000))
    answer = daemon.get(f"/api/runs/{flow.id}/steps").json
    assert answer["run"]["id"] == flow.id
    assert [(step["name"], step["state"], step["layer"]) for step in answer["steps"]] == [
        ("extract", "succeeded", 0),
        ("load", "running", 1),
        ("report", "waiting", 2),
        ("alarm", "waiting", 2),
    ]
    extract = answer["steps"][0]
    assert (extract["beganAt"], extract["decidedAt"]) == ("1970-01-01T00:00:01.000Z", "1970-01-01T00:00:02.000Z")
    assert [(run["id"], run["retryAttempt"], run["endReason"]) for run in extract["runs"]] == [
        (first.id, 0, "failed"),
        (second.id, 1, "succeeded"),
    ]
    assert [run.get("outputs") for run in extract["runs"]] == [None, {"path": "rows.csv", "count": 3}]
    assert [run["taskName"] for run in answer["steps"][1]["runs"]] == [load.task_name]
    assert answer["failedStep"] == "extract"


def test_kept_steps(daemon: Daemon) -> None:
    """A step that an attempt kept has the runs of the attempt before; a decision without a run has its cause."""
    before = begin(daemon)
    kept = store(
        daemon, task="nightly:extract", step="extract", flow_run_id=before.id, status="ended", end_reason="succeeded"
    )
    again = begin(daemon, retry_of_run_id=before.id, retry_attempt=1)
    with daemon.lock:
        put_step(daemon.db, FlowStep(again.id, "extract", "succeeded", from_run_id=before.id))
        put_step(daemon.db, FlowStep(again.id, "load", "failed", "removed"))
    extract, load = daemon.get(f"/api/runs/{again.id}/steps").json["steps"][:2]
    assert (extract["keptFrom"], [run["id"] for run in extract["runs"]]) == (before.id, [kept.id])
    assert (load["state"], load["cause"], load["runs"]) == ("failed", "removed", [])


def test_flow_that_has_not_begun(daemon: Daemon) -> None:
    """A pending run has the configured steps; a run of another task has none."""
    run = store(daemon, task="nightly")
    assert {step["state"] for step in daemon.get(f"/api/runs/{run.id}/steps").json["steps"]} == {"waiting"}
    assert daemon.get(f"/api/runs/{store(daemon, task='load').id}/steps").status == 409
    assert daemon.get(f"/api/runs/{new_ulid()}/steps").status == 404


def test_runs_of_a_flow(daemon: Daemon) -> None:
    """Both lists can be limited to the runs of a flow, in any order; details name flow, step and item."""
    flow = begin(daemon)
    at = 1_000
    runs = [
        store(
            daemon,
            task=task,
            step=step,
            item=item,
            flow_run_id=flow.id,
            created_at=at + place,
            status="ended",
            end_reason=reason,
        )
        for place, (task, step, item, reason) in enumerate(
            [
                ("load", "load", None, "failed"),
                ("nightly:clean", "clean", "eu", "succeeded"),
                ("nightly:clean", "clean", "us", "failed"),
            ]
        )
    ]
    gone = store(daemon, task="load", step="gone", flow_run_id=flow.id, status="ended", end_reason="failed")
    with daemon.lock:
        delete_run(daemon.db, gone.id, at)
    listed = daemon.get(f"/api/runs?flow_run_id={flow.id}&extended=true").json
    assert ([run["id"] for run in listed["runs"]], listed["total"]) == ([run.id for run in reversed(runs)], 3)
    details = listed["details"][runs[1].id]
    assert (details["flowRunId"], details["step"], details["item"]) == (flow.id, "clean", "eu")
    page = daemon.get(
        f"/api/runs?flowRunId={flow.id}&sort_field=task_name&sort_direction=asc&limit=1&offset=1&status=failed"
    ).json
    assert ([run["id"] for run in page["runs"]], page["total"]) == ([runs[2].id], 2)
    of_task = daemon.get(f"/api/tasks/nightly:clean/runs?flowRunId={flow.id}&sortField=duration").json
    assert of_task["total"] == 2
    assert "flowRunId" not in of_task["items"][0]


def test_steps_of_the_newest_runs(daemon: Daemon) -> None:
    """The newest runs of a flow are listed with the states of their steps; other tasks have none."""
    flow = begin(daemon)
    with daemon.lock:
        put_step(daemon.db, FlowStep(flow.id, "extract", "failed"))
        put_step(daemon.db, FlowStep(flow.id, "alarm", None, began_at=1))
    answer = daemon.get("/api/tasks/nightly/steps?limit=2").json
    assert answer["steps"] == ["extract", "load", "report", "alarm"]
    assert answer["items"][0]["run"]["id"] == flow.id
    assert answer["items"][0]["steps"] == {"extract": "failed", "alarm": "running"}
    assert len(answer["items"]) == 2
    assert daemon.get("/api/tasks/load/steps").status == 409
    assert daemon.get("/api/tasks/none/steps").status == 404
