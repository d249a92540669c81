"""Records of a run: rows for the store and bodies of events."""

import json
from typing import Any

from store.runs.writes import Run
from supervisor.ipc.messages import Exited
from supervisor.scheduler.runs.end_reason import UNKNOWN_EXIT_CODE, Verdict
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_policy import policy_of

_TERMS = "terms"


def pending_row(run: LiveRun, *, due_at: int | None = None) -> Run:
    """Return the row of a new run that has not started."""
    return _row(run, "pending", None, due_at=due_at)


def refused_row(run: LiveRun, reason: str, *, missed_count: int | None = None) -> Run:
    """Return the row of a run that ends when it is created: skipped, queue_full or missed."""
    return _row(run, "ended", reason, ended_at=run.created_at, missed_count=missed_count)


def _row(run: LiveRun, status: str, reason: str | None, **columns: Any) -> Run:
    return Run(**_columns(run, status, reason), definition_hash=run.definition_hash, **columns)


def _columns(run: LiveRun, status: str, reason: str | None) -> dict[str, Any]:
    """Return the columns of a new run; columns with default values are omitted."""
    columns: dict[str, Any] = {
        "id": run.id,
        "task_name": run.unit.name,
        "kind": run.definition.kind,
        "status": status,
        "end_reason": reason,
        "exit_code": UNKNOWN_EXIT_CODE,
        "instance_index": run.instance,
        "retry_attempt": run.attempt,
        "retry_of_run_id": run.retry_of,
        "triggered_by": run.trigger,
        "created_at": run.created_at,
        "requested_by": run.by,
    }
    params = run.params.record
    if run.scheduled_at is not None:
        columns["scheduled_at"] = run.scheduled_at
    if params is not None:
        columns["params"] = params
    return columns


def answer_row(run: LiveRun) -> dict[str, Any]:
    """Return :func:`pending_row` as a mapping, for the answer to a trigger; API servers of earlier releases read it."""
    return _columns(run, "pending", None)


def run_row_of(run: LiveRun) -> dict[str, Any]:
    """Return the row and the policy of a run that is about to start, for the root."""
    origin = {**_columns(run, "pending", None), "definition_hash": run.definition_hash}
    terms = policy_of(run.definition)
    return {**origin, _TERMS: terms} if terms else origin


def running_row(origin: dict[str, Any], started_at: int | None) -> Run:
    """Return the row of a started run from the `origin` that :func:`run_row_of` made."""
    row = {name: value for name, value in origin.items() if name != _TERMS}
    return Run(**{**row, "status": "running", "started_at": started_at})


def policy_in(origin: dict[str, Any]) -> dict[str, Any]:
    """Return the policy (:mod:`.run_policy`) from the `origin` that :func:`run_row_of` made."""
    terms: dict[str, Any] = origin.get(_TERMS, {})
    return terms


def ended_columns(verdict: Verdict, exited: Exited) -> dict[str, Any]:
    """Return the columns to update when a run exits."""
    columns: dict[str, Any] = {
        "status": "ended",
        "end_reason": verdict.reason,
        "exit_code": verdict.exit_code,
        "started_at": exited.started_at,
        "ended_at": exited.ended_at,
        "signal": verdict.signal,
        "core_dumped": verdict.core_dumped,
        "lines": exited.lines,
        "user_us": exited.user_us,
        "system_us": exited.system_us,
        "max_rss_bytes": exited.max_rss_bytes,
        "read_bytes": exited.read_bytes,
        "write_bytes": exited.write_bytes,
        "oom_kills": exited.oom_kills or None,
        "failure_line": verdict.line.number if verdict.line is not None else None,
        "leftovers": json.dumps(exited.leftovers) if exited.leftovers else None,
    }
    if exited.by is not None:
        columns["stopped_by"] = exited.by
    return columns


def event_body(run: LiveRun, status: str, **more: Any) -> dict[str, Any]:
    """Return the body of an event about a run, with `more` fields of the kind of event."""
    return {
        "runId": run.id,
        "taskName": run.unit.name,
        "instanceIndex": run.instance,
        "retryAttempt": run.attempt,
        "triggeredBy": run.trigger,
        "status": status,
        **more,
    }
