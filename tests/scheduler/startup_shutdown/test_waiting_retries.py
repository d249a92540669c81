"""Retries that still wait when the next scheduler takes over."""

from pathlib import Path
from typing import cast

import pytest

from store.runs.writes import unfinished_runs
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns
from supervisor.scheduler.startup_shutdown.take_over import TakeOver
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
FAILED = 1 << 8


def take_over(harness: Bench) -> None:
    """Start the next scheduler; the root has no runs."""
    harness.take_up(first=False)
    known_runs = KnownRuns(unfinished_runs(harness.store.database), running={}, exits=[], ending=False)
    change = harness.committer.change()
    TakeOver(
        harness.core, harness.engine, harness.controller, cast(RootConnection, harness.root), harness.units
    ).reconcile(known_runs, change)
    harness.committer.commit(change)
    harness.store.work_all()


def starts_after(harness: Bench, clock: FakeClock, wait_ms: int) -> bool:
    """Let the time pass; return whether the retry starts at its end, and not a millisecond earlier."""
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
        take_over(harness)
        assert starts_after(harness, clock, wait_ms)
    finally:
        harness.close()
