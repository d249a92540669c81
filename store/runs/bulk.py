"""Many runs at once: fixed in one read, then worked off in slices, each in a transaction of its own.

A slice is the JSON text of an array of row numbers; only the database makes it and reads it. Row numbers are valid as
long as no run is purged, so the caller does one operation after the other. A run may change after it was read, so each
change checks again and affects only the intended runs.

Triggers that keep `run_counts` would change three numbers for each run, one by one. So the sums of a
slice are stored, and the runs are changed without triggers; all of it is one transaction. To delete a run and to
restore it touches none of its index entries; to purge it touches them all, so those slices are smaller.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from store.connection import ALL, NUMBERS, TEXTS, Connection, Row, Value
from store.database import Database
from store.runs.duration_buckets import bucket
from store.runs.filter import VISIBLE, RunFilter, Selection, resolve, task_names
from store.runs.phases import ENDED_STATES, FIRST_ACTIVE, REFUSED_STATES
from store.runs.totals import count

SLICE_ROWS = 1000
"""To delete or restore. Takes 10 to 15 ms of a million runs: for so long another write waits. Twice as many take twice
as long."""
PURGE_ROWS = 50
"""To purge: some 3 ms."""

_ENDED = f"state < {FIRST_ACTIVE}"
_THOSE = f"seq IN {NUMBERS} AND {_ENDED}"
_OTHER_LAST = (  # else the next run that ends would count as the last one, be it older than others that stay or not
    "UPDATE tasks SET last_run_id = (SELECT id FROM runs INDEXED BY runs_task"  # noqa: S608 - constants
    f" WHERE {_ENDED} AND task_name = tasks.name AND seq NOT IN {NUMBERS} ORDER BY created_at DESC, id DESC LIMIT 1)"
    f" WHERE name IN (SELECT task_name FROM runs WHERE {_THOSE})"
    f" AND last_run_id IN (SELECT id FROM runs WHERE {_THOSE})"
)
_REFUSED = f"state IN ({', '.join(map(str, sorted(REFUSED_STATES)))})"


@dataclass(frozen=True, slots=True)
class RunSelector:
    """Which runs a bulk operation is about.

    Attributes:
        match_all: Whether `filter` and `except_ids` count, or else `ids`.
        filter: The conditions on the runs. Its `tasks` counts in any case.
        except_ids: Ids of runs to leave out.
        ids: Exactly these, as far as they exist.
    """

    match_all: bool = False
    filter: RunFilter = field(default_factory=RunFilter)
    except_ids: Collection[str] = ()
    ids: Collection[str] = ()


class Retention(NamedTuple):
    """Limits on the runs kept of a task.

    Attributes:
        keep_runs: How many runs that ran and ended.
        keep_for_ms: How long after their end.
        keep_refused: How many that never ran. They are counted apart, and so push out nothing that ran.
    """

    keep_runs: int
    keep_for_ms: int
    keep_refused: int


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
        return _slices(view, "seq", *_selected(view, selector, Selection.ended), SLICE_ROWS)


def find_deleted(db: Database, selector: RunSelector, deleted_after: int, deleted_at: int | None = None) -> list[str]:
    """Return slices of the runs of a selector deleted after a time, or also at exactly that time (ms since the epoch).

    Raises:
        ValueError: No such phase or end reason.
    """
    with db.snapshot() as view:
        return _slices(view, "seq", *_deleted(view, selector, _deletion(deleted_after, deleted_at)), SLICE_ROWS)


def first_ids(db: Database, slices: Sequence[str], number: int) -> list[str]:
    """Return the ids of the first runs of slices, at most one slice."""
    query = f"SELECT id FROM runs WHERE seq IN {NUMBERS} ORDER BY seq LIMIT ?"  # noqa: S608 - constants
    return [row[0] for row in db.rows(query, [slices[0], number])] if slices else []


def find_active(db: Database, selector: RunSelector) -> list[str]:
    """Return ids of the visible runs of a selector that have not ended; runs that have not begun come first.

    Raises:
        ValueError: No such phase or end reason.
    """
    with db.snapshot() as view:
        source, params = _selected(view, selector, Selection.active)
        return [row[0] for row in view.rows(f"SELECT id FROM {source} ORDER BY state, id", params)]  # noqa: S608 - ours


def find_newest(db: Database, selector: RunSelector) -> dict[str, str]:
    """Return the newest visible run of a selector by the name of its task, for each task that has any, in their order.

    Raises:
        ValueError: No such phase or end reason.
    """
    with db.snapshot() as view:
        selection = _resolve(view, selector)
        if selection.is_empty():
            return {}
        there = task_names(view)  # a filter may have any text for a name, of which a database takes not all in JSON
        names = sorted(there if selection.names is None else there & selection.names)
        newest: dict[str, str | None]
        if not selector.match_all:
            where, params = _conditions(selector, replace(selection, names=None))
            source = f"runs INDEXED BY runs_id WHERE {where} ORDER BY created_at, id"
            newest = dict(view.rows(f"SELECT task_name, id FROM {source}", params))  # noqa: S608 - ours
        else:
            last, params = _newest_of_each(selector, replace(selection, names=None))
            each = f"SELECT value, ({last}) FROM (SELECT value FROM json_each(?)) AS tasks"  # noqa: S608 - ours
            newest = dict(view.rows(each, [*params, json.dumps(names)]))
        return {name: run_id for name in names if (run_id := newest.get(name)) is not None}


def find_expired(db: Database, deleted_before: int) -> list[str]:
    """Slices of the runs that were deleted at a time (ms since the epoch) or before."""
    with db.snapshot() as view:
        return _slices(view, "run", "deleted_runs WHERE deleted_at <= ?", [deleted_before], PURGE_ROWS)


def first_deletion(db: Database, deleted_after: int) -> int | None:
    """When the first run was deleted after a time, both in ms since the epoch; None: none was."""
    row = db.row("SELECT min(deleted_at) FROM deleted_runs WHERE deleted_at > ?", [deleted_after])
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
    insert = (  # without the range PostgreSQL would go through all runs that are deleted
        f"INSERT INTO deleted_runs (run, deleted_at) SELECT seq, ? FROM runs WHERE seq IN {NUMBERS}"  # noqa: S608 - constants
        f" AND {_ENDED} AND seq NOT IN (SELECT run FROM deleted_runs WHERE run BETWEEN ? AND ?) RETURNING run"
    )
    numbers = json.loads(rows)
    with db.transaction() as connection:
        with connection.without_triggers():
            deleted = connection.rows(insert, [now_ms, rows, min(numbers), max(numbers)])
        _count_slice(connection, _slice(deleted), "true", -1)
        return len(deleted)


def unmark_deleted(db: Database, rows: str, deleted_after: int, deleted_at: int | None = None) -> int:
    """Restore runs of a slice that were deleted after a time, or also at exactly that time (ms since the epoch).

    Returns how many that were.
    """
    when, params = _deletion(deleted_after, deleted_at)
    with db.transaction() as connection:
        with connection.without_triggers():
            restored = connection.rows(
                f"DELETE FROM deleted_runs WHERE run IN {NUMBERS} AND {when} RETURNING run",  # noqa: S608 - constants
                [rows, *params],
            )
        _count_slice(connection, _slice(restored), "true", 1)
        return len(restored)


def purge(db: Database, rows: str) -> int:
    """Remove the ended runs of a slice permanently; return how many.

    Their files are noted in the same transaction: see `purged_runs`.
    """
    with db.transaction() as connection:
        connection.execute(
            "INSERT INTO purged (task_name, run_id) SELECT task_name, id FROM runs"  # noqa: S608 - constants
            f" WHERE {_THOSE} AND NOT {_REFUSED}",
            [rows],
        )
        _count_slice(connection, rows, VISIBLE, -1)
        connection.execute(_OTHER_LAST, [rows, rows, rows])
        with connection.without_triggers():
            connection.execute(
                f"DELETE FROM deleted_runs WHERE run IN (SELECT seq FROM runs WHERE {_THOSE})",  # noqa: S608 - constants
                [rows],
            )
            connection.execute(
                f"DELETE FROM run_samples WHERE run_id IN (SELECT id FROM runs WHERE {_THOSE})",  # noqa: S608 - constants
                [rows],
            )
            return connection.execute(f"DELETE FROM runs WHERE {_THOSE}", [rows])  # noqa: S608 - constants


def purged_runs(db: Database, after: int, limit: int) -> list[PurgedRun]:
    """Purged runs whose files may still be there, from behind number `after` on."""
    return [
        PurgedRun(*row)
        for row in db.rows(
            "SELECT seq, task_name, run_id FROM purged WHERE seq > ? ORDER BY seq LIMIT ?", [after, limit]
        )
    ]


def forget_purged(db: Database, last: int, kept: Collection[int]) -> int:
    """Mark the files of purged runs up to number `last` as removed, except `kept`; return how many."""
    return db.execute(
        f"DELETE FROM purged WHERE seq <= ? AND seq NOT IN {NUMBERS}",  # noqa: S608 - constants
        [last, json.dumps([*kept])],
    )


def _selected(
    db: Connection, selector: RunSelector, narrow: Callable[[Selection], Selection]
) -> tuple[str, list[Value]]:
    """What follows FROM to get the visible runs of a selector, and its parameters."""
    selection = narrow(_resolve(db, selector))
    if selection.is_empty():
        return "runs WHERE false", []
    where, params = _conditions(selector, selection)
    index = _index(db, selection) if selector.match_all else "runs_id"
    return f"runs INDEXED BY {index} WHERE {where}", params


def _deletion(after: int, at: int | None) -> tuple[str, list[Value]]:
    """Return a condition for when a run was deleted, and its parameters."""
    return ("deleted_at > ?", [after]) if at is None else ("deleted_at > ? AND deleted_at = ?", [after, at])


def _is_deleted(when: str) -> str:
    return f"EXISTS (SELECT 1 FROM deleted_runs WHERE run = runs.seq AND {when})"  # noqa: S608 - constants


def _deleted(db: Connection, selector: RunSelector, deletion: tuple[str, list[Value]]) -> tuple[str, list[Value]]:
    """Return the SQL after FROM for the runs of a selector deleted at a time, and its parameters."""
    when, times = deletion
    selection = replace(_resolve(db, selector), some_deleted=False)
    if selection.is_empty():
        return "runs WHERE false", []
    where, params = _conditions(selector, selection)
    if not selector.match_all:
        return f"runs INDEXED BY runs_id WHERE {where} AND {_is_deleted(when)}", [*params, *times]
    # CROSS JOIN: SQLite goes through the first of them, and looks up the other.
    source = f"deleted_runs CROSS JOIN runs WHERE runs.seq = deleted_runs.run AND {when}"
    return f"{source} AND {where}", [*times, *params]


def _newest_of_each(selector: RunSelector, selection: Selection) -> tuple[str, list[Value]]:
    """Return the query for the newest run of a task, `tasks.value`: back to the first that matches in either part."""
    parts, values = [], []
    for index, part in (("runs_task", selection.ended()), ("runs_active", selection.active())):
        if part.is_empty():
            continue
        where, params = _conditions(selector, part)
        source = f"runs INDEXED BY {index} WHERE task_name = tasks.value AND {where}"
        newest = f"SELECT id, created_at FROM {source} ORDER BY created_at DESC, id DESC LIMIT 1"  # noqa: S608 - ours
        parts.append(f"SELECT * FROM ({newest}) AS {index}")  # noqa: S608 - ours
        values += params
    both = " UNION ALL ".join(parts)
    return f"SELECT id FROM ({both}) AS newest ORDER BY created_at DESC, id DESC LIMIT 1", values  # noqa: S608 - ours


def _resolve(db: Connection, selector: RunSelector) -> Selection:
    return resolve(db, selector.filter if selector.match_all else RunFilter(tasks=selector.filter.tasks))


def _conditions(selector: RunSelector, selection: Selection) -> tuple[str, list[Value]]:
    where, params = selection.conditions()
    if not selector.match_all:
        return f"id IN {TEXTS} AND {where}", [json.dumps([*selector.ids]), *params]
    if selector.except_ids:
        return f"{where} AND id NOT IN {TEXTS}", [*params, json.dumps([*selector.except_ids])]
    return where, params


def _index(db: Connection, selection: Selection) -> str:
    """Return the index in which the fewest entries have to be looked at."""
    if selection.id_is_whole():
        return "runs_id"
    if selection == selection.active():
        return "runs_active"
    span = Selection(created_after=selection.created_after, created_before=selection.created_before)
    ranges = [("runs_created", span)]
    if selection.names is not None:
        ranges.append(("runs_task", replace(span, names=selection.names)))
    if selection.states is not None:
        ranges.append(("runs_state", replace(span, states=selection.states)))
    if selection.triggers is not None:
        ranges.append(("runs_trigger", replace(span, triggers=selection.triggers)))
    return min(ranges, key=lambda one: count(db, one[1]))[0]


def _slices(db: Connection, column: str, source: str, params: list[Value], size: int) -> list[str]:
    """Return the rows in the order of their numbers, about that of their creation: neighbours are changed together."""
    numbered = f"SELECT {column} AS number, (row_number() OVER (ORDER BY {column}) - 1) / {size} AS part FROM {source}"  # noqa: S608 - ours
    array = "'[' || string_agg(CAST(number AS TEXT), ',') || ']'"
    made = db.rows(f"SELECT {array} FROM ({numbered}) AS numbered GROUP BY part ORDER BY part", params)  # noqa: S608 - ours
    return [row[0] for row in made]


def _excess(db: Connection, name: str, rule: Retention, now_ms: int) -> Iterator[int]:
    source = f"runs INDEXED BY runs_task WHERE {_ENDED} AND task_name = ?"
    parts = []
    params: list[Value] = []
    for part, states, kept, where in (
        ("ran", ENDED_STATES - REFUSED_STATES, rule.keep_runs, f"NOT {_REFUSED}"),
        ("refused", REFUSED_STATES, rule.keep_refused, _REFUSED),
    ):
        if count(db, Selection(names=frozenset({name}), states=states)) > kept:
            newest = f"ORDER BY created_at DESC, id DESC LIMIT {ALL} OFFSET ?"
            parts.append(f"SELECT * FROM (SELECT seq FROM {source} AND {where} AND {VISIBLE} {newest}) AS {part}")  # noqa: S608 - ours
            params += [name, kept]
    until = now_ms - rule.keep_for_ms
    # No run ends before it was created: the index has the few that may be too old.
    old = "created_at <= ? AND COALESCE(ended_at, created_at) <= ?"
    parts.append(f"SELECT seq FROM {source} AND {old} AND {VISIBLE}")  # noqa: S608 - ours
    params += [name, until, until]
    return (row[0] for row in db.rows(" UNION ".join(parts), params))


def _cut(numbers: list[int]) -> Iterable[str]:
    return (json.dumps(numbers[at : at + PURGE_ROWS]) for at in range(0, len(numbers), PURGE_ROWS))


def _slice(found: Iterable[Row]) -> str:
    """Of row numbers, one in each row."""
    return json.dumps([row[0] for row in found])


def _count_slice(db: Connection, rows: str, which: str, sign: int) -> None:
    """Add the ended runs of a slice to `run_counts`, or subtract them, in place of the triggers.

    The wide buckets of all tasks together are made of the narrow ones, of which there are a tenth as many as of runs:
    sorting is most of the work.
    """
    by = "state, exit_code, triggered_by, retry"
    numbers = (
        "count(*) AS n, count(started_at) AS started, count(duration) AS timed,"
        " min(started_at) AS first, max(started_at) AS last"
    )
    sums = "SUM(n), SUM(started), SUM(timed), min(first), max(last)"
    slice_ = f"runs WHERE seq IN {NUMBERS} AND {_ENDED} AND {which}"
    parts = (
        "WITH chosen AS MATERIALIZED (SELECT task_name, created_at, state, exit_code, triggered_by,"  # noqa: S608 - constants
        " CASE WHEN retry_attempt > 0 THEN 1 ELSE 0 END AS retry, started_at, duration"
        f" FROM {slice_}),"
        f" narrow AS MATERIALIZED (SELECT created_at >> 22 AS bucket, {by}, {numbers} FROM chosen GROUP BY 1, {by}),"
        f" counted AS (SELECT '' AS scope, 22 AS width, * FROM narrow"
        f" UNION ALL SELECT '', 27, bucket >> 5, {by}, {sums} FROM narrow GROUP BY 3, {by}"
        f" UNION ALL SELECT task_name, 27, created_at >> 27, {by}, {numbers} FROM chosen GROUP BY 3, 1, {by})"
    )
    counts = (
        f"INSERT INTO run_counts SELECT scope, width, bucket, {by},"  # noqa: S608 - constants
        f" {sign} * n, {sign} * started, {sign} * timed, first, last FROM counted WHERE true"
        " ON CONFLICT (width, bucket, task_name, state, exit_code, triggered_by, retry)"
        " DO UPDATE SET n = run_counts.n + excluded.n, started = run_counts.started + excluded.started,"
        " timed = run_counts.timed + excluded.timed,"
        " first_start = CASE WHEN run_counts.first_start <= excluded.first_start OR excluded.first_start IS NULL"
        " THEN run_counts.first_start ELSE excluded.first_start END,"
        " last_start = CASE WHEN run_counts.last_start >= excluded.last_start OR excluded.last_start IS NULL"
        " THEN run_counts.last_start ELSE excluded.last_start END"
    )
    durations = (
        f"INSERT INTO run_durations SELECT {bucket('duration')}, state, {sign} * count(*)"  # noqa: S608 - constants
        " FROM {} duration IS NOT NULL GROUP BY 1, 2"
        " ON CONFLICT (bucket, state) DO UPDATE SET n = run_durations.n + excluded.n"
    )
    if db.sqlite:
        db.execute(f"{parts} {counts}", [rows])
        db.execute(durations.format(f"{slice_} AND"), [rows])
    else:  # a statement can be part of another one: the slice is read once
        db.execute(f"{parts}, counts AS ({counts}) {durations.format('chosen WHERE')}", [rows])
