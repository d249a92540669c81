"""Runs that need an approval before they start (``needs_approval``)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import notifications
from store.runs.writes import Approval, approvals_of
from supervisor.scheduler.control.run_operations import ApprovalOperations
from supervisor.scheduler.runs.live_units import LiveRun
from tests.scheduler.control.operations import operations_of
from tests.scheduler.flows.playing import FAILED, FlowBench, flow

Make = Callable[[str], FlowBench]
DEPLOY = '[tasks.deploy]\nrun = "true"\nneeds_approval = true\n'
WEEK_MS = 7 * 86_400_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Make]:
    made: list[FlowBench] = []

    def make(text: str) -> FlowBench:
        made.append(FlowBench(tmp_path, text))
        return made[-1]

    yield make
    for one in made:
        one.close()


def send(harness: FlowBench, verb: str, run: LiveRun, answers: list[dict[str, Any]], **more: object) -> None:
    """Send an answer; its result is added to `answers` once it is stored."""
    operations = ApprovalOperations(harness.core, harness.engine, harness.engine.approvals)
    values: dict[str, object] = {"run": run.id, "by": "user alice", "person": "alice", **more}
    operations_of(operations)[verb](values, answers.append)


def answer(harness: FlowBench, verb: str, run: LiveRun, **more: object) -> tuple[int, str]:
    """Answer, and return the status with the reason of a refusal."""
    answers: list[dict[str, Any]] = []
    send(harness, verb, run, answers, **more)
    harness.settle()
    (found,) = answers
    return (200, "") if found["ok"] else (found["status"], found["detail"])


def approval_of(harness: FlowBench, run: LiveRun) -> Approval:
    """Return the stored approval of a run."""
    return approvals_of(harness.store.database, [run.id])[run.id]


def waits(harness: FlowBench, run: LiveRun) -> bool:
    """Return whether a run waits for its approval, in memory and in the store."""
    row = harness.stored(run.id)
    kind = None if run.due is None else run.due.kind
    assert (kind == "approval") == (row.status == "pending" and row.due_kind == "approval")
    return kind == "approval"


def test_approval(bench: Make) -> None:
    """A run waits, holds no place, tells people, and starts once it is approved; the answer is stored with its note."""
    harness = bench(DEPLOY)
    run = harness.begin("deploy")
    assert waits(harness, run)
    assert not harness.units["deploy"].active
    (told,) = notifications.page(harness.store.database, 10)
    assert (told.kind, told.severity, told.run_id) == ("run.approval", "warn", run.id)
    harness.pass_ms(WEEK_MS - 1)
    assert waits(harness, run)
    assert answer(harness, "approve", run, note="tested") == (200, "")
    assert harness.stored(run.id).status == "running"
    stored = approval_of(harness, run)
    assert (stored.answer, stored.answered_by, stored.note) == ("approved", "user alice", "tested")
    harness.exited(run.id)
    harness.settle()
    assert harness.stored(run.id).end_reason == "succeeded"


def test_rejection(bench: Make) -> None:
    """A rejected run is stopped, with the cause and the person; nobody is told of a failure, and nothing is retried."""
    harness = bench(DEPLOY + "retry_attempts = 2\n")
    run = harness.begin("deploy")
    assert answer(harness, "reject", run, note="not today") == (200, "")
    row = harness.stored(run.id)
    assert (row.end_reason, row.cause, row.stopped_by) == ("stopped", "rejected", "user alice")
    assert approval_of(harness, run).note == "not today"
    assert not harness.engine.live
    assert [one.kind for one in notifications.page(harness.store.database, 10)] == ["run.approval"]


def test_time_limit(bench: Make) -> None:
    """A run that nobody approves is rejected after approval_timeout, also if no scheduler ran at that time."""
    harness = bench(DEPLOY + 'approval_timeout = "2h"\n')
    first, second = harness.begin("deploy"), harness.begin("deploy")
    harness.pass_ms(2 * 3_600_000)
    row = harness.stored(first.id)
    assert (row.end_reason, row.cause, row.stopped_by) == ("stopped", "approval_timeout", "approval_timeout")
    assert approval_of(harness, first).answer == "approval_timeout"
    assert harness.stored(second.id).end_reason == "stopped"
    third = harness.begin("deploy")
    harness.clock.advance_ms(3 * 3_600_000)
    harness.next_scheduler()
    harness.pass_ms(0)
    assert harness.stored(third.id).cause == "approval_timeout"


def test_who_may_answer(bench: Make) -> None:
    """A list names those who may answer; not_by_starter excludes the person who started the run."""
    harness = bench(DEPLOY.replace("true\n", '["alice", "bob"]\nnot_by_starter = true\n'))
    run = harness.begin("deploy")
    status, why = answer(harness, "approve", run, by="user eve", person="eve")
    assert (status, "alice and bob" in why) == (403, True)
    assert answer(harness, "reject", run, by="token alice", person="token alice")[0] == 403
    assert answer(harness, "approve", run, starter="alice")[0] == 403
    assert waits(harness, run)
    assert answer(harness, "approve", run, by="user bob", person="bob", starter="alice") == (200, "")
    by_schedule = harness.begin("deploy")
    assert answer(harness, "approve", by_schedule, starter=None) == (200, "")


@pytest.mark.parametrize(("first", "second"), [("approve", "reject"), ("reject", "approve"), ("approve", "approve")])
def test_two_answers_at_the_same_moment(bench: Make, first: str, second: str) -> None:
    """The first answer counts, even if it is not stored yet when the second one comes, which gets 409."""
    harness = bench(DEPLOY)
    run = harness.begin("deploy")
    answers: list[dict[str, Any]] = []
    send(harness, first, run, answers)
    send(harness, second, run, answers, by="user bob", person="bob")
    harness.settle()
    statuses = sorted(200 if one["ok"] else one["status"] for one in answers)
    assert statuses == [200, 409]
    stored = approval_of(harness, run)
    assert (stored.answer, stored.answered_by) == ("approved" if first == "approve" else "rejected", "user alice")
    assert harness.stored(run.id).status == ("running" if first == "approve" else "ended")
    status, why = answer(harness, "approve", run)
    assert (status, "user alice" in why) == (409, True)


def test_run_that_needs_none(bench: Make) -> None:
    """Answers to a run that waits for nothing are refused."""
    harness = bench('[tasks.deploy]\nrun = "true"\n')
    run = harness.begin("deploy")
    assert answer(harness, "approve", run) == (409, f"{run.id} does not wait for an approval")
    harness.exited(run.id)
    harness.settle()
    assert answer(harness, "reject", run) == (409, f"{run.id} does not wait for an approval")


def test_stop_withdraws_the_approval(bench: Make) -> None:
    """A run that is stopped while it waits cannot be approved any more."""
    harness = bench(DEPLOY)
    run = harness.begin("deploy")
    harness.stop(run)
    harness.settle()
    assert approval_of(harness, run).answer == "withdrawn"
    assert answer(harness, "approve", run)[0] == 409


def test_next_scheduler(bench: Make) -> None:
    """A restart neither asks again nor prolongs the wait; a run that was approved before it starts."""
    harness = bench(DEPLOY)
    run = harness.begin("deploy")
    before = harness.stored(run.id).due_at
    harness.clock.advance_ms(1000)
    harness.next_scheduler()
    again = harness.engine.live[run.id]
    assert waits(harness, again)
    assert harness.stored(run.id).due_at == before
    assert len(notifications.page(harness.store.database, 10)) == 1
    send(harness, "approve", again, [])
    harness.store.work()  # it dies between the answer and the start
    harness.next_scheduler([])
    assert harness.stored(run.id).status == "running"


def test_answer_that_is_not_stored(bench: Make) -> None:
    """A scheduler that dies before an approval is stored leaves the run waiting."""
    harness = bench(DEPLOY)
    run = harness.begin("deploy")
    send(harness, "approve", run, [])
    harness.store.jobs.clear()
    harness.next_scheduler([])
    assert waits(harness, harness.engine.live[run.id])


def test_retry_needs_none(bench: Make) -> None:
    """A retry belongs to the run that was approved, also after a restart; a new run needs its own approval."""
    harness = bench(DEPLOY + 'retry_attempts = 1\nretry_delay = "1m"\n')
    run = harness.begin("deploy")
    answer(harness, "approve", run)
    harness.exited(run.id, status=FAILED)
    harness.settle()
    harness.next_scheduler([])
    harness.pass_ms(60_000)
    (retry,) = harness.engine.live.values()
    assert (retry.attempt, harness.stored(retry.id).status) == (1, "running")
    assert waits(harness, harness.begin("deploy"))


@pytest.mark.parametrize("policy", ["skip", "terminate", "queue"])
def test_overlap_counts_after_the_approval(bench: Make, policy: str) -> None:
    """An approved run meets the overlap policy when it is approved: until then, it stops no older run."""
    harness = bench(DEPLOY + f'on_overlap = "{policy}"\n')
    first = harness.begin("deploy")
    answer(harness, "approve", first)
    second = harness.begin("deploy")
    assert waits(harness, second)
    assert "stop" not in [message["op"] for message in harness.root.sent]
    answer(harness, "approve", second)
    row = harness.stored(second.id)
    if policy == "skip":
        assert row.end_reason == "skipped"
    else:
        assert row.status == "pending"
        assert ("stop" in [message["op"] for message in harness.root.sent]) == (policy == "terminate")
        harness.exited(first.id)
        harness.settle()
        assert harness.stored(second.id).status == "running"


STEPS = ("build:", 'deploy: after = ["build"]; needs_approval = ["alice"]', 'tell: after = ["deploy"]; when = "end"')


def test_approval_of_a_step(bench: Make) -> None:
    """A step waits for its approval, then it and what follows run; a run of this step alone waits, too."""
    harness = bench(flow(*STEPS))
    run = harness.begin()
    harness.ends("build")
    deploy = harness.run_of("deploy")
    assert waits(harness, deploy)
    harness.next_scheduler()
    deploy = harness.run_of("deploy")
    assert answer(harness, "approve", deploy, by="user eve", person="eve")[0] == 403
    assert answer(harness, "approve", deploy) == (200, "")
    harness.ends("deploy")
    harness.ends("tell")
    assert harness.end_of(run) == ("succeeded", 0)
    assert waits(harness, harness.begin("f:deploy"))


def test_rejection_of_a_step(bench: Make) -> None:
    """A rejected step is stopped: end steps still begin, and the flow ends as stopped."""
    harness = bench(flow(*STEPS))
    run = harness.begin()
    harness.ends("build")
    answer(harness, "reject", harness.run_of("deploy"))
    assert harness.decisions(run)["deploy"] == "stopped (rejected)"
    harness.ends("tell")
    assert harness.end_of(run)[0] == "stopped"


def test_time_limit_of_the_flow(bench: Make) -> None:
    """The time limit of a flow withdraws an open approval."""
    harness = bench(flow(*STEPS, keys='timeout = "1h"'))
    run = harness.begin()
    harness.ends("build")
    deploy = harness.run_of("deploy")
    harness.pass_ms(3_600_000)
    assert approval_of(harness, deploy).answer == "withdrawn"
    assert harness.decisions(run)["deploy"] == "failed (timeout)"
    harness.ends("tell")
    assert harness.end_of(run)[0] == "timeout"


def test_order_of_waits(bench: Make) -> None:
    """A step waits for its delay, the end of a pause and its approval, in this order; a pause asks nobody."""
    harness = bench(flow('a: needs_approval = true; delay = "1m"'))
    harness.begin()
    run = harness.run_of("a")
    assert run.due is not None
    assert run.due.kind == "delay"
    harness.units["f:a"].paused = True
    harness.pass_ms(60_000)
    assert run.due is not None
    assert run.due.kind == "paused"
    assert not notifications.page(harness.store.database, 10)
    harness.units["f:a"].paused = False
    harness.engine.pause_changed(harness.units["f:a"])
    harness.settle()
    assert waits(harness, run)
    answer(harness, "approve", run)
    assert harness.stored(run.id).status == "running"


def test_named_task(bench: Make) -> None:
    """A task asks for its approval inside flows, too; a step that asks for one names who may give it."""
    steps = ('a: task = "deploy"', 'b: task = "deploy"; needs_approval = ["bob"]')
    harness = bench(flow(*steps, more=DEPLOY))
    run = harness.begin()
    for step, person in (("a", "eve"), ("b", "bob")):
        inner = harness.run_of(step)
        assert waits(harness, inner)
        assert answer(harness, "approve", inner, person="mallory")[0] == (200 if step == "a" else 403)
        answer(harness, "approve", inner, person=person)
        harness.ends(step)
    assert harness.end_of(run) == ("succeeded", 0)


def test_flow_that_needs_an_approval(bench: Make) -> None:
    """A flow itself can need an approval: no step begins before, and its time limit begins afterwards."""
    harness = bench(flow("a:", keys='needs_approval = true\ntimeout = "1h"'))
    run = harness.begin()
    assert waits(harness, run)
    assert not harness.going()
    harness.pass_ms(2 * 3_600_000)
    answer(harness, "approve", run)
    assert harness.going() == {"a"}
    harness.ends("a")
    assert harness.end_of(run) == ("succeeded", 0)


def test_removed_task(bench: Make) -> None:
    """A waiting run of a task that left the configuration is stopped at the next start."""
    harness = bench(DEPLOY + '[tasks.other]\nrun = "true"\n')
    run = harness.begin("deploy")
    harness.reload('[tasks.other]\nrun = "true"\n')
    harness.next_scheduler()
    assert harness.stored(run.id).end_reason == "stopped"
    assert approval_of(harness, run).answer == "withdrawn"
