"""Writes of runs and approvals by the scheduler, and reads of single runs; for pages, see store.runs.run_pages."""

import functools
import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from store.connection import TEXTS
from store.database import Database
from store.errors import Conflict, InstantTaken
from store.runs.filter import VISIBLE, Selection
from store.runs.phases import FIRST_ACTIVE, decode, encode
from store.runs.record import COLUMNS, SELECT, from_row, params_text
from store.runs.record import Run as Run  # noqa: PLC0414 - exported with the functions that take it
from store.runs.totals import count

# With OR FAIL, SQLite does not copy all pages that the statement and its triggers change. A partial effect never has to
# be undone: rows are checked before they are written, and these statements write one row.
_INSERT = (
    f"INSERT OR FAIL INTO runs ({', '.join(COLUMNS)}, duration, end_number)"  # noqa: S608 - constants
    f" VALUES ({', '.join('?' * len(COLUMNS))}, ?, ?)"
)
_NEXT_END = (
    "(SELECT COALESCE(max(ended.end_number), 0) + 1 FROM runs AS ended INDEXED BY runs_ended"  # noqa: S608 - constants
    f" WHERE ended.state < {FIRST_ACTIVE} AND ended.task_name = {{}})"
)
_NEXT_END_OF_TASK = f"SELECT {_NEXT_END.format('?')}"
"""A query of its own: as part of the INSERT, it would make SQLite copy all changed pages after all."""
_INSTANT = ("runs.scheduled_at", "runs_instant")
"""Names of the unique constraint on instants in error messages: SQLite names the column, PostgreSQL the index."""
_FROM = "AND task_name = ? AND (created_at, id) <= (?, ?)"
_RUNS_FROM = (
    f"SELECT {SELECT} FROM runs INDEXED BY runs_task WHERE state < {FIRST_ACTIVE} AND {VISIBLE} {_FROM}"  # noqa: S608 - constants
    f" UNION ALL SELECT {SELECT} FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE} {_FROM}"
    " ORDER BY created_at DESC, id DESC LIMIT ?"
)
_PARAMS = Run._fields.index("params")
_STATE = ("status", "end_reason")
_TIMES = ("ended_at", "started_at")
_NO_EARLIER = "CASE WHEN started_at > CAST(? AS BIGINT) THEN started_at ELSE CAST(? AS BIGINT) END"
_CLOCK_STEP_MS = 24 * 3600 * 1000
"""A run may have been created so long before its instant."""
_CHANGEABLE = frozenset(Run._fields) - {"id", "task_name", "kind", "created_at", "deleted_at"}


def insert_run(db: Database, run: Run) -> None:
    """Store a new run.

    Raises:
        InstantTaken: The run is a scheduled first attempt, and its task already has a run for the instant, which may be
            deleted.
        Conflict: The id already exists.
        ValueError: Status and end reason do not fit together, or `deleted_at` is set, which only `delete_run` may do.
    """
    if run.deleted_at is not None:
        raise ValueError(f"a new run is not deleted: {run.id}")
    values: list[Any] = [
        *run[:3],
        encode(run.status, run.end_reason),
        *run[5:_PARAMS],
        params_text(run.params),
        *run[_PARAMS + 1 : -1],
        _duration(run.started_at, run.ended_at),
        db.rows(_NEXT_END_OF_TASK, [run.task_name])[0][0] if run.status == "ended" else 0,
    ]
    try:
        db.execute(_INSERT, values)
    except Conflict as err:
        if any(name in str(err) for name in _INSTANT):
            raise InstantTaken(f"{run.task_name} at {run.scheduled_at}") from err
        raise


def extend_refused(db: Database, run: Run, since_ms: int, until_ms: int) -> bool:
    """Add instants to a record of the same task and cause; return whether there is one.

    The record then has the newest of the instants, and the number of all.

    Args:
        db: a writer.
        run: a record of the new instants.
        since_ms: a time at or before the instants of the record, in milliseconds since the epoch.
        until_ms: a time after them.
    """
    extend = (
        "UPDATE runs SET scheduled_at = ?, missed_count = COALESCE(missed_count, 1) + ? WHERE seq = (SELECT max(seq)"
        " FROM runs WHERE task_name = ? AND scheduled_at >= ? AND scheduled_at < ? AND cause = ? AND retry_attempt = 0"
        " AND kind = 'task')"
    )
    period = run.task_name, since_ms, until_ms, run.cause
    return db.execute(extend, [run.scheduled_at, run.missed_count or 1, *period]) > 0


def merge_refused(db: Database, run: Run, since_ms: int, until_ms: int) -> bool:
    """Replace a pending run by an earlier record of the same task and cause, if there is one; return whether there is.

    Its instant becomes part of that record; see :func:`extend_refused` for the arguments.
    """
    earlier = "task_name = ? AND scheduled_at >= ? AND scheduled_at < ? AND cause = ? AND retry_attempt = 0"
    period = (run.task_name, since_ms, until_ms, run.cause)
    if not db.rows(f"SELECT seq FROM runs WHERE {earlier} AND kind = 'task' LIMIT 1", period):  # noqa: S608 - constants
        return False
    db.execute(f"DELETE FROM runs WHERE id = ? AND state >= {FIRST_ACTIVE}", [run.id])  # noqa: S608 - constants
    return extend_refused(db, run, since_ms, until_ms)


