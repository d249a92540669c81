"""Flows on the bench: what begins, what is decided, how they end."""

import pytest

from store import notifications
from store.runs.flows import get_flow
from supervisor.ipc.probe_request import RequestFailed
from tests.scheduler.flows.playing import FAILED, Make, flow

CHAIN = ("extract:", 'report: after = ["extract"]; optional = true', 'publish: after = ["report"]')


def test_steps_begin_one_after_the_other(bench: Make) -> None:
    """A flow is active at once without a process; a step begins when the one before has succeeded."""
    harness = bench(flow("a:", 'b: after = ["a"]'))
    run = harness.begin()
    assert harness.stored(run.id).status == "running"
    assert harness.going() == {"a"}
    first = harness.run_of("a")
    row = harness.stored(first.id)
    assert (row.task_name, row.flow_run_id, row.step, row.triggered_by, row.scheduled_at) == (
        "f:a",
        run.id,
        "a",
        "api",
        None,
    )
    harness.ends("a")
    assert harness.going() == {"b"}
    assert harness.stored(run.id).status == "running"
    harness.ends("b")
    assert harness.end_of(run) == ("succeeded", 0)
    assert harness.decisions(run) == {"a": "succeeded", "b": "succeeded"}
    assert not harness.units["f"].active


def test_end_and_what_follows_are_one_change(bench: Make) -> None:
    """The end of a step, the decision, the next step's run and the flow's end are stored in one transaction."""
    harness = bench(flow("a:", 'b: after = ["a"]'))
    run = harness.begin()
    harness.exited(harness.run_of("a").id)
    harness.loop.round(0)
    harness.store.work()
    assert harness.stored(harness.run_of("b").id).status == "pending"
    assert harness.decisions(run) == {"a": "succeeded", "b": None}
    harness.settle()
    harness.exited(harness.run_of("b").id)
    harness.loop.round(0)
    harness.store.work()
    assert harness.end_of(run) == ("succeeded", 0)


def test_failure_behind_an_optional_step(bench: Make) -> None:
    """An optional step that did not begin because of a failure passes it on, so publish does not run."""
    harness = bench(flow(*CHAIN))
    run = harness.begin()
    harness.ends("extract", 7 << 8)
    assert harness.end_of(run) == ("failed", 7)
    assert harness.decisions(run) == {
        "extract": "failed",
        "report": "failed (upstream)",
        "publish": "failed (upstream)",
    }
    (record, _) = get_flow(harness.store.database, run.id) or (None, [])
    assert record is not None
    assert record.failed_step == "extract"


def test_failure_of_an_optional_step(bench: Make) -> None:
    """A failure of an optional step's own run counts as success."""
    harness = bench(flow(*CHAIN))
    run = harness.begin()
    harness.ends("extract")
    harness.ends("report", FAILED)
    harness.ends("publish")
    assert harness.end_of(run) == ("succeeded", 0)


def test_alarm_behind_a_failed_chain(bench: Make) -> None:
    """The alarm behind the end of a failed chain runs, and its success does not heal the flow."""
    harness = bench(flow(*CHAIN, 'alarm: after = ["publish"]; when = "failure"'))
    run = harness.begin()
    harness.ends("extract", FAILED)
    assert harness.going() == {"alarm"}
    harness.ends("alarm")
    assert harness.end_of(run) == ("failed", 1)


def test_retries_of_a_step(bench: Make) -> None:
    """A step is decided after its last retry."""
    harness = bench(flow('a: retry_attempts = 2; retry_delay = "1s"', 'b: after = ["a"]'))
    run = harness.begin()
    harness.ends("a", FAILED)
    assert harness.decisions(run) == {"a": None}
    harness.pass_ms(1000)
    retry = harness.run_of("a")
    assert (retry.attempt, harness.stored(retry.id).flow_run_id) == (1, run.id)
    harness.ends("a")
    harness.ends("b")
    assert harness.end_of(run) == ("succeeded", 0)


def test_retries_of_defaults_are_not_for_steps(bench: Make) -> None:
    """retry_attempts of [defaults] applies neither to a flow nor to its steps."""
    harness = bench(flow("a:", more="[defaults]\nretry_attempts = 2\n"))
    run = harness.begin()
    harness.ends("a", FAILED)
    assert harness.end_of(run) == ("failed", 1)
    assert not harness.engine.live


