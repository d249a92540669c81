"""A run, as the store returns it."""

import json
from typing import NamedTuple

from store.connection import Row
from store.runs.phases import decode


class Run(NamedTuple):
    """One execution of a task or of a service's instance. Times are in ms since the epoch.

    Attributes:
        id: ULID.
        kind: "task" or "service".
        status: "pending", "running" or "ended".
        end_reason: Why it ended; None until then.
        exit_code: Exit status or 128 + signal; -1 before the end or without a start, -2 if unknown (crashed).
        instance_index: Index of the instance, from 0; 0 for tasks.
        retry_attempt: Number of the retry; 0 for a first attempt.
        triggered_by: "cron", "api", "cloud", "service" or "startup".
        execution_id: The run's id in an external engine.
        params: Values by parameter name; None as a value for a secret.
        scheduled_at: The scheduled instant for which it runs.
        due_at: Earliest start, while it waits for it.
        signal: Number of the signal that ended it.
        requested_by: The user who started it, and the way, as text.
        lines: Number of lines in its log.
        user_us: CPU time in user mode, in microseconds.
        system_us: CPU time in the kernel, in microseconds.
        read_bytes: Bytes read from disks; None if not counted.
        write_bytes: Bytes written to disks; None if not counted.
        oom_kills: Number of its processes that the kernel killed for lack of memory.
        leftovers: JSON list with the names of processes that outlived the main process and were killed.
        failure_line: Number of the log line that made it fail; None if its exit code did, or it did not fail.
        missed_count: Number of instants that a run which never started represents.
        definition_hash: Hash of its definition, see store.runs.definitions; None if it was not recorded.
        stopped_by: The user who stopped it, or the reason for which the daemon did.
        cause: What led to its end reason, see store.runs.phases.CAUSES; None if the end reason says it all.
        due_kind: What it waits for until `due_at`, see store.runs.phases.DUE_KINDS; None with a `due_at` for a retry of
            an earlier release.
        flow_run_id: Id of the run of the flow that it is part of; None: of none.
        step: Name of its step in that flow.
        item: Name of its item, if the step has a run for each of several items.
        deleted_at: When it was marked as deleted; None if it is visible.
    """

    id: str
    task_name: str
    kind: str
    status: str
    end_reason: str | None
    exit_code: int
    instance_index: int
    retry_attempt: int
    retry_of_run_id: str | None
    triggered_by: str
    created_at: int
    started_at: int | None = None
    ended_at: int | None = None
    execution_id: str | None = None
    params: dict[str, str | None] | None = None
    scheduled_at: int | None = None
    due_at: int | None = None
    signal: int | None = None
    core_dumped: bool = False
    requested_by: str | None = None
    lines: int = 0
    user_us: int | None = None
    system_us: int | None = None
    max_rss_bytes: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    oom_kills: int | None = None
    leftovers: str | None = None
    failure_line: int | None = None
    missed_count: int | None = None
    definition_hash: str | None = None
    stopped_by: str | None = None
    cause: str | None = None
    due_kind: str | None = None
    flow_run_id: str | None = None
    step: str | None = None
    item: str | None = None
    deleted_at: int | None = None


# The table's columns in the order of Run. Status and end reason are one column; deleted_at is in another table.
COLUMNS = (
    "id",
    "task_name",
    "kind",
    "state",
    *Run._fields[Run._fields.index("exit_code") : -1],
)
SELECT = ", ".join(
    (*(f"runs.{column}" for column in COLUMNS), "(SELECT deleted_at FROM deleted_runs WHERE run = runs.seq)")
)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_PARAMS = COLUMNS.index("params")
_CORE = COLUMNS.index("core_dumped")


def from_row(row: Row) -> Run:
    """Return the run in a row that has the columns of `SELECT`."""
    status, end_reason = decode(row[3])
    params = row[_PARAMS]
    return Run._make(
        (
            *row[:3],
            status,
            end_reason,
            *row[4:_PARAMS],
            None if params is None else json.loads(params),
            *row[_PARAMS + 1 : _CORE],
            bool(row[_CORE]),
            *row[_CORE + 1 :],
        )
    )


def params_text(params: dict[str, str | None] | None) -> str | None:
    """Return the stored form of parameters, a JSON text."""
    return None if params is None else _encode(params)