def update_run(db: Database, /, run_id: str, **columns: Any) -> bool:
    """Change fields of a run, by their names in `Run`; return whether the run exists.

    `end_reason` must be given exactly if `status` is "ended". The id, task, kind and creation time of a run cannot
    change. An end before the stored start counts as the start: the clock was set back, perhaps while the host was off.

    Raises:
        ValueError: An unknown field, or a status and end reason that do not fit together.
    """
    statement = _update(tuple(columns))
    if "status" in columns or "end_reason" in columns:
        columns["state"] = encode(columns.pop("status", ""), columns.pop("end_reason", None))
    if "params" in columns:
        columns["params"] = params_text(columns["params"])
    values = list(columns.values())
    times = [columns[name] for name in _TIMES if name in columns]
    if _ends_only(columns):
        values.insert(list(columns).index("ended_at"), columns["ended_at"])
        times *= 2
    return db.execute(statement, [*values, *times, run_id]) > 0


def _ends_only(names: Collection[str]) -> bool:
    """Return whether of both times only the end changes."""
    return "ended_at" in names and "started_at" not in names


@functools.lru_cache(64)
def _update(names: tuple[str, ...]) -> str:
    """Return the statement that changes these fields. Its parameters are their values, then state, times and id."""
    unknown = set(names) - _CHANGEABLE
    if unknown or not names:
        raise ValueError(f"cannot be changed in a run: {', '.join(sorted(unknown)) or 'nothing'}")
    columns = [name for name in names if name not in _STATE]
    if len(columns) < len(names):
        columns.append("state")
    parts = [f"{name} = {_NO_EARLIER if name == 'ended_at' and _ends_only(names) else '?'}" for name in columns]
    if "end_reason" in names:
        parts.append(f"end_number = {_NEXT_END.format('runs.task_name')}")
    if _ends_only(names):
        parts.append(f"duration = {_NO_EARLIER} - started_at")
    elif not set(_TIMES).isdisjoint(names):
        # In SET, a column name means its old value, so changed values must be passed again.
        times = ["CAST(? AS BIGINT)" if name in names else name for name in _TIMES]
        parts.append(f"duration = {' - '.join(times)}")
    return f"UPDATE OR FAIL runs SET {', '.join(parts)} WHERE id = ?"  # noqa: S608 - known names


def delete_run(db: Database, run_id: str, now_ms: int) -> bool:
    """Mark an ended run as deleted; return False if it has not ended, is already deleted, or does not exist."""
    where = f"id = ? AND state < {FIRST_ACTIVE} AND {VISIBLE}"
    insert = f"INSERT INTO deleted_runs (run, deleted_at) SELECT seq, ? FROM runs WHERE {where}"  # noqa: S608 - constants
    return db.execute(insert, [now_ms, run_id]) > 0


def get_run(db: Database, run_id: str, include_deleted: bool = False) -> Run | None:
    """Return one run; None if it does not exist, or if it is deleted and `include_deleted` is False."""
    row = db.row(f"SELECT {SELECT} FROM runs WHERE id = ?", [run_id])  # noqa: S608 - constants
    if row is None:
        return None
    run = from_row(row)
    return run if include_deleted or run.deleted_at is None else None


def unfinished_runs(db: Database) -> list[Run]:
    """Return all runs that have not ended, oldest first."""
    rows = db.rows(
        f"SELECT {SELECT} FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE}"  # noqa: S608 - constants
        " ORDER BY created_at, id"
    )
    return [from_row(row) for row in rows]


def runs_from(db: Database, task_name: str, created_at: int, run_id: str, limit: int) -> list[Run]:
    """Return visible runs of a task, newest first, beginning at a creation time and id; that run need not exist."""
    start = (task_name, created_at, run_id)
    rows = db.rows(_RUNS_FROM, [*start, *start, limit])
    return [from_row(row) for row in rows]