def test_named_task(bench: Make) -> None:
    """A step with task makes runs of that task with its parameters; max_concurrent of the task holds."""
    more = '[tasks.load]\nrun = ["load"]\nparams = [{ name = "day", kind = "env" }]\n'
    harness = bench(
        flow(
            'a: task = "load"; params = { day = "${param:day}" }',
            'b: task = "load"',
            keys='params = [{ name = "day", default = "today" }]',
            more=more,
        )
    )
    run = harness.begin()
    rows = [harness.stored(harness.run_of(step).id) for step in ("a", "b")]
    assert {row.task_name for row in rows} == {"load"}
    assert (rows[0].params, rows[1].params) == ({"day": "today"}, None)
    assert [row.status for row in rows] == ["running", "pending"]
    harness.ends("a")
    harness.ends("b")
    assert harness.end_of(run) == ("succeeded", 0)


def test_flow_in_a_flow(bench: Make) -> None:
    """A flow can be a step; its failure is that of the step, with the exit code of its own step."""
    inner = flow("x:", name="inner")
    harness = bench(flow('a: task = "inner"', 'b: after = ["a"]; when = "end"', more=inner))
    run = harness.begin()
    assert harness.going() == {"a", "x"}
    harness.ends("x", 3 << 8)
    assert harness.going() == {"b"}
    harness.ends("b")
    assert harness.end_of(run) == ("failed", 3)


def test_stop_of_a_flow(bench: Make) -> None:
    """A stop stops the runs and begins nothing more, handlers neither; waiting runs end at once."""
    harness = bench(
        flow("a:", 'b: delay = "1h"', 'c: after = ["a"]; when = "end"', 'd: after = ["b"]; when = "failure"')
    )
    run = harness.begin()
    waiting = harness.run_of("b")
    harness.stop(run)
    assert harness.root.take("stop") == [harness.run_of("a").id]
    harness.settle()
    row = harness.stored(waiting.id)
    assert (row.end_reason, row.cause) == ("stopped", "flow_stopped")
    first = harness.run_of("a")
    harness.ends("a", 15, "stop")
    assert harness.stored(first.id).cause == "flow_stopped"
    assert harness.end_of(run)[0] == "stopped"
    assert harness.decisions(run) == {
        "a": "stopped (flow_stopped)",
        "b": "stopped (flow_stopped)",
        "c": "stopped (flow_stopped)",
        "d": "passed_over (upstream)",
    }


def test_no_retry_in_a_stopped_flow(bench: Make) -> None:
    """A step that fails while its flow stops is not tried again."""
    harness = bench(flow("a: retry_attempts = 3"))
    run = harness.begin()
    harness.stop(run)
    harness.ends("a", FAILED)
    assert not harness.engine.live
    assert harness.end_of(run)[0] == "stopped"


def test_stop_of_a_step(bench: Make) -> None:
    """A stopped step stops what follows, except end steps; the flow ends as stopped."""
    harness = bench(flow("a:", 'b: after = ["a"]', 'c: after = ["a"]; when = "end"'))
    run = harness.begin()
    harness.stop(harness.run_of("a"))
    harness.ends("a", 15, "stop")
    assert harness.going() == {"c"}
    harness.ends("c")
    assert harness.end_of(run)[0] == "stopped"


def test_time_limit_with_an_alarm(bench: Make) -> None:
    """At the limit, success steps end as timeout, and the alarm begins; its own run has ten minutes."""
    harness = bench(
        flow(
            "a: retry_attempts = 2", 'b: after = ["a"]', 'alarm: after = ["b"]; when = "failure"', keys='timeout = "1h"'
        )
    )
    run = harness.begin()
    harness.pass_ms(3_600_000)
    first = harness.run_of("a")
    assert harness.root.sent[-1]["cause"] == "timeout"
    assert harness.going() == {"a", "alarm"}
    harness.ends("a", 15, "timeout")
    assert harness.stored(first.id).end_reason == "timeout"
    assert harness.going() == {"alarm"}
    harness.root.sent.clear()
    harness.pass_ms(599_999)
    assert harness.root.take("stop") == []
    harness.pass_ms(1)
    assert harness.root.take("stop") == [harness.run_of("alarm").id]
    harness.ends("alarm", 15, "timeout")
    assert harness.end_of(run)[0] == "timeout"
    assert harness.decisions(run) == {
        "a": "failed (timeout)",
        "b": "failed (timeout)",
        "alarm": "failed (timeout)",
    }


def test_limit_that_passed_while_no_scheduler_ran(bench: Make) -> None:
    """The time limit is a time of the wall clock; one that passed acts at the takeover."""
    harness = bench(flow("a:", 'b: after = ["a"]', keys='timeout = "1h"'))
    run = harness.begin()
    harness.clock.advance_ms(7_200_000)
    harness.next_scheduler()
    harness.pass_ms(0)
    assert harness.decisions(run) == {"a": "failed (timeout)", "b": "failed (timeout)"}
    harness.ends("a", 15, "timeout")
    assert harness.end_of(run)[0] == "timeout"


