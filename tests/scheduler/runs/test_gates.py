"""Scheduled runs that wait for other tasks (``requires``)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store import notifications
from supervisor.scheduler.runs.live_units import LiveRun
from tests.scheduler.runs.schedules import HOUR, MINUTE, Schedules, ms

EXTRACTS = """
[daemon]
timezone = "UTC"
[tasks.a]
run = "true"
cron = "0 2 * * *"
[tasks.b]
run = "true"
cron = "0 1 * * *"
"""
LOAD = '[tasks.load]\nrun = "true"\ncron = "0 3 * * *"\nrequires = ["a", "b"]\ngate_wait = "2h"\n'
GATE = ms("2026-06-01T03:00Z")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Schedules]:
    bench = Schedules(tmp_path, EXTRACTS + LOAD)
    yield bench
    bench.close()


def run_of(harness: Schedules, name: str) -> LiveRun:
    """Return the newest unfinished run of a task."""
    return [run for run in harness.engine.live.values() if run.unit.name == name][-1]


def ends(harness: Schedules, run: LiveRun, status: int = 0) -> None:
    harness.exited(run.id, status=status << 8)
    for _ in range(3):
        harness.look()


def waits(harness: Schedules, run: LiveRun) -> bool:
    return harness.row(run).due_kind == "gate"


def test_waits_for_all(harness: Schedules) -> None:
    """A run starts once the newest instants of all required tasks have succeeded, each in its own time."""
    harness.until(GATE)
    load = run_of(harness, "load")
    assert (harness.row(load).due_at, harness.row(load).due_kind) == (GATE + 2 * HOUR, "gate")
    ends(harness, run_of(harness, "a"))
    assert waits(harness, load)
    ends(harness, run_of(harness, "b"), status=1)
    assert waits(harness, load)
    again = harness.trigger("b")
    harness.store.work_all()
    harness.root.sent.clear()
    ends(harness, again)
    assert load.id in harness.root.take("spawn")
    assert harness.row(load).due_kind is None


def test_open_gate(harness: Schedules) -> None:
    """A run whose required tasks have succeeded starts at its time; a run by hand asks nobody."""
    manual = harness.trigger("load")
    harness.store.work_all()
    ends(harness, manual)
    for name, at in (("b", GATE - 2 * HOUR), ("a", GATE - HOUR)):
        harness.until(at)
        ends(harness, run_of(harness, name))
    harness.root.sent.clear()
    harness.until(GATE)
    harness.look()
    assert harness.root.take("spawn") == [run_of(harness, "load").id]


def test_closed_after_restart(harness: Schedules) -> None:
    """A gate that is not open at the end of the wait skips the run, with the reasons, also after a restart."""
    harness.until(GATE)
    load = run_of(harness, "load")
    ends(harness, run_of(harness, "b"), status=1)
    running = run_of(harness, "a")
    harness.dies()
    harness.reconcile([running])
    harness.look()
    assert waits(harness, load)
    harness.until(GATE + 2 * HOUR - 1)
    assert waits(harness, load)
    harness.clock.advance_ms(2)
    for _ in range(3):
        harness.look()
    row = harness.row(load)
    assert (row.end_reason, row.cause, row.stopped_by) == ("skipped", "gate", "requires: a (running), b (failed)")
    told = [one for one in notifications.page(harness.store.database, 10) if one.kind == "run.gate_closed"]
    assert [(one.severity, one.task_name, one.times) for one in told] == [("warn", "load", 1)]


def test_opens_after_restart(harness: Schedules) -> None:
    """A success between two schedulers opens the gate for the next one."""
    harness.until(GATE)
    load = run_of(harness, "load")
    ends(harness, run_of(harness, "b"))
    running = run_of(harness, "a")
    harness.dies()
    harness.reconcile([running])
    harness.root.sent.clear()
    ends(harness, run_of(harness, "a"))
    assert harness.root.take("spawn") == [load.id]


def test_waiting_run_makes_the_next_one_unnecessary(tmp_path: Path) -> None:
    """A run that waits at its gate counts as waiting: the next scheduled time is skipped."""
    harness = Schedules(tmp_path, EXTRACTS + LOAD.replace("0 3 *", "0 3,4 *"))
    harness.until(GATE)
    load = run_of(harness, "load")
    harness.until(GATE + HOUR)
    assert [run.id for run in harness.units["load"].waiting.values()] == [load.id]
    assert run_of(harness, "load") is load
    harness.until(GATE + HOUR + MINUTE)
    harness.close()


def test_stopped_and_paused(harness: Schedules) -> None:
    """A waiting run can be stopped; a paused task that had no run keeps the gate closed, and the record says so."""
    harness.until(GATE - 90 * MINUTE)
    ends(harness, run_of(harness, "b"))
    harness.units["a"].paused = True
    harness.until(GATE)
    load = run_of(harness, "load")
    harness.until(GATE + 2 * HOUR)
    harness.clock.advance_ms(2)
    for _ in range(3):
        harness.look()
    assert harness.row(load).stopped_by == "requires: a (paused)"
    harness.until(GATE + 24 * HOUR)
    stopped = run_of(harness, "load")
    harness.stop(stopped)
    harness.store.work_all()
    assert harness.row(stopped).end_reason == "stopped"
