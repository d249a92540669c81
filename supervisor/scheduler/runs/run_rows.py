"""Records of a run: rows for the store, bodies of events, and the policy that the root keeps.

The policy has the settings that a run keeps until it ends, even if a reload changes its definition. The root keeps it
in ``origin`` (:mod:`supervisor.ipc.messages`) for the next scheduler, whose configuration may differ. Settings that
matter only when the process starts are excluded, and defaults are omitted.
"""

import json
from dataclasses import MISSING, fields, replace
from functools import cache
from typing import Any, get_type_hints

import msgspec

from store.runs.writes import Run
from supervisor.config.model import Service, Task
from supervisor.ipc.messages import Exited
from supervisor.scheduler.runs.end_reason import UNKNOWN_EXIT_CODE, Verdict
from supervisor.scheduler.runs.live_units import LiveRun

_POLICY = "terms"
_OUTPUT_FILE = "output"
"""The name of a path beside the fields of the policy."""
POLICY = frozenset(
    {
        "stop_signal",
        "grace_ms",
        "leave_leftovers",
        "retry_attempts",
        "retry_delay_ms",
        "retry_backoff",
        "retry_max_delay_ms",
        "retry_on",
        "exit_codes",
        "failure_output",
        "ready",
        "live",
        "min_duration_ms",
        "output_required",
        "too_short",
        "expected_duration_ms",
        "max_duration_alert_ms",
        "silence_alert_ms",
        "uses",
    }
)
"""All fields of the policy."""


def pending_row(run: LiveRun) -> Run:
    """Return the row of a new run that has not started."""
    due = {} if run.due is None else {"due_at": run.due.at, "due_kind": run.due.kind}
    return _row(run, "pending", None, **due)


def refused_row(run: LiveRun, reason: str, **columns: Any) -> Run:
    """Return the row of a run that ends when it is created: skipped, queue_full or missed."""
    return _row(run, "ended", reason, ended_at=run.created_at, **columns)


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
    if run.place is not None:
        columns |= {"flow_run_id": run.place.flow_run_id, "step": run.place.step, "item": run.place.item}
    return columns


def answer_row(run: LiveRun) -> dict[str, Any]:
    """Return :func:`pending_row` as a mapping, for the answer to a trigger; API servers of earlier releases read it."""
    return _columns(run, "pending", None)


def run_row_of(run: LiveRun) -> dict[str, Any]:
    """Return the row and the policy of a run that is about to start, for the root."""
    row = {**_columns(run, "pending", None), "definition_hash": run.definition_hash}
    policy = policy_of(run.definition)
    if run.output_file is not None:
        policy[_OUTPUT_FILE] = run.output_file
    return {**row, _POLICY: policy} if policy else row


def output_file_of(run_row: dict[str, Any]) -> str | None:
    """Return the path of the file to which a run writes values, from the row that :func:`run_row_of` made."""
    path = run_row.get(_POLICY, {}).get(_OUTPUT_FILE)
    return path if isinstance(path, str) else None


def running_row(run_row: dict[str, Any], started_at: int | None) -> Run:
    """Return the row of a started run from the row and policy that :func:`run_row_of` made."""
    row = {name: value for name, value in run_row.items() if name != _POLICY}
    return Run(**{**row, "status": "running", "started_at": started_at})


@cache
def _policy_fields(kind: str) -> dict[str, tuple[Any, Any]]:
    """Return the fields of the policy that a kind has, with type and default."""
    definition: type[Task | Service] = Task if kind == Task.kind else Service
    types = get_type_hints(definition)
    return {
        field.name: (types[field.name], field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(definition)
        if field.name in POLICY
    }


def policy_of(definition: Task | Service) -> dict[str, Any]:
    """Return the policy of a definition for a message; defaults are omitted."""
    return {
        name: msgspec.to_builtins(value)
        for name, (_type, default) in _policy_fields(definition.kind).items()
        if (value := getattr(definition, name)) != default
    }


def with_policy(definition: Task | Service, run_row: dict[str, Any]) -> Task | Service:
    """Return `definition` with the policy in the row that :func:`run_row_of` made; without steps, as it has a process.

    A policy that this version cannot decode, because another version wrote it, is ignored.
    """
    policy = run_row.get(_POLICY, {})
    try:
        policy = {
            name: msgspec.convert(policy[name], kind) if name in policy else default
            for name, (kind, default) in _policy_fields(definition.kind).items()
        }
    except msgspec.ValidationError:
        return definition
    if isinstance(definition, Task):
        policy["steps"] = ()
    return replace(definition, **policy)


def ended_columns(verdict: Verdict, exited: Exited) -> dict[str, Any]:
    """Return the columns to update when a run exits."""
    columns: dict[str, Any] = {
        "status": "ended",
        "end_reason": verdict.reason,
        "exit_code": verdict.exit_code,
        "cause": verdict.cause,
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
