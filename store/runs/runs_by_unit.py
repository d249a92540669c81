"""The runs whose logs make up the logs of tasks and services."""

from collections.abc import Collection
from dataclasses import dataclass

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


_INSIDE = (
    "WITH RECURSIVE inside (id) AS (SELECT flow_run.id FROM runs AS flow_run WHERE flow_run.id = ?"
    " UNION SELECT inner_runs.id FROM runs AS inner_runs JOIN inside ON inner_runs.flow_run_id = inside.id)"
    " SELECT id FROM inside"
)
"""A run, and all runs inside it."""


@dataclass(frozen=True, slots=True)
class RunScope:
    """The runs of some tasks and services.

    Attributes:
        names: names of the tasks and services.
        inner: those of which only runs inside `flows` belong to them.
        flows: names of flows.
        flow_run_id: only runs of the steps of this flow run, and of flows inside it; None: all.
    """

    names: frozenset[str]
    inner: frozenset[str] = frozenset()
    flows: frozenset[str] = frozenset()
    flow_run_id: str | None = None

    def condition(self, params: list[Value]) -> str:
        """Return the condition in SQL, and append its parameters to `params`."""
        parts = [among("task_name", self.names, params)] if self.names else ["false"]
        if self.inner:
            of_inner = among("task_name", self.inner, params)
            of_flows = f"SELECT id FROM runs AS flow_runs WHERE flow_runs.{among('task_name', self.flows, params)}"  # noqa: S608 - ours
            parts.append(f"(NOT {of_inner} OR flow_run_id IN ({of_flows}))")
        if self.flow_run_id is not None:
            parts.append(f"flow_run_id IN ({_INSIDE})")
            params.append(self.flow_run_id)
        return " AND ".join(parts)


def running_runs(db: Database, scope: RunScope) -> list[Run]:
    """Return the running runs of these tasks and services, oldest first."""
    params: list[Value] = [RUNNING]
    rows = db.rows(
        f"SELECT {SELECT} FROM runs WHERE state >= {FIRST_ACTIVE} AND state = ?"  # noqa: S608 - constants
        f" AND {scope.condition(params)} ORDER BY created_at, id",
        params,
    )
    return [from_row(row) for row in rows]


def ended_runs(db: Database, scope: RunScope, since: int, after: tuple[int, str], limit: int) -> list[Run]:
    """Return visible runs with a log that ended at or after `since`, oldest first.

    Args:
        db: a reader or writer.
        scope: the tasks and services.
        since: earliest end, ms since the epoch.
        after: creation time and id of the run after which to begin.
        limit: maximum number of runs.
    """
    return _ended(db, scope, since, after, limit, descending=False)


def newest_ended_runs(db: Database, scope: RunScope, since: int, before: tuple[int, str], limit: int) -> list[Run]:
    """Return runs like :func:`ended_runs`, but newest first, and only runs created before `before`."""
    return _ended(db, scope, since, before, limit, descending=True)


def _ended(
    db: Database, scope: RunScope, since: int, position: tuple[int, str], limit: int, *, descending: bool
) -> list[Run]:
    params: list[Value] = []
    of_names = scope.condition(params)
    behind, order = ("<", "DESC") if descending else (">", "ASC")
    rows = db.rows(
        f"SELECT {SELECT} FROM runs WHERE state < {FIRST_ACTIVE} AND {of_names} AND {_POSITION} {behind} (?, ?)"  # noqa: S608 - constants
        f" AND {_ENDED_SINCE} AND {_HAS_A_LOG} AND {VISIBLE} ORDER BY created_at {order}, id {order} LIMIT ?",
        [*params, *position, since, since, limit],
    )
    return [from_row(row) for row in rows]


def runs_with_logs(
    db: Database, scope: RunScope | None, since: int | None, at: tuple[int, str], limit: int
) -> list[Run]:
    """Return visible runs that may have a log, newest first.

    Args:
        db: a reader or writer.
        scope: the tasks and services; None for all.
        since: earliest end, ms since the epoch; None for no limit.
        at: creation time and id at which to begin; the run need not exist.
        limit: maximum number of runs.
    """
    params: list[Value] = []
    position = f"{_POSITION} <= (?, ?)" + ("" if scope is None else f" AND {scope.condition(params)}")
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


def runs_by_id(db: Database, ids: Collection[str], scope: RunScope | None = None) -> list[Run]:
    """Return the runs of `scope` with these ids, including deleted ones, in no particular order."""
    if not ids:
        return []
    params: list[Value] = []
    where = among("id", ids, params) + ("" if scope is None else f" AND {scope.condition(params)}")
    rows = db.rows(f"SELECT {SELECT} FROM runs WHERE {where}", params)  # noqa: S608 - constants
    return [from_row(row) for row in rows]
