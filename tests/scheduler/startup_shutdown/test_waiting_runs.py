"""Runs that are not yet due when the next scheduler takes over."""

from pathlib import Path

import pytest

from store.runs.writes import update_run
from supervisor.scheduler.runs.live_units import Due, LiveRun
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
FAILED = 1 << 8


def starts_after(harness: Bench, clock: FakeClock, wait_ms: int) -> bool:
    """Let the time pass; return whether the run starts at its end, and not a millisecond earlier."""
    harness.root.sent.clear()
    has_spawned = []
    for by_ms in (wait_ms - 1, 1):
        clock.advance_ms(by_ms)
        harness.loop.round(0)
        harness.store.work_all()
        has_spawned.append(bool(harness.root.take("spawn")))
    return has_spawned == [False, True]


@pytest.mark.parametrize(
    ("keys", "back_ms", "wait_ms"),
    [
        ('retry_delay = "1h"', 0, HOUR_MS - 2 * MINUTE_MS),
        ('retry_delay = "1h"', 5 * HOUR_MS, HOUR_MS),
        ('retry_delay = "3m"', 0, MINUTE_MS),
        ('retry_delay = "3m"', 5 * HOUR_MS, 5 * MINUTE_MS),
    ],
    ids=("long", "long, clock set back", "short", "short, clock set back"),
)
def test_restart_does_not_shorten_a_retry_delay(tmp_path: Path, keys: str, back_ms: int, wait_ms: int) -> None:
    """The retry starts when it is due, and a backward step adds at most the longest configured delay."""
    clock = FakeClock()
    harness = Bench(tmp_path, f'[tasks.t]\nrun = "false"\nretry_attempts = 1\n{keys}\n', clock)
    try:
        run = harness.trigger("t")
        harness.store.work_all()
        harness.started(run.id)
        harness.exited(run.id, status=FAILED)
        harness.store.work_all()
        clock.advance_ms(2 * MINUTE_MS)
        clock.wall -= back_ms
        harness.restart()
        assert starts_after(harness, clock, wait_ms)
    finally:
        harness.close()


def waiting(harness: Bench, clock: FakeClock, kind: str) -> LiveRun:
    """Let a run wait for an hour."""
    run = harness.trigger("t")
    due = Due(kind, clock.wall + HOUR_MS)
    harness.engine.wait(run, due)
    change = harness.committer.change()
    change.write(lambda db: update_run(db, run.id, due_at=due.at, due_kind=due.kind))
    harness.committer.commit(change)
    harness.store.work_all()
    return run


@pytest.mark.parametrize("kind", ["retry", "at", "delay"])
def test_only_retries_are_shortened(tmp_path: Path, kind: str) -> None:
    """A run that waits for something else than its retry keeps its time, even if it is later than any retry delay."""
    clock = FakeClock()
    harness = Bench(tmp_path, '[tasks.t]\nrun = "true"\nretry_delay = "1m"\nretry_max_delay = "1m"\n', clock)
    try:
        waiting(harness, clock, kind)
        clock.advance_ms(2 * MINUTE_MS)
        harness.restart()
        assert harness.units["t"].waiting
        assert starts_after(harness, clock, MINUTE_MS if kind == "retry" else HOUR_MS - 2 * MINUTE_MS)
    finally:
        harness.close()


@pytest.mark.parametrize(("kind", "wait_ms"), [("at", HOUR_MS - 20 * MINUTE_MS), ("delay", HOUR_MS)])
def test_step_of_the_clock(tmp_path: Path, kind: str, wait_ms: int) -> None:
    """Only a requested time follows a step of the wall clock; all others count the time that has passed."""
    clock = FakeClock()
    harness = Bench(tmp_path, '[tasks.t]\nrun = "true"\n', clock)
    try:
        waiting(harness, clock, kind)
        clock.wall += 20 * MINUTE_MS
        harness.engine.clock_stepped(20 * MINUTE_MS)
        assert starts_after(harness, clock, wait_ms)
    finally:
        harness.close()


def test_wait_that_ended_early(tmp_path: Path) -> None:
    """A run whose wait was ended before its time does not wait again after a restart."""
    clock = FakeClock()
    harness = Bench(tmp_path, '[tasks.t]\nrun = "true"\n', clock)
    try:
        harness.engine.hold_admission(True)
        run = waiting(harness, clock, "approval")
        harness.engine.end_wait(run)
        harness.store.work_all()
        harness.restart()
        assert harness.root.take("spawn") == [run.id]
    finally:
        harness.close()


def test_stop_of_a_waiting_run(tmp_path: Path) -> None:
    """A run that is not yet due can be stopped, holds no place meanwhile, and does not start afterwards."""
    clock = FakeClock()
    harness = Bench(tmp_path, '[tasks.t]\nrun = "true"\non_overlap = "skip"\n', clock)
    try:
        run = waiting(harness, clock, "delay")
        other = harness.trigger("t")
        harness.store.work_all()
        assert harness.row(other).status == "pending"
        harness.stop(run)
        harness.store.work_all()
        assert (harness.row(run).end_reason, harness.units["t"].waiting) == ("stopped", {})
    finally:
        harness.close()
