"""The expected lists of runs, in plain Python."""

from store.runs.filter import RunFilter
from store.runs.run_pages import SortField
from store.runs.writes import Run


def matches(run: Run, run_filter: RunFilter) -> bool:
    """Whether a run belongs to a list."""
    text = run_filter.search.lower()
    return (
        run.deleted_at is None
        and run_filter.task in (None, run.task_name)
        and run_filter.task_name in (None, run.task_name)
        and (
            not (run_filter.phases or run_filter.reasons)
            or run.status in run_filter.phases
            or run.end_reason in run_filter.reasons
        )
        and (not run_filter.triggers or run.triggered_by in run_filter.triggers)
        and (run_filter.created_after is None or run.created_at >= run_filter.created_after)
        and (run_filter.created_before is None or run.created_at <= run_filter.created_before)
        and (run_filter.exit_code_min is None or run.exit_code >= run_filter.exit_code_min)
        and (run_filter.exit_code_max is None or run.exit_code <= run_filter.exit_code_max)
        and (not run_filter.retries_only or run.retry_attempt > 0)
        and (text in run.task_name.lower() or text in run.id.lower())
    )


def sort_value(run: Run, field: SortField, now_ms: int) -> bytes | tuple[str, str] | int | None:
    """The sort key of a run; None: missing."""
    if field == "task_name":
        return run.task_name.encode()
    if field == "status":
        return run.status, run.end_reason or ""
    if field == "start_at":
        return run.started_at
    if field == "exit_code":
        return run.exit_code
    if field == "created_at":
        return run.created_at
    if run.started_at is None:
        return None
    if run.status == "running":
        return now_ms - run.started_at
    return None if run.ended_at is None else run.ended_at - run.started_at


def listed(runs: list[Run], run_filter: RunFilter, field: SortField, direction: str, now_ms: int) -> list[Run]:
    """Return the whole sorted list of matching runs."""
    return arranged([run for run in runs if matches(run, run_filter)], field, direction, now_ms)


def arranged(runs: list[Run], field: SortField, direction: str, now_ms: int) -> list[Run]:
    """Return the given runs, sorted."""
    down = direction == "desc"
    keys = [(sort_value(run, field, now_ms), run.id, run) for run in runs]
    missing = sorted(((run_id, run) for value, run_id, run in keys if value is None), reverse=down)
    present = sorted((key for key in keys if key[0] is not None), key=lambda key: key[:2], reverse=down)
    return [*(run for *_, run in present), *(run for _, run in missing)]
