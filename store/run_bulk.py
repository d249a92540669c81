"""Many runs at once: fixed in one read, then worked off in slices, each in a transaction of its own.

A slice is the JSON text of an array of row numbers; the database makes it and reads it, and nobody else looks inside.
Row numbers hold as long as no run is purged, so the caller does one thing after the other. What became of a run since
it was read is looked at again: each change touches those only that it is meant for.

A million runs have six million index entries, and triggers that keep `run_counts` would change three million numbers
one by one. So a slice is counted first, its sums are stored, and the runs are changed without triggers; all of it is
one transaction. Sums that have come to 0 do no harm; `drop_empty_counts` removes them after the last slice.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from store.connection import Connection, Value
from store.database import Database
from store.phases import END_REASONS, FIRST_ACTIVE
from store.run_filter import RunFilter, Selection, resolve, task_names
from store.run_totals import count

SLICE_ROWS = 1000
"""Takes some 20 ms of a million runs, and makes about 12 MB of WAL: for so long another write waits."""

_VISIBLE_ENDED = f"deleted_at IS NULL AND state < {FIRST_ACTIVE}"
_WITHOUT_LOG = ", ".join(str(END_REASONS[reason]) for reason in ("skipped", "queue_full", "dst_skipped", "missed"))


@dataclass(frozen=True, slots=True)
class RunSelector:
    """Which runs a bulk operation is about.

    Attributes:
        match_all: Whether `filter` and `except_ids` count, or else `ids`.
        filter: What the runs have to be like. Its `tasks` counts in any case.
        except_ids: Those are left out.
        ids: Exactly these, as far as they exist.
    """

    match_all: bool = False
    filter: RunFilter = field(default_factory=RunFilter)
    except_ids: Collection[str] = ()
    ids: Collection[str] = ()


class Retention(NamedTuple):
    """How many ended runs of a task are kept, and how long after their end (ms)."""

    keep_runs: int
    keep_for_ms: int


class PurgedRun(NamedTuple):
    """A run whose row is gone and whose files may still be there."""

    seq: int
    task_name: str
    run_id: str


def find_ended(db: Database, selector: RunSelector) -> list[str]:
    """Slices of the visible runs of a selector that have ended, oldest first.

    Raises:
        ValueError: No such phase or end reason.
    """
    with db.snapshot() as view:
        return _slices(view, *_selected(view, selector, Selection.ended))


def find_deleted(db: Database, selector: RunSelector, deleted_after: int) -> list[str]:
    """Slices of those runs of a selector that were deleted after a time (ms since the epoch).

    Raises:
        ValueError: No such phase or end reason.
    """
    with db.snapshot() as view:
        return _slices(view, *_selected(view, selector, lambda every: every, deleted_after))


def find_active(db: Database, selector: RunSelector) -> list[str]:
    """Ids of the visible runs of a selector that have not ended; first those that have not begun.

    Raises:
        ValueError: No such phase or end reason.
    """
    with db.snapshot() as view:
        source, params = _selected(view, selector, Selection.active)
        return [row[0] for row in view.rows(f"SELECT id FROM {source} ORDER BY state, id", params)]  # noqa: S608 - ours


def find_tasks(db: Database, selector: RunSelector) -> list[str]:
    """Names of the tasks that the visible runs of a selector belong to, in their order.

    Raises:
        ValueError: No such phase or end reason.
    """
    with db.snapshot() as view:
        source, params = _selected(view, selector, lambda every: every)
        return [row[0] for row in view.rows(f"SELECT DISTINCT task_name FROM {source} ORDER BY 1", params)]  # noqa: S608 - ours


def find_expired(db: Database, deleted_before: int) -> list[str]:
    """Slices of the runs that were deleted at a time (ms since the epoch) or before."""
    with db.snapshot() as view:
        return _slices(view, "runs INDEXED BY runs_deleted WHERE deleted_at <= ?", [deleted_before])


def first_deletion(db: Database, deleted_after: int) -> int | None:
    """When the first run was deleted after a time, both in ms since the epoch; None: none was."""
    row = db.row("SELECT min(deleted_at) FROM runs INDEXED BY runs_deleted WHERE deleted_at > ?", [deleted_after])
    return None if row is None else row[0]


def find_excess(db: Database, rules: Mapping[str, Retention], others: Retention, now_ms: int) -> list[str]:
    """Slices of the visible ended runs that are not kept.

    Args:
        db: Reader or writer.
        rules: By name of the task.
        others: For tasks that have runs and no rule.
        now_ms: From when the age of a run counts.
    """
    with db.snapshot() as view:
        found: list[int] = []
        for name in task_names(view):
            found += _excess(view, name, rules.get(name, others), now_ms)
    return list(_cut(sorted(found)))


def mark_deleted(db: Database, rows: str, now_ms: int) -> int:
    """Delete a slice so that it can be restored; returns how many runs that were."""
    return _change(db, rows, _VISIBLE_ENDED, [], -1, "UPDATE runs SET deleted_at = ?", [now_ms])


def unmark_deleted(db: Database, rows: str, deleted_after: int) -> int:
    """Restore those of a slice that were deleted after a time (ms since the epoch); returns how many that were."""
    return _change(db, rows, "deleted_at > ?", [deleted_after], 1, "UPDATE runs SET deleted_at = NULL", [])


def purge(db: Database, rows: str) -> int:
    """Remove a slice for good, except what has not ended; returns how many runs that were.

    Their files are noted in the same transaction: see `purged_runs`.
    """
    slice_ = "rowid IN (SELECT value FROM json_each(?))"
    with db.transaction() as connection:
        connection.execute(
            "INSERT INTO purged (task_name, run_id) SELECT task_name, id FROM runs"  # noqa: S608 - constants
            f" WHERE {slice_} AND state < {FIRST_ACTIVE} AND state NOT IN ({_WITHOUT_LOG})",
            [rows],
        )
        _count_slice(connection, rows, _VISIBLE_ENDED, [], -1)
        with connection.without_triggers():
            return connection.execute(f"DELETE FROM runs WHERE {slice_} AND state < {FIRST_ACTIVE}", [rows])  # noqa: S608 - constants


def drop_empty_counts(db: Database) -> int:
    """Remove the sums that slices have brought down to 0; returns how many that were."""
    return db.execute("DELETE FROM run_counts WHERE n = 0")


def purged_runs(db: Database, after: int, limit: int) -> list[PurgedRun]:
    """Purged runs whose files may still be there, from behind number `after` on."""
    return [
        PurgedRun(*row)
        for row in db.rows(
            "SELECT seq, task_name, run_id FROM purged WHERE seq > ? ORDER BY seq LIMIT ?", [after, limit]
        )
    ]


def forget_purged(db: Database, last: int, kept: Collection[int]) -> int:
    """The files of the purged runs up to number `last` are gone, except those of `kept`; returns how many that were."""
    return db.execute(
        "DELETE FROM purged WHERE seq <= ? AND seq NOT IN (SELECT value FROM json_each(?))", [last, json.dumps([*kept])]
    )


def _selected(
    db: Connection, selector: RunSelector, narrow: Callable[[Selection], Selection], deleted_after: int | None = None
) -> tuple[str, list[Value]]:
    """What follows FROM to get the runs of a selector, and its parameters."""
    wanted = selector.filter if selector.match_all else RunFilter(tasks=selector.filter.tasks)
    names = None
    if deleted_after is not None and (wanted.search or wanted.tasks is not None):
        names = frozenset(
            row[0] for row in db.rows("SELECT DISTINCT task_name FROM runs WHERE deleted_at > ?", [deleted_after])
        )
    selection = narrow(resolve(db, wanted, names))
    if selection.is_empty():
        return "runs WHERE false", []
    where, params = selection.conditions(deleted_after)
    if not selector.match_all:
        where += " AND id IN (SELECT value FROM json_each(?))"
        params.append(json.dumps([*selector.ids]))
        return f"runs INDEXED BY sqlite_autoindex_runs_1 WHERE {where}", params
    if selector.except_ids:
        where += " AND id NOT IN (SELECT value FROM json_each(?))"
        params.append(json.dumps([*selector.except_ids]))
    index = "runs_deleted" if deleted_after is not None else _index(db, selection)
    return f"runs INDEXED BY {index} WHERE {where}", params


def _index(db: Connection, selection: Selection) -> str:
    """The index in which the fewest entries have to be looked at."""
    if selection.id_is_whole():
        return "sqlite_autoindex_runs_1"
    span = Selection(created_after=selection.created_after, created_before=selection.created_before)
    ranges = [("runs_created", span)]
    if selection.names is not None:
        ranges.append(("runs_task", replace(span, names=selection.names)))
    if selection.states is not None:
        ranges.append(("runs_state", replace(span, states=selection.states)))
    if selection.triggers is not None:
        ranges.append(("runs_trigger", replace(span, triggers=selection.triggers)))
    return min(ranges, key=lambda one: count(db, one[1]))[0]


def _slices(db: Connection, source: str, params: list[Value]) -> list[str]:
    """The rows in the order of their numbers, about that of their creation: neighbours are changed together."""
    numbered = f"SELECT rowid AS number, (row_number() OVER (ORDER BY rowid) - 1) / {SLICE_ROWS} AS part FROM {source}"  # noqa: S608 - ours
    made = db.rows(f"SELECT json_group_array(number) FROM ({numbered}) GROUP BY part ORDER BY part", params)  # noqa: S608 - ours
    return [row[0] for row in made]


def _excess(db: Connection, name: str, rule: Retention, now_ms: int) -> Iterator[int]:
    source = f"runs INDEXED BY runs_task WHERE {_VISIBLE_ENDED} AND task_name = ?"
    parts = []
    params: list[Value] = []
    if count(db, Selection(names=frozenset({name})).ended()) > rule.keep_runs:
        parts.append(f"SELECT * FROM (SELECT rowid FROM {source} ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?)")  # noqa: S608 - ours
        params += [name, rule.keep_runs]
    until = now_ms - rule.keep_for_ms
    # No run ends before it was created: the index has the few that may be too old.
    parts.append(f"SELECT rowid FROM {source} AND created_at <= ? AND COALESCE(ended_at, created_at) <= ?")  # noqa: S608 - ours
    params += [name, until, until]
    return (row[0] for row in db.rows(" UNION ".join(parts), params))


def _cut(numbers: list[int]) -> Iterable[str]:
    return (json.dumps(numbers[at : at + SLICE_ROWS]) for at in range(0, len(numbers), SLICE_ROWS))


def _change(
    db: Database, rows: str, which: str, which_params: list[Value], sign: int, update: str, params: list[Value]
) -> int:
    with db.transaction() as connection:
        _count_slice(connection, rows, which, which_params, sign)
        with connection.without_triggers():
            return connection.execute(
                f"{update} WHERE rowid IN (SELECT value FROM json_each(?)) AND {which}",  # noqa: S608 - constants
                [*params, rows, *which_params],
            )


def _count_slice(db: Connection, rows: str, which: str, params: list[Value], sign: int) -> None:
    """Add those of a slice to `run_counts`, or take them away: what the triggers would do one by one."""
    some = (
        "WITH some AS MATERIALIZED (SELECT task_name, created_at, state, exit_code, triggered_by,"  # noqa: S608 - constants
        f" retry_attempt > 0 AS retry FROM json_each(?) AS row CROSS JOIN runs ON runs.rowid = row.value AND {which}),"
        " scoped AS (SELECT '' AS scope, 27 AS width, * FROM some UNION ALL SELECT '', 22, * FROM some"
        " UNION ALL SELECT task_name, 27, * FROM some)"
    )
    db.execute(
        f"{some} INSERT INTO run_counts"  # noqa: S608 - constants
        " SELECT scope, width, created_at >> width, state, exit_code, triggered_by, retry,"
        f" {sign} * count(*) FROM scoped WHERE true GROUP BY 1, 2, 3, 4, 5, 6, 7"
        " ON CONFLICT DO UPDATE SET n = n + excluded.n",
        [rows, *params],
    )
