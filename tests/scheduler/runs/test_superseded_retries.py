"""Retries of an instant after the success of a newer one."""

from collections.abc import Callable

import pytest

from store import notifications
from store.runs.ids import new_ulid
from store.runs.writes import newest_successes
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest
from supervisor.scheduler.runs.retry import SUPERSEDED_BY
from supervisor.scheduler.startup_shutdown.take_over import make_units
from tests.scheduler.bench import Bench

Make = Callable[[str], Bench]

TASK = '[tasks.t]\nrun = "true"\nretry_attempts = 2\nretry_delay = "1h"\n'
FAILED = 1 << 8


def scheduled(harness: Bench, at: int | None) -> LiveRun:
    """Create and start a run for a scheduled instant, or for a request if `at` is None."""
    unit, change = harness.units["t"], harness.committer.change()
    assert unit.task is not None
    trigger = "api" if at is None else "cron"
    run = harness.engine.create_task_run(
        unit, unit.task, change, RunRequest(trigger=trigger, run_id=new_ulid(), scheduled_at=at)
    )
    harness.committer.commit(change)
    harness.store.work_all()
    harness.started(run.id)
    harness.store.work_all()
    return run


def ends(harness: Bench, run: LiveRun, status: int) -> None:
    harness.exited(run.id, status=status)
    harness.store.work_all()


def waiting(harness: Bench) -> list[LiveRun]:
    return [*harness.units["t"].waiting.values()]


def test_newer_success_supersedes_a_retry(bench: Make) -> None:
    """A newer success ends the retry of an older instant as skipped, with the reason, and nothing follows it."""
    harness = bench(TASK)
    ends(harness, scheduled(harness, 1000), FAILED)
    (retry,) = waiting(harness)
    ends(harness, scheduled(harness, 2000), 0)
    row = harness.row(retry)
    assert (row.status, row.end_reason, row.stopped_by) == ("ended", "skipped", SUPERSEDED_BY)
    assert row.cause == "superseded"
    assert waiting(harness) == []


@pytest.mark.parametrize(
    ("keys", "first", "second", "status"),
    [
        ("", 1000, 2000, FAILED),
        ("", 2000, 1000, 0),
        ("", 1000, None, 0),
        ("", None, 2000, 0),
        ("retry_superseded = true\n", 1000, 2000, 0),
        ("catch_up = 2\n", 1000, 2000, 0),
        ("max_concurrent = 2\n", 1000, 2000, 0),
        ("coalesce = false\n", 1000, 2000, 0),
    ],
)
def test_not_superseded(bench: Make, keys: str, first: int | None, second: int | None, status: int) -> None:
    """A retry stays if nothing newer has succeeded, if a client triggered either run, or if each run counts."""
    harness = bench(TASK + keys)
    ends(harness, scheduled(harness, first), FAILED)
    (retry,) = waiting(harness)
    ends(harness, scheduled(harness, second), status)
    assert retry in waiting(harness)


def test_failure_after_a_newer_success(bench: Make) -> None:
    """An older run that fails after a newer one has succeeded is not retried."""
    harness = bench(TASK + "max_concurrent = 2\nretry_superseded = false\n")
    older, newer = scheduled(harness, 1000), scheduled(harness, 2000)
    ends(harness, newer, 0)
    assert newest_successes(harness.store.database) == {"t": 2000}
    ends(harness, older, FAILED)
    assert waiting(harness) == []
    rows = harness.store.database.rows("SELECT stopped_by FROM runs WHERE retry_of_run_id = ?", [older.id])
    assert [tuple(row) for row in rows] == [(SUPERSEDED_BY,)]
    assert newest_successes(harness.store.database) == {}


@pytest.mark.parametrize("removed", [False, True])
def test_failure_without_a_retry_is_reported(bench: Make, removed: bool) -> None:
    """A failure is final if a newer success or the removal of its task prevents the retry."""
    harness = bench(TASK + "max_concurrent = 2\nretry_superseded = false\n")
    older, newer = scheduled(harness, 1000), scheduled(harness, 2000)
    ends(harness, newer, 0)
    assert notifications.page(harness.store.database, 10) == []
    if removed:
        harness.units["t"].newest_success = None
        harness.units["t"].configured = False
    ends(harness, older, FAILED)
    (notification,) = notifications.page(harness.store.database, 10)
    assert notification.run_id == older.id
    assert "retry follows" not in notification.body
    assert harness.units["t"].failures == 1


def test_scheduler_restart(bench: Make) -> None:
    """A new scheduler knows the newest success of tasks that have unfinished runs."""
    harness = bench(TASK + "max_concurrent = 2\nretry_superseded = false\n")
    scheduled(harness, 1000)
    ends(harness, scheduled(harness, 2000), 0)
    units = make_units(harness.store.database, harness.config, first=False)
    assert units["t"].newest_success == 2000
