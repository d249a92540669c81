"""A run as the store gives it out."""

import json
from typing import NamedTuple

from store.connection import Row
from store.runs.phases import decode


class Run(NamedTuple):
    """One execution of a task or one incarnation of a service's instance. Times: ms since the epoch.

    Attributes:
        id: ULID.
        kind: "task" or "service".
        status: "pending", "running" or "ended".
        end_reason: Why it ended; None until then.
        exit_code: -1 until ended and when it never started, -2 unknown (crashed), else status or 128 + signal.
        instance_index: From 0; tasks 0.
        retry_attempt: 0 for a first attempt.
        triggered_by: "cron", "api", "cloud", "service" or "startup".
        execution_id: The run's id in an outside engine.
        params: Values by name of the parameter; None: it was given, and is secret.
        scheduled_at: The instant of the schedule that it stands for.
        due_at: When it may start, while it waits for its retry delay.
        signal: The signal that ended it.
        requested_by: Who triggered or stopped it.
        lines: Lines of its log.
        user_us: CPU time in user mode, microseconds.
        system_us: CPU time in the kernel, microseconds.
        read_bytes: Read from disks; None: not counted.
        write_bytes: Written to them.
        oom_kills: How many of its processes the kernel killed for want of memory.
        leftovers: Processes that outlived the main process and were killed: a JSON list of names.
        failure_line: Number of the line of its log by which it has failed; None: by its exit code, or not at all.
        missed_count: How many instants a run with the reason `missed` stands for.
        deleted_at: When it was marked as deleted; None: visible.
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
    deleted_at: int | None = None


# The table's columns in the order of Run, where the two words of a state are one column; the last of Run is elsewhere.
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
    """Return the run of a row of `SELECT` from the table `runs`."""
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
    """Return the stored form of parameters."""
    return None if params is None else _encode(params)
