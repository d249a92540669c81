"""The runs whose logs make up the logs of tasks and services."""

from collections.abc import Collection

from store.connection import Value
from store.database import Database
from store.runs.filter import VISIBLE, among
from store.runs.phases import FIRST_ACTIVE, REFUSED_STATES, RUNNING
from store.runs.record import SELECT, Run, from_row

_NOT_REFUSED = f"state NOT IN ({', '.join(map(str, sorted(REFUSED_STATES)))})"
_HAS_A_LOG = f"{_NOT_REFUSED} AND (started_at IS NOT NULL OR lines > 0)"
# The indexes contain started_at and duration but not ended_at, so the first condition avoids most lookups of rows.
_ENDED_SINCE = "(started_at IS NULL OR started_at + duration >= ?) AND ended_at >= ?"
_POSITION = "(created_at, id)"


def running_runs(db: Database, names: Collection[str]) -> list[Run]:
    """Return the running runs of these tasks and services, oldest first."""
    if not names:
        return []
    params: list[Value] = [RUNNING]
    rows = db.rows(
        f"SELECT {SELECT} FROM runs WHERE state >= {FIRST_ACTIVE} AND state = ?"  # noqa: S608 - constants
        f" AND {among('task_name', names, params)} ORDER BY created_at, id",
        params,
    )
    return [from_row(row) for row in rows]


def ended_runs(db: Database, names: Collection[str], since: int, after: tuple[int, str], limit: int) -> list[Run]:
    """Return visible runs with a log that ended at or after `since`, oldest first.

    Args:
        db: a reader or writer.
        names: names of the tasks and services.
        since: earliest end, ms since the epoch.
        after: creation time and id of the run after which to begin.
        limit: maximum number of runs.
    """
    return _ended(db, names, since, after, limit, descending=False)


def newest_ended_runs(
    db: Database, names: Collection[str], since: int, before: tuple[int, str], limit: int
) -> list[Run]:
    """Return runs like :func:`ended_runs`, but newest first, and only runs created before `before`."""
    return _ended(db, names, since, before, limit, descending=True)


def _ended(
    db: Database, names: Collection[str], since: int, position: tuple[int, str], limit: int, *, descending: bool
) -> list[Run]:
    if not names:
        return []
    params: list[Value] = []
    of_names = among("task_name", names, params)
    behind, order = ("<", "DESC") if descending else (">", "ASC")
    rows = db.rows(
        f"SELECT {SELECT} FROM runs WHERE state < {FIRST_ACTIVE} AND {of_names} AND {_POSITION} {behind} (?, ?)"  # noqa: S608 - constants
        f" AND {_ENDED_SINCE} AND {_HAS_A_LOG} AND {VISIBLE} ORDER BY created_at {order}, id {order} LIMIT ?",
        [*params, *position, since, since, limit],
    )
    return [from_row(row) for row in rows]


def runs_with_logs(
    db: Database, names: Collection[str] | None, since: int | None, at: tuple[int, str], limit: int
) -> list[Run]:
    """Return visible runs that may have a log, newest first.

    Args:
        db: a reader or writer.
        names: names of the tasks and services; None for all.
        since: earliest end, ms since the epoch; None for no limit.
        at: creation time and id at which to begin; the run need not exist.
        limit: maximum number of runs.
    """
    if names is not None and not names:
        return []
    params: list[Value] = []
    position = f"{_POSITION} <= (?, ?)" + ("" if names is None else f" AND {among('task_name', names, params)}")
    params[:0] = at
    of_both = list(params)
    ended = f"state < {FIRST_ACTIVE} AND {position}"
    if since is not None:
        ended += f" AND {_ENDED_SINCE}"
        params += [since, since]
    rows = db.rows(
        f"SELECT {SELECT} FROM runs WHERE {ended} AND {_HAS_A_LOG} AND {VISIBLE}"  # noqa: S608 - constants
        f" UNION ALL SELECT {SELECT} FROM runs WHERE state >= {FIRST_ACTIVE} AND {position}"
        " ORDER BY created_at DESC, id DESC LIMIT ?",
        [*params, *of_both, limit],
    )
    return [from_row(row) for row in rows]


def runs_by_id(db: Database, ids: Collection[str]) -> list[Run]:
    """Return the runs with these ids, including deleted ones, in no particular order."""
    if not ids:
        return []
    params: list[Value] = []
    rows = db.rows(f"SELECT {SELECT} FROM runs WHERE {among('id', ids, params)}", params)  # noqa: S608 - constants
    return [from_row(row) for row in rows]