def test_delay(bench: Make) -> None:
    """A step with delay waits that long once it may begin, also over a restart."""
    harness = bench(flow("a:", 'b: after = ["a"]; delay = "10m"'))
    run = harness.begin()
    harness.ends("a")
    row = harness.stored(harness.run_of("b").id)
    assert (row.status, row.due_kind) == ("pending", "delay")
    harness.pass_ms(300_000)
    harness.next_scheduler()
    harness.pass_ms(299_999)
    assert harness.stored(row.id).status == "pending"
    harness.pass_ms(1)
    assert harness.stored(row.id).status == "running"
    harness.ends("b")
    assert harness.end_of(run) == ("succeeded", 0)


def test_paused_step(bench: Make) -> None:
    """A paused step holds its runs inside flows, also over a restart; manual runs of the step start."""
    harness = bench(flow("a:"))
    harness.units["f:a"].paused = True
    run = harness.begin()
    inner = harness.run_of("a")
    assert inner.due is not None
    assert inner.due.kind == "paused"
    alone = harness.trigger("f:a")
    harness.settle()
    assert harness.stored(alone.id).status == "running"
    harness.exited(alone.id)
    harness.settle()
    assert harness.stored(run.id).status == "running"
    unit = harness.units["f:a"]
    unit.paused = False
    harness.engine.pause_changed(unit)
    harness.settle()
    harness.ends("a")
    assert harness.end_of(run) == ("succeeded", 0)


@pytest.mark.parametrize(
    ("policy", "reason", "second_runs"),
    [("queue", "succeeded", False), ("skip", "skipped", False), ("terminate", "succeeded", True)],
)
def test_flow_that_overlaps_itself(bench: Make, policy: str, reason: str, second_runs: bool) -> None:
    """on_overlap of a flow counts flows: the second one waits, is skipped, or stops the first."""
    harness = bench(flow("a:", keys=f'on_overlap = "{policy}"'))
    first = harness.begin()
    second = harness.begin()
    harness.settle()
    assert harness.stored(second.id).status == ("ended" if policy == "skip" else "pending")
    harness.ends("a", *((15, "stop") if second_runs else ()))
    assert harness.end_of(first)[0] == ("stopped" if second_runs else "succeeded")
    if policy != "skip":
        harness.ends("a")
    assert harness.end_of(second)[0] == reason


def test_runs_inside_flows_escape_the_overlap_policy(bench: Make) -> None:
    """Runs inside flows are neither refused nor stopped by their task's policy, and do not fill its queue."""
    task = '[tasks.t]\nrun = "true"\non_overlap = "{}"\nqueue_max = 0\n'
    harness = bench(flow('a: task = "t"', keys="max_concurrent = 2", more=task.format("terminate")))
    flows = [harness.begin(), harness.begin()]
    other = harness.trigger("t")
    harness.settle()
    assert harness.root.take("stop") == []
    assert [run.place is not None for run in harness.units["t"].queue] == [True, False]
    for _ in range(2):
        running = next(iter(harness.units["t"].active.values()))
        harness.exited(running.id)
        harness.settle()
    assert [harness.end_of(run)[0] for run in flows] == ["succeeded"] * 2
    assert harness.stored(other.id).status == "running"


def test_two_flows_and_a_slot_of_size_1(bench: Make) -> None:
    """Steps of two flows that need the same places run one after the other, and both flows end."""
    slot = 'uses = ["one", "two"]'
    harness = bench(
        flow(
            f"a: {slot}",
            f'b: {slot}; after = ["a"]',
            keys="max_concurrent = 2",
            more="[slots]\none.size = 1\ntwo.size = 1\n",
        )
    )
    flows = [harness.begin(), harness.begin()]
    for _ in range(4):
        (running,) = harness.engine.at_root()
        harness.exited(running.id)
        harness.settle()
    assert [harness.end_of(run)[0] for run in flows] == ["succeeded"] * 2


def test_flows_do_not_count_in_max_running(bench: Make) -> None:
    """Two flows run under max_running = 1; their steps take the place in turn."""
    harness = bench(flow("a:", keys="max_concurrent = 2", more="[daemon]\nmax_running = 1\n"))
    flows = [harness.begin(), harness.begin()]
    assert [harness.stored(run.id).status for run in flows] == ["running"] * 2
    assert harness.engine.task_load() == (1, 1)


def test_removed_task(bench: Make) -> None:
    """A step whose task left the configuration is decided as failed, with the cause removed."""
    harness = bench(flow("a:", 'b: after = ["a"]; task = "t"', 'c: after = ["a"]', more='[tasks.t]\nrun = "true"\n'))
    run = harness.begin()
    del harness.units["t"]
    harness.ends("a")
    harness.ends("c")
    assert harness.decisions(run)["b"] == "failed (removed)"
    assert harness.end_of(run) == ("failed", 1)


