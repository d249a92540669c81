"""Retries of an instant of the schedule after which a newer one has succeeded: they do not run."""

from supervisor.config.model import Task
from supervisor.scheduler.runs.live_units import LiveRun

SUPERSEDED_BY = "retry_superseded: a newer time of the schedule has succeeded"
"""Who asked for the end of such a retry, in its record."""


def note_success(run: LiveRun) -> list[LiveRun]:
    """Remember the success of a run; return the waiting retries that it supersedes."""
    unit = run.unit
    if run.scheduled_at is None or unit.task is None:
        return []
    unit.newest_success = max(unit.newest_success or 0, run.scheduled_at)
    return [one for one in (*unit.waiting.values(), *unit.queue) if is_superseded(one)]


def is_superseded(run: LiveRun) -> bool:
    """Return whether a run is a retry that is not to run; those of runs that people started always are."""
    unit, task = run.unit, run.unit.task
    if task is None or not run.attempt or run.scheduled_at is None or _goes_on(task):
        return False
    return unit.newest_success is not None and run.scheduled_at < unit.newest_success


def _goes_on(task: Task) -> bool:
    """Jobs that work by the time that a run stands for need each of their runs."""
    if task.retry_superseded is not None:
        return task.retry_superseded
    return task.catch_up > 1 or task.max_concurrent > 1 or not task.coalesce
