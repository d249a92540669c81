"""Flows that are tried again: an attempt keeps the steps that succeeded."""

import json
from pathlib import Path
from typing import cast

from store.runs.ids import new_ulid
from supervisor.scheduler.control.bulk_jobs import BulkJobs
from supervisor.scheduler.control.bulk_operations import BulkOperations
from supervisor.scheduler.control.rate_limit import TriggerLimit
from supervisor.scheduler.database.retention import RetentionChecks
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.runs.live_units import LiveRun
from tests.scheduler.control.operations import operations_of
from tests.scheduler.control.test_bulk_jobs import ImmediateReads
from tests.scheduler.flows.playing import FAILED, FlowBench, Make, flow

RETRY = 'retry_attempts = 1; retry_delay = "1s"'.replace("; ", "\n")


def attempt_of(harness: FlowBench, name: str = "f") -> LiveRun:
    """Let the delay pass; return the run of the next attempt of a flow."""
    harness.pass_ms(1000)
    (run,) = harness.units[name].active.values()
    return run


def test_attempt_keeps_what_succeeded(bench: Make) -> None:
    """A retry of a flow repeats the failed step and what is behind it, and handlers; values of kept steps stay."""
    harness = bench(
        flow(
            "a:",
            'b: after = ["a"]; run = ["b", "${step:a.x}"]',
            'c: after = ["b"]',
            'tell: after = ["a"]; when = "end"',
            keys=RETRY,
        )
    )
    first = harness.begin()
    Path(harness.run_of("a").output_file or "").write_text("x=1\n")
    harness.ends("a")
    harness.ends("tell")
    harness.ends("b", FAILED)
    assert harness.end_of(first) == ("failed", 1)
    second = attempt_of(harness)
    row = harness.stored(second.id)
    assert (row.retry_attempt, row.retry_of_run_id) == (1, first.id)
    assert harness.going() == {"b", "tell"}
    request = harness.root.requests[harness.run_of("b").id]
    assert request["argv"] == ["b", "1"]
    assert request["env"]["RINGWARD_FLOW_ATTEMPT"] == "1"
    harness.next_scheduler()
    harness.ends("tell")
    harness.ends("b")
    inputs = json.loads(Path(harness.root.requests[harness.run_of("c").id]["env"]["RINGWARD_INPUTS"]).read_text())
    assert inputs["a"] == {"x": "1"}
    harness.ends("c")
    assert harness.end_of(second) == ("succeeded", 0)
    assert harness.decisions(second) == dict.fromkeys(("a", "b", "c", "tell"), "succeeded")


def test_flow_inside_continues(bench: Make) -> None:
    """A failed step that is a flow continues as its next attempt."""
    inner = flow("x:", 'y: after = ["x"]', name="inner")
    harness = bench(flow('a: task = "inner"', keys=RETRY, more=inner))
    harness.begin()
    harness.ends("x")
    harness.ends("y", FAILED)
    second = attempt_of(harness)
    assert harness.going() == {"a", "y"}
    assert harness.stored(harness.run_of("a").id).retry_attempt == 1
    harness.ends("y")
    assert harness.end_of(second) == ("succeeded", 0)


def test_stop_while_the_earlier_attempt_is_read(bench: Make) -> None:
    """A stop before the first step of an attempt begins ends it, and nothing begins."""
    harness = bench(flow("a:", keys=RETRY))
    harness.begin()
    harness.ends("a", FAILED)
    harness.clock.advance_ms(1000)
    harness.loop.round(0)
    while "f" not in {run.unit.name for run in harness.engine.live.values() if run.state.value == "starting"}:
        harness.store.work()
        harness.loop.round(0)
    (second,) = harness.units["f"].active.values()
    harness.stop(second)
    harness.settle()
    assert harness.end_of(second)[0] == "stopped"
    assert harness.decisions(second) == {"a": "stopped (flow_stopped)"}
    assert not harness.engine.live