def outcome_since(db: Database, task_name: str, at_ms: int, early_ms: int = 0) -> str | None:
    """Return how an instant of a task went: the cause of its end, its end reason, or its phase; None: it has no run.

    It is ``succeeded`` if its run, one of its retries or any later run of the task succeeded; a run without an instant
    is later if it was created up to `early_ms` before the instant, or afterwards.
    """
    created_ms = at_ms - early_ms
    which = "task_name = ? AND created_at >= ?"
    row = db.row(
        "SELECT state, cause FROM ("  # noqa: S608 - constants
        "SELECT state, cause, scheduled_at, created_at, seq FROM runs INDEXED BY runs_task"
        f" WHERE state < {FIRST_ACTIVE} AND {which} UNION ALL"
        " SELECT state, cause, scheduled_at, created_at, seq FROM runs INDEXED BY runs_active"
        f" WHERE state >= {FIRST_ACTIVE} AND {which}) AS found"
        " WHERE scheduled_at >= ? OR (scheduled_at IS NULL AND created_at >= ?)"
        f" ORDER BY CASE state WHEN {encode('ended', 'succeeded')} THEN 0 ELSE 1 END,"
        " COALESCE(scheduled_at, created_at), seq DESC LIMIT 1",
        # The clock may have been set back since the instant.
        [*(task_name, created_ms - _CLOCK_STEP_MS) * 2, at_ms, created_ms],
    )
    if row is None:
        return None
    phase, reason = decode(row[0])
    return row[1] or reason or phase


def has_runs(db: Database, task_name: str) -> bool:
    """Return whether a task, configured or not, has visible runs."""
    with db.snapshot() as view:
        return count(view, Selection(names=frozenset({task_name}))) > 0


def _duration(started_at: int | None, ended_at: int | None) -> int | None:
    return None if started_at is None or ended_at is None else ended_at - started_at


def newest_request(db: Database, task: str) -> int | None:
    """Return when the newest run of a task was created that no schedule started (ms since the epoch)."""
    row = db.row("SELECT max(created_at) FROM runs WHERE task_name = ? AND triggered_by = 'api'", [task])
    return None if row is None else row[0]


def newest_successes(db: Database) -> dict[str, int]:
    """Return, for each task with unfinished runs, the newest instant whose run succeeded (ms since the epoch)."""
    rows = db.rows(
        "SELECT task_name, max(scheduled_at) FROM runs INDEXED BY runs_task"  # noqa: S608 - constants
        f" WHERE state < {FIRST_ACTIVE} AND state = {encode('ended', 'succeeded')} AND scheduled_at IS NOT NULL"
        f" AND task_name IN (SELECT task_name FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE})"
        " GROUP BY task_name"
    )
    return dict(rows)


APPROVED, REJECTED, TIMED_OUT, WITHDRAWN = "approved", "rejected", "approval_timeout", "withdrawn"
ANSWERS = (APPROVED, REJECTED, TIMED_OUT, WITHDRAWN)
"""What can become of an approval; the run of a withdrawn one was stopped while it waited."""


class Approval(NamedTuple):
    """The approval that a run needs, as it was configured when the run was created. Times are in ms since the epoch.

    Attributes:
        run_id: Id of the run.
        approvers: JSON list of the names of the people who may give it; None: every operator of the task.
        not_by_starter: Whether the person who started the run may not give it.
        timeout_ms: How long the run waits for it.
        answer: One of `ANSWERS`; None: there is none yet.
        answered_by: Who gave it.
        answered_at: When.
        note: What they wrote.
    """

    run_id: str
    approvers: str | None
    not_by_starter: bool
    timeout_ms: int
    answer: str | None = None
    answered_by: str | None = None
    answered_at: int | None = None
    note: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the people who may give it; empty: every operator of the task."""
        return [] if self.approvers is None else json.loads(self.approvers)


_APPROVAL = ", ".join(f"approvals.{name}" for name in Approval._fields)
_PUT_APPROVAL = (
    f"INSERT INTO approvals ({', '.join(Approval._fields)}) VALUES ({', '.join('?' * len(Approval._fields))})"  # noqa: S608 - constants
    " ON CONFLICT (run_id) DO UPDATE SET answer = excluded.answer, answered_by = excluded.answered_by,"
    " answered_at = excluded.answered_at, note = excluded.note"
)


def put_approval(db: Database, approval: Approval) -> None:
    """Store an approval that a run needs, or its answer."""
    db.execute(_PUT_APPROVAL, [int(value) if isinstance(value, bool) else value for value in approval])


def open_approvals(db: Database) -> dict[str, Approval]:
    """Return the approvals that unfinished runs still need, by run id."""
    unfinished = f"JOIN runs ON runs.id = approvals.run_id WHERE runs.state >= {FIRST_ACTIVE}"
    rows = db.rows(f"SELECT {_APPROVAL} FROM approvals {unfinished} AND approvals.answer IS NULL")  # noqa: S608 - constants
    return _by_run(rows)


def approvals_of(db: Database, run_ids: Iterable[str]) -> dict[str, Approval]:
    """Return the approvals of runs, by run id; runs that need none are left out."""
    query = f"SELECT {_APPROVAL} FROM approvals WHERE run_id IN {TEXTS}"  # noqa: S608 - constants
    return _by_run(db.rows(query, [json.dumps([*run_ids])]))


def _by_run(rows: Iterable[tuple[object, ...]]) -> dict[str, Approval]:
    found = (Approval(*row) for row in rows)  # type: ignore[arg-type]
    return {approval.run_id: approval._replace(not_by_starter=bool(approval.not_by_starter)) for approval in found}
