"""Runs whose logs make up the logs of some tasks and services."""

from collections.abc import Collection

from store.connection import Value
from store.database import Database
from store.runs.filter import VISIBLE, among
from store.runs.phases import FIRST_ACTIVE, REFUSED_STATES, RUNNING
from store.runs.record import SELECT, Run, from_row

_NOT_REFUSED = f"state NOT IN ({', '.join(map(str, sorted(REFUSED_STATES)))})"
_HAS_A_LOG = f"{_NOT_REFUSED} AND (started_at IS NOT NULL OR lines > 0)"
# The indexes have no ended_at, but started_at and duration, so most rows need not be looked up for the first part.
_ENDED_SINCE = "(started_at IS NULL OR started_at + duration >= ?) AND ended_at >= ?"
_PLACE = "(created_at, id)"


def running_runs(db: Database, names: Collection[str]) -> list[Run]:
    """Return the running runs of these tasks and services, oldest first."""
    if not names:
        return []
    params: list[Value] = [RUNNING]
    rows = db.rows(
        f"SELECT {SELECT} FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE} AND state = ?"  # noqa: S608 - constants
        f" AND {among('task_name', names, params)} ORDER BY created_at, id",
        params,
    )
    return [from_row(row) for row in rows]


def ended_runs(db: Database, names: Collection[str], since: int, after: tuple[int, str], limit: int) -> list[Run]:
    """Return visible runs with a log that ended at or after `since`, oldest first.

    Args:
        db: the database.
        names: of these tasks and services.
        since: ms since the epoch.
        after: creation time and id of the run behind which to begin.
        limit: most runs to return.
    """
    return _ended(db, names, since, after, limit, descending=False)


def newest_ended_runs(
    db: Database, names: Collection[str], since: int, before: tuple[int, str], limit: int
) -> list[Run]:
    """As :func:`ended_runs`, the newest first, from the run on that was created before `before`."""
    return _ended(db, names, since, before, limit, descending=True)


def _ended(
    db: Database, names: Collection[str], since: int, place: tuple[int, str], limit: int, *, descending: bool
) -> list[Run]:
    if not names:
        return []
    params: list[Value] = []
    wanted = among("task_name", names, params)
    behind, order = ("<", "DESC") if descending else (">", "ASC")
    rows = db.rows(
        f"SELECT {SELECT} FROM runs WHERE state < {FIRST_ACTIVE} AND {wanted} AND {_PLACE} {behind} (?, ?)"  # noqa: S608 - constants
        f" AND {_ENDED_SINCE} AND {_HAS_A_LOG} AND {VISIBLE} ORDER BY created_at {order}, id {order} LIMIT ?",
        [*params, *place, since, since, limit],
    )
    return [from_row(row) for row in rows]


def runs_with_logs(
    db: Database, names: Collection[str] | None, since: int | None, at: tuple[int, str], limit: int
) -> list[Run]:
    """Return visible runs that may have a log, newest first.

    Args:
        db: the database.
        names: of these tasks and services; None: of all.
        since: leave out runs that ended before, ms since the epoch; None: none.
        at: creation time and id of the run from which on to begin, whether it exists or not.
        limit: most runs to return.
    """
    if names is not None and not names:
        return []
    params: list[Value] = []
    place = f"{_PLACE} <= (?, ?)" + ("" if names is None else f" AND {among('task_name', names, params)}")
    params[:0] = at
    of_both = list(params)
    ended = f"state < {FIRST_ACTIVE} AND {place}"
    if since is not None:
        ended += f" AND {_ENDED_SINCE}"
        params += [since, since]
    index = "runs_task" if names is not None and len(names) == 1 else "runs_created"
    rows = db.rows(
        f"SELECT {SELECT} FROM runs INDEXED BY {index} WHERE {ended} AND {_HAS_A_LOG} AND {VISIBLE}"  # noqa: S608 - constants
        f" UNION ALL SELECT {SELECT} FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE} AND {place}"
        " ORDER BY created_at DESC, id DESC LIMIT ?",
        [*params, *of_both, limit],
    )
    return [from_row(row) for row in rows]


def runs_by_id(db: Database, ids: Collection[str]) -> list[Run]:
    """Return the runs with these ids, deleted ones too, in no order."""
    if not ids:
        return []
    params: list[Value] = []
    rows = db.rows(f"SELECT {SELECT} FROM runs WHERE {among('id', ids, params)}", params)  # noqa: S608 - constants
    return [from_row(row) for row in rows]