def test_daemon_is_stopped_in_the_middle(bench: Make) -> None:
    """Only the interrupted step ends; what waits goes on with the next daemon, then the flow is daemon_stopped."""
    harness = bench(flow("a:", 'b: delay = "1h"', 'c: after = ["a"]', 'd: after = ["a"]; when = "end"'))
    run = harness.begin()
    harness.daemon.ending = True
    for one in list(harness.engine.live.values()):
        harness.stop(one, cause="shutdown") if one.id in (run.id, harness.run_of("a").id) else None
    harness.ends("a", 15, "shutdown")
    assert harness.stored(run.id).status == "running"
    assert harness.engine.at_root() == []
    harness.daemon.ending = False
    harness.next_scheduler([])
    assert harness.going() == {"b", "d"}
    harness.ends("d")
    harness.pass_ms(3_600_000)
    harness.ends("b")
    assert harness.decisions(run)["c"] == "stopped (upstream)"
    assert harness.end_of(run)[0] == "daemon_stopped"


def test_takeover_adopts_steps(bench: Make) -> None:
    """The next scheduler does not ask the root for flows; it adopts their steps, and goes on."""
    harness = bench(flow("a:", "b:", 'c: after = ["a", "b"]', 'd: after = ["c"]'))
    run = harness.begin()
    harness.ends("a")
    harness.next_scheduler()
    assert harness.going() == {"b"}
    harness.ends("b")
    harness.next_scheduler()
    harness.ends("c")
    harness.ends("d")
    assert harness.end_of(run) == ("succeeded", 0)


def test_step_that_died_with_the_root(bench: Make) -> None:
    """A step whose run the root no longer knows has crashed; the flow goes on by the table."""
    harness = bench(flow("a:", 'b: after = ["a"]; when = "end"'))
    run = harness.begin()
    harness.next_scheduler([])
    harness.ends("b")
    assert harness.end_of(run) == ("failed", 1)


def test_restored_copy_of_the_database(bench: Make) -> None:
    """After an older copy of the database was restored, open flows end as crashed, and their runs are stopped."""
    harness = bench(flow("a:", 'b: after = ["a"]'))
    run = harness.begin()
    harness.next_scheduler(again=True)
    assert harness.root.take("stop") == [harness.run_of("a").id]
    assert harness.end_of(run)[0] == "crashed"
    harness.ends("a", 15, "stop")
    assert not harness.engine.live


def test_stop_is_remembered(bench: Make) -> None:
    """A flow that was stopped begins nothing after a restart of the scheduler, either."""
    harness = bench(flow("a:", 'b: after = ["a"]; when = "end"'))
    run = harness.begin()
    harness.stop(run)
    harness.settle()
    harness.next_scheduler()
    harness.ends("a", 15, "stop")
    assert harness.end_of(run)[0] == "stopped"


def test_reload_changes_nothing_of_the_graph(bench: Make) -> None:
    """A flow that runs keeps the steps with which it began; its next run has the new ones."""
    harness = bench(flow("a:", 'b: after = ["a"]'))
    run = harness.begin()
    harness.reload(flow("a:", "b:", "c:"))
    harness.next_scheduler()
    harness.ends("a")
    harness.ends("b")
    assert harness.end_of(run) == ("succeeded", 0)
    harness.begin()
    assert harness.going() == {"a", "b", "c"}


def test_notifications_are_those_of_the_flow(bench: Make) -> None:
    """A failed step is reported once, by its flow, whose message says which step failed and how."""
    harness = bench(flow("a:", 'alarm: after = ["a"]; when = "failure"'))
    harness.begin()
    harness.ends("a", 3 << 8)
    harness.ends("alarm")
    listed = notifications.page(harness.store.database, 10)
    assert [(one.kind, one.task_name) for one in listed] == [("run.failed", "f")]
    assert "failed: step a failed with exit code 3." in listed[0].body
    assert harness.units["f:a"].failures == 0


def test_condition_of_a_step(bench: Make) -> None:
    """A step whose condition says no is passed over, and so is what follows; an optional one counts as success."""
    harness = bench(
        flow(
            'a: only_if = "test -e /srv"',
            'b: after = ["a"]',
            'c: only_if = "test -e /srv"; optional = true',
            'd: after = ["c"]',
        )
    )
    run = harness.begin()
    for step in ("a", "c"):
        key = f"{harness.run_of(step).id}/only_if"
        harness.watcher.open.pop(key)[1](RequestFailed(key, "no", 1))
        harness.settle()
    assert harness.going() == {"d"}
    harness.ends("d")
    assert harness.end_of(run) == ("succeeded", 0)
    assert harness.decisions(run) == {
        "a": "passed_over (condition)",
        "b": "passed_over (upstream)",
        "c": "succeeded (condition)",
        "d": "succeeded",
    }
