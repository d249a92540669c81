"""Runs that are requested for a later time."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import notifications
from store.runs.ids import new_ulid
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.fake_clock import START_MS, FakeClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
AT = START_MS + HOUR_MS

Make = Callable[[str], tuple[Bench, FakeClock]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    benches: list[Bench] = []

    def make(keys: str) -> tuple[Bench, FakeClock]:
        clock = FakeClock()
        benches.append(Bench(tmp_path, f'[tasks.t]\nrun = "true"\n{keys}\n', clock))
        return benches[-1], clock

    yield make
    for harness in benches:
        harness.close()


def requested(harness: Bench) -> LiveRun:
    run = harness.trigger("t", at=AT)
    harness.store.work_all()
    return run


def pass_time(harness: Bench, clock: FakeClock, by_ms: int) -> list[str]:
    """Let time pass; return the runs that start then."""
    harness.root.sent.clear()
    clock.advance_ms(by_ms)
    harness.loop.round(0)
    harness.store.work_all()
    return harness.root.take("spawn")


def test_run_starts_at_its_time(make: Make) -> None:
    """A run starts at the requested time, not before; until then it takes no place and no place in the queue."""
    harness, clock = make('on_overlap = "skip"')
    run = requested(harness)
    assert (harness.row(run).due_at, harness.row(run).due_kind) == (AT, "at")
    assert pass_time(harness, clock, HOUR_MS - 1) == []
    other = harness.trigger("t")
    harness.store.work_all()
    harness.exited(other.id)
    harness.store.work_all()
    assert pass_time(harness, clock, 1) == [run.id]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [("on_overlap = 'skip'", "skipped"), ("on_overlap = 'queue'\nqueue_max = 0", "queue_full")],
)
def test_overlap_is_decided_at_the_time(make: Make, policy: str, reason: str) -> None:
    """The overlap policy refuses a run if another one is active at its time, and a message tells it."""
    harness, clock = make(policy)
    run = requested(harness)
    harness.trigger("t")
    harness.store.work_all()
    assert harness.row(run).status == "pending"
    assert pass_time(harness, clock, HOUR_MS) == []
    assert (harness.row(run).end_reason, harness.row(run).cause) == (reason, None)
    (told,) = notifications.page(harness.store.database, 10)
    assert told.run_id == run.id


def test_requested_run_terminates_an_older_one(make: Make) -> None:
    """With `terminate`, the older run is stopped at the requested time."""
    harness, clock = make('on_overlap = "terminate"')
    run = requested(harness)
    older = harness.trigger("t")
    harness.store.work_all()
    harness.started(older.id)
    assert pass_time(harness, clock, HOUR_MS) == []
    assert harness.root.take("stop") == [older.id]
    harness.exited(older.id, cause="stop")
    harness.store.work_all()
    assert harness.root.take("spawn") == [run.id]


@pytest.mark.parametrize(
    ("keys", "late_ms", "starts"),
    [
        ("", -MINUTE_MS, True),
        ("", HOUR_MS, True),
        ('catch_up_window = "30m"', HOUR_MS, False),
        ("catch_up = 0", MINUTE_MS, True),
        ("catch_up = 0", MINUTE_MS + 1, False),
    ],
)
def test_restart_over_the_time(make: Make, keys: str, late_ms: int, starts: bool) -> None:
    """A run whose time passes while no scheduler runs is caught up by the rules of its task, or recorded as missed."""
    harness, clock = make(keys)
    run = requested(harness)
    clock.advance_ms(HOUR_MS + late_ms)
    harness.restart()
    started = pass_time(harness, clock, max(0, -late_ms))
    if starts:
        assert started == [run.id]
        return
    assert (started, harness.row(run).end_reason) == ([], "missed")
    (told,) = notifications.page(harness.store.database, 10)
    assert (told.kind, told.run_id) == ("run.missed", run.id)


def test_restart_after_the_time(make: Make) -> None:
    """A run that waits for a place since its time is not decided about again, however late it gets its place."""
    harness, clock = make("catch_up = 0")
    run = requested(harness)
    harness.trigger("t")
    harness.store.work_all()
    assert pass_time(harness, clock, HOUR_MS) == []
    assert harness.units["t"].queue == [run]
    clock.advance_ms(HOUR_MS)
    harness.restart()
    assert {run.id} < {queued.id for queued in (*harness.engine.live.values(),)}
    assert (harness.row(run).status, harness.units["t"].waiting) == ("pending", {})


def test_listed_and_limited(make: Make) -> None:
    """A task lists its requested runs among its next times; a thousand may wait, a further request gets 409."""
    harness, clock = make('cron = "0 0 1 1 *"')
    starts = ScheduledStarts(harness.core, harness.engine)
    units = UnitOperations(harness.core, harness.engine.stop, harness.controller, starts, harness.units)
    ask = operations_of(RunOperations(harness.core, harness.engine, harness.units, {}), units)
    answers: list[dict[str, Any]] = []
    for number in range(1001):
        at = AT + number * MINUTE_MS
        request = {"run": new_ulid(), "task": "t", "triggered_by": "api", "by": "me", "run_at": at}
        ask["trigger"](request, answers.append)
        harness.store.work_all()
    assert [answer["ok"] for answer in answers] == [True] * 1000 + [False]
    assert answers[-1]["status"] == 409
    ask["schedule"]({"task": "t", "count": 2}, answers.append)
    listed = answers[-1]["result"]
    assert [item[0] for item in listed["items"]] == [AT, AT + MINUTE_MS]
    assert listed["runs"] == list(harness.units["t"].waiting)[:2]
    assert clock.wall < AT
