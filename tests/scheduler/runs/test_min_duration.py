"""Successes that took less than ``min_duration``."""

from collections.abc import Callable

import pytest

from supervisor.scheduler.runs.live_units import LiveRun
from tests.scheduler.bench import Bench
from tests.scheduler.notifications.test_notifications import notified

Make = Callable[[str], Bench]
TASK = '[tasks.t]\nrun = "true"\nmin_duration = "30s"\nexit_codes = [0, 7]\n'


def end(harness: Bench, ran_ms: int, *, status: int = 0, cause: str | None = None) -> LiveRun:
    run = harness.trigger("t")
    harness.store.work_all()
    harness.started(run.id)
    harness.exited(run.id, status=status, ran_ms=ran_ms, cause=cause)
    harness.store.work_all()
    return run


@pytest.mark.parametrize(
    ("ran_ms", "status", "cause", "end_reason", "end_cause"),
    [
        (29_999, 0, None, "failed", "too_short"),
        (29_999, 7 << 8, None, "failed", "too_short"),
        (30_000, 0, None, "succeeded", None),
        (1000, 1 << 8, None, "failed", None),
        (1000, 0, "stop", "stopped", None),
        (1000, 15, None, "failed", None),
    ],
)
def test_short_success_fails(
    bench: Make, ran_ms: int, status: int, cause: str | None, end_reason: str, end_cause: str | None
) -> None:
    """A success that took less than min_duration fails with its own cause; other ends stay what they are."""
    harness = bench(TASK)
    row = harness.row(end(harness, ran_ms, status=status, cause=cause))
    assert (row.end_reason, row.cause) == (end_reason, end_cause)


def test_message_of_a_short_success(bench: Make) -> None:
    """The notification says how long the run took, and how long it had to take."""
    harness = bench(TASK)
    run = end(harness, 3000)
    (failure,) = notified(harness)
    assert (failure.kind, failure.body) == (
        "run.failed",
        f"Run {run.id}: failed: it took 3s, and min_duration is 30s.",
    )


def test_short_success_is_retried(bench: Make) -> None:
    """A run that was too short is retried like any other failure."""
    harness = bench(TASK + "retry_attempts = 1\n")
    run = end(harness, 3000)
    (retry,) = harness.units["t"].waiting.values()
    assert (retry.retry_of, retry.attempt) == (run.id, 1)


def test_warning_only(bench: Make) -> None:
    """With too_short = "warn", a short success stays a success and raises only a warning."""
    harness = bench(TASK + 'too_short = "warn"\n')
    row = harness.row(end(harness, 3000))
    assert (row.end_reason, row.cause, row.exit_code) == ("succeeded", None, 0)
    (warning,) = notified(harness)
    assert (warning.kind, warning.severity, warning.run_id) == ("run.short", "warn", row.id)
    end(harness, 30_000)
    assert len(notified(harness)) == 1