def rerun(harness: FlowBench, *run_ids: str, failed: bool = False, **more: object) -> dict[str, object]:
    """Ask for a rerun of runs; return the answer, once it is stored."""
    reading = cast(LongReads, ImmediateReads(harness))
    bulk = BulkJobs(harness.core, reading, None)
    limit = TriggerLimit(harness.loop.now_s, 0)
    many = BulkOperations(harness.core, harness.engine, harness.units, bulk, cast(RetentionChecks, None), limit)
    answers: list[dict[str, object]] = []
    asked = {"match_all": not run_ids, "filter": {}, "except_ids": "", "ids": "".join(run_ids), "by": "me"}
    request = {**asked, "command": new_ulid(harness.clock.wall), "triggered_by": "api", "failed": failed, **more}
    operations_of(many)["bulk_rerun"](request, answers.append)
    harness.settle()
    (answer,) = answers
    return answer


def test_person_lets_a_flow_continue(bench: Make) -> None:
    """A flow continues by hand as its next attempt, unless it is open, has succeeded, or has a later attempt."""
    harness = bench(flow("a:", 'b: after = ["a"]'))
    first = harness.begin()
    assert rerun(harness, first.id, failed=True)["status"] == 409
    harness.ends("a")
    inner = harness.run_of("b")
    harness.ends("b", FAILED)
    assert rerun(harness, inner.id, failed=True)["status"] == 409
    assert rerun(harness, first.id, failed=True)["ok"]
    assert harness.going() == {"b"}
    (second,) = harness.units["f"].active.values()
    assert (second.attempt, second.retry_of, second.trigger) == (1, first.id, "api")
    answer = rerun(harness, first.id, failed=True)
    assert str(second.id) in str(answer["errors"])
    harness.ends("b")
    assert rerun(harness, second.id, failed=True)["status"] == 409


def test_flow_again_from_a_step(bench: Make) -> None:
    """A named step and all behind it are repeated, also with all items; other steps that succeeded are kept."""
    harness = bench(
        flow("a:", 'b: after = ["a"]; each = { x = ["1", "2"] }; run = ["b", "${each:x}"]', 'c: after = ["b"]', "d:")
    )
    first = harness.begin()
    assert rerun(harness, first.id, from_step="b")["status"] == 409
    for step in ("a", "d"):
        harness.ends(step)
    for item in ("1", "2"):
        harness.ends("b", item=item)
    harness.ends("c")
    assert harness.end_of(first) == ("succeeded", 0)
    assert "has no step x" in str(rerun(harness, first.id, from_step="x")["errors"])
    assert rerun(harness, first.id, from_step="b")["ok"]
    (second,) = harness.units["f"].active.values()
    assert (second.attempt, second.retry_of) == (1, first.id)
    assert {run.place.item for run in harness.engine.live.values() if run.place is not None} == {"1", "2"}
    assert harness.decisions(second) == {"a": "succeeded", "b": None, "d": "succeeded"}
    for item in ("1", "2"):
        harness.ends("b", item=item)
    harness.ends("c")
    assert harness.end_of(second) == ("succeeded", 0)


def test_restart_before_a_flow_begins_again_from_a_step(bench: Make) -> None:
    """An attempt that waits for its place still begins with the named step after a restart of the scheduler."""
    harness = bench(flow("a:", 'b: after = ["a"]', keys="on_overlap = 'queue'"))
    first = harness.begin()
    for step in ("a", "b"):
        harness.ends(step)
    other = harness.begin()
    assert rerun(harness, first.id, from_step="b")["ok"]
    harness.next_scheduler()
    assert harness.going() == {"a"}
    for step in ("a", "b"):
        harness.ends(step)
    assert harness.end_of(other) == ("succeeded", 0)
    assert harness.going() == {"b"}
    (second,) = harness.units["f"].active.values()
    assert harness.decisions(second) == {"a": "succeeded", "b": None}


def test_rerun_of_many_starts_flows_once(bench: Make) -> None:
    """Behind the runs of steps is their flow, which starts once and anew; a step's run that is named runs alone."""
    harness = bench(flow("a:", 'b: after = ["a"]'))
    harness.begin()
    first = harness.run_of("a")
    harness.ends("a")
    harness.ends("b", FAILED)
    answer = rerun(harness)
    assert [run["task_name"] for run in answer["result"]["triggered"]] == ["f"]  # type: ignore[index]
    assert harness.going() == {"a"}
    harness.ends("a", FAILED)
    answer = rerun(harness, first.id)
    assert [run["task_name"] for run in answer["result"]["triggered"]] == ["f:a"]  # type: ignore[index]
    assert harness.going() == set()
