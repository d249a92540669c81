"""Retries: which runs are retried, after which delay, and when a newer success supersedes a retry. Pure.

Restarts of services use the same delays.
"""

from collections.abc import Collection

from store.runs.ids import new_ulid
from supervisor.config.model import Task
from supervisor.config.value_types.timing import RETRY_REASONS
from supervisor.scheduler.runs.live_units import Due, LiveRun

RETRIED_REASONS = frozenset(RETRY_REASONS)
"""End reasons after which a run can be retried; a stop or a shutdown is not one of them."""

_MAX_DOUBLINGS = 40


def tried_again(retry_on: Collection[str | int], reason: str, exit_code: int) -> bool:
    """Return whether `retry_on` asks for a retry after this end.

    Args:
        retry_on: end reasons, and exit codes of failed runs.
        reason: the end reason of the run.
        exit_code: the exit code of the run.
    """
    if reason not in RETRIED_REASONS:
        return False
    return reason in retry_on or (reason == "failed" and exit_code in retry_on)


def delay_ms(kind: str, base_ms: int, max_ms: int, attempt: int) -> int:
    """Return the delay before attempt number `attempt`; 1 is the first retry.

    Args:
        kind: ``constant`` (base), ``linear`` (base x attempt) or ``exponential`` (base x 2^(attempt - 1)).
        base_ms: the configured delay.
        max_ms: limit of the growing delay; a base above it stays constant.
        attempt: from 1.
    """
    if kind == "constant":
        delay = base_ms
    elif kind == "linear":
        delay = base_ms * attempt
    else:
        delay = base_ms << min(attempt - 1, _MAX_DOUBLINGS)
    return min(delay, longest_delay_ms(base_ms, max_ms))


def next_attempt(run: LiveRun, task: Task, now_ms: int) -> tuple[LiveRun, Due]:
    """Return the retry of a run, and its delay; it needs no approval of its own."""
    again = LiveRun(
        run.unit,
        run.unit.definition,
        new_ulid(now_ms),
        trigger=run.trigger,
        created_at=now_ms,
        attempt=run.attempt + 1,
        retry_of=run.id,
        scheduled_at=run.scheduled_at,
        params=run.params,
        files=run.files,
        by=run.by,
        place=run.place,
        unconditional=run.unconditional,
    )
    delay = delay_ms(task.retry_backoff, task.retry_delay_ms, task.retry_max_delay_ms, again.attempt)
    return again, Due("retry", now_ms + delay)


def longest_delay_ms(base_ms: int, max_ms: int) -> int:
    """Return the longest delay of any attempt; see :func:`delay_ms` for the arguments."""
    return max(base_ms, max_ms)


SUPERSEDED_BY = "retry_superseded: a newer time of the schedule has succeeded"
"""The requester that is recorded when a superseded retry stops."""


def note_success(run: LiveRun) -> list[LiveRun]:
    """Record that a run succeeded; return the waiting retries that it supersedes."""
    unit = run.unit
    if run.scheduled_at is None or unit.task is None:
        return []
    unit.newest_success = max(unit.newest_success or 0, run.scheduled_at)
    return [queued for queued in (*unit.waiting.values(), *unit.queue) if is_superseded(queued)]


def is_superseded(run: LiveRun) -> bool:
    """Return whether a newer success supersedes a retry; what people start is never superseded."""
    unit, task = run.unit, run.unit.task
    if task is None or not run.attempt or run.scheduled_at is None or run.trigger != "cron" or _goes_on(task):
        return False
    return unit.newest_success is not None and run.scheduled_at < unit.newest_success


def _goes_on(task: Task) -> bool:
    """Return whether retries continue after a newer success.

    By default they do if the settings suggest that each instant matters, for example because the job processes a
    period of time.
    """
    if task.retry_superseded is not None:
        return task.retry_superseded
    return task.catch_up > 1 or task.max_concurrent > 1 or not task.coalesce
