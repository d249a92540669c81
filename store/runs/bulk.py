"""Bulk operations on runs: one read selects them, then they are changed in slices, each in its own transaction.

A slice is the JSON text of an array of row numbers; only the database creates and reads it. Row numbers are valid as
long as no run is purged, so the caller must not overlap operations. A run may change after it was selected, so each
change checks the conditions again.

The triggers of `run_counts` would change three numbers for each run, one by one. So each transaction adds the sums of
its slice, and changes the runs without triggers. Deleting and restoring a run touch none of its index entries. Purging
touches them all, so its slices are smaller.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from store.connection import ALL, NUMBERS, TEXTS, Connection, Row, Value
from store.database import Database
from store.runs.filter import VISIBLE, RunFilter, Selection, resolve, task_names
from store.runs.phases import ENDED_STATES, FIRST_ACTIVE, REFUSED_STATES
from store.runs.run_durations import bucket
from store.runs.totals import count, tally

SLICE_ROWS = 1000
"""Size of a slice to delete or restore. With a million runs, a slice takes 10 to 15 ms, for which other writes wait.
The time is proportional to the size."""
PURGE_ROWS = 50
"""Size of a slice to purge, which takes about 3 ms."""

_ENDED = f"state < {FIRST_ACTIVE}"
_THOSE = f"seq IN {NUMBERS} AND {_ENDED}"
_OTHER_LAST = (  # without this, the next run that ends would become the last run, even if others that stay are newer
    "UPDATE tasks SET last_run_id = (SELECT id FROM runs INDEXED BY runs_ended"  # noqa: S608 - constants
    f" WHERE {_ENDED} AND task_name = tasks.name AND seq NOT IN {NUMBERS}"
    " ORDER BY end_number DESC, ended_at DESC LIMIT 1)"
    f" WHERE name IN (SELECT task_name FROM runs WHERE {_THOSE})"
    f" AND last_run_id IN (SELECT id FROM runs WHERE {_THOSE})"
)
_ACTIVE = f"SELECT id FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE}"  # noqa: S608 - constants
_STILL_READ = (  # the flow runs whose steps' runs are needed: the open ones, and those of which an open one keeps steps
    f"{_ACTIVE} UNION SELECT from_run_id FROM flow_steps WHERE from_run_id IS NOT NULL AND run_id IN ({_ACTIVE})"  # noqa: S608 - constants
)
_STEP_OF = "{0}.flow_run_id = {1}.id AND {0}.task_name = {1}.task_name || ':' || {0}.step"
"""The condition that a run belongs to the run of its flow, and is kept and removed with it."""
_EXPIRED = (
    "(SELECT run FROM deleted_runs JOIN runs ON seq = run WHERE deleted_at <= ?"  # noqa: S608 - constants
    f" AND id NOT IN ({_STILL_READ}) AND (flow_run_id IS NULL OR flow_run_id NOT IN ({_STILL_READ}))"
    " UNION SELECT inner_run.seq FROM deleted_runs JOIN runs AS outer_run ON outer_run.seq = run"
    f" JOIN runs AS inner_run ON {_STEP_OF.format('inner_run', 'outer_run')}"
    f" WHERE deleted_at <= ? AND outer_run.id NOT IN ({_STILL_READ})) AS expired"
)
_REFUSED = f"state IN ({', '.join(map(str, sorted(REFUSED_STATES)))})"


@dataclass(frozen=True, slots=True)
class RunSelection:
    """The selection of runs for a bulk operation.

    Attributes:
        match_all: Whether `filter` and `except_ids` select the runs; otherwise `ids` does.
        filter: Conditions on the runs. Its `tasks` always applies.
        except_ids: Ids of runs to leave out.
        ids: Ids of runs to select; ids that do not exist are ignored.
    """

    match_all: bool = False
    filter: RunFilter = field(default_factory=RunFilter)
    except_ids: Collection[str] = ()
    ids: Collection[str] = ()


class Retention(NamedTuple):
    """Limits on the runs that are kept of a task.

    Attributes:
        keep_runs: Maximum number of ended runs that ran. The runs that ended last stay.
        keep_for_ms: Maximum time since their end.
        keep_refused: Maximum number of runs that never ran. They have a separate limit, so they displace no other runs.
    """

    keep_runs: int
    keep_for_ms: int
    keep_refused: int


class PurgedRun(NamedTuple):
    """A run whose row was removed and whose files may still exist."""

    seq: int
    task_name: str
    run_id: str


def find_ended(db: Database, selector: RunSelection) -> list[str]:
    """Return slices of the visible ended runs of a selector, oldest first.

    Raises:
        ValueError: Unknown phase or end reason.
    """
    with db.snapshot() as view:
        return _slices(view, "seq", *_selected(view, selector, Selection.ended), SLICE_ROWS)


def find_deleted(db: Database, selector: RunSelection, deleted_after: int, deleted_at: int | None = None) -> list[str]:
    """Return slices of a selector's runs that were deleted after a time and, if given, exactly at `deleted_at` (ms).

    Raises:
        ValueError: Unknown phase or end reason.
    """
    with db.snapshot() as view:
        return _slices(view, "seq", *_deleted(view, selector, _deletion(deleted_after, deleted_at)), SLICE_ROWS)


def first_ids(db: Database, slices: Sequence[str], number: int) -> list[str]:
    """Return the ids of the first `number` runs of the first slice."""
    query = f"SELECT id FROM runs WHERE seq IN {NUMBERS} ORDER BY seq LIMIT ?"  # noqa: S608 - constants
    return [row[0] for row in db.rows(query, [slices[0], number])] if slices else []


def find_active(db: Database, selector: RunSelection) -> list[str]:
    """Return the ids of the visible active runs of a selector; runs that have not started come first.

    Raises:
        ValueError: Unknown phase or end reason.
    """
    with db.snapshot() as view:
        source, params = _selected(view, selector, Selection.active)
        return [row[0] for row in view.rows(f"SELECT id FROM {source} ORDER BY state, id", params)]  # noqa: S608 - ours


def find_newest(db: Database, selector: RunSelection) -> dict[str, str]:
    """Return the id of each task's newest visible run that a selector selects, sorted by task name.

    Raises:
        ValueError: Unknown phase or end reason.
    """
    with db.snapshot() as view:
        selection = _resolve(view, selector)
        if selection.is_empty():
            return {}
        newest: dict[str, str | None]
        if not selector.match_all:
            where, params = _conditions(selector, selection)
            source = f"runs INDEXED BY runs_id WHERE {where} ORDER BY created_at, id"
            newest = dict(view.rows(f"SELECT task_name, id FROM {source}", params))  # noqa: S608 - ours
        else:
            names = [*tally(view, selection, "task_name")]  # no search through the runs of the others
            last, params = _newest_of_each(selector, replace(selection, names=None))
            each = f"SELECT value, ({last}) FROM (SELECT value FROM json_each(?)) AS tasks"  # noqa: S608 - ours
            newest = dict(view.rows(each, [*params, json.dumps(names)]))
        return {name: run_id for name, run_id in sorted(newest.items()) if run_id is not None}


def find_expired(db: Database, deleted_before: int) -> list[str]:
    """Return slices of the runs that were deleted at or before a time (ms since the epoch).

    The runs of a flow's steps expire with the run of the flow, and not before it has ended.
    """
    with db.snapshot() as view:
        return _slices(view, "run", _EXPIRED, [deleted_before, deleted_before], PURGE_ROWS)


def first_deletion(db: Database, deleted_after: int) -> int | None:
    """Return the time of the first deletion after a time, both in ms since the epoch; None if there was none."""
    row = db.row("SELECT min(deleted_at) FROM deleted_runs WHERE deleted_at > ?", [deleted_after])
    return None if row is None else row[0]


def find_excess(db: Database, rules: Mapping[str, Retention], others: Retention, now_ms: int) -> list[str]:
    """Return slices of the visible ended runs that exceed the retention limits.

    Args:
        db: A reader or writer.
        rules: Limits by task name.
        others: Limits for tasks without a rule.
        now_ms: Current time, from which the age of a run is measured.
    """
    with db.snapshot() as view:
        numbers: list[int] = []
        for name in task_names(view):
            numbers += _excess(view, name, rules.get(name, others), now_ms)
    return list(_cut(sorted(numbers)))


def mark_deleted(db: Database, rows: str, now_ms: int) -> int:
    """Mark the ended runs of a slice as deleted; return the number of runs that were not deleted before."""
    insert = (  # without the range, PostgreSQL would read all deleted runs
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
    """Restore the runs of a slice that were deleted after a time and, if given, exactly at `deleted_at` (ms).

    Returns the number of restored runs.
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
    """Remove the ended runs of a slice permanently; return their number.

    Runs that may have files are recorded in the same transaction; see `purged_runs`.
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
            for table in ("run_samples", "flows", "flow_steps", "run_outputs", "approvals"):
                connection.execute(
                    f"DELETE FROM {table} WHERE run_id IN (SELECT id FROM runs WHERE {_THOSE})",  # noqa: S608 - constants
                    [rows],
                )
            return connection.execute(f"DELETE FROM runs WHERE {_THOSE}", [rows])  # noqa: S608 - constants


def purged_runs(db: Database, after: int, limit: int) -> list[PurgedRun]:
    """Return at most `limit` purged runs after number `after` whose files may still exist."""
    return [
        PurgedRun(*row)
        for row in db.rows(
            "SELECT seq, task_name, run_id FROM purged WHERE seq > ? ORDER BY seq LIMIT ?", [after, limit]
        )
    ]


def forget_purged(db: Database, last: int, kept_numbers: Collection[int]) -> int:
    """Forget purged runs up to number `last`, except `kept_numbers`, whose files remain; return their number."""
    return db.execute(
        f"DELETE FROM purged WHERE seq <= ? AND seq NOT IN {NUMBERS}",  # noqa: S608 - constants
        [last, json.dumps([*kept_numbers])],
    )


def _selected(
    db: Connection, selector: RunSelection, narrow: Callable[[Selection], Selection]
) -> tuple[str, list[Value]]:
    """Return the SQL after FROM for the visible runs of a selector, and its parameters."""
    selection = narrow(_resolve(db, selector))
    if selection.is_empty():
        return "runs WHERE false", []
    where, params = _conditions(selector, selection)
    index = _index(db, selection) if selector.match_all else "runs_id"
    return f"runs INDEXED BY {index} WHERE {where}", params


def _deletion(after: int, at: int | None) -> tuple[str, list[Value]]:
    """Return the condition on the time of deletion, and its parameters."""
    return ("deleted_at > ?", [after]) if at is None else ("deleted_at > ? AND deleted_at = ?", [after, at])


def _is_deleted(when: str) -> str:
    return f"EXISTS (SELECT 1 FROM deleted_runs WHERE run = runs.seq AND {when})"  # noqa: S608 - constants


def _deleted(db: Connection, selector: RunSelection, deletion: tuple[str, list[Value]]) -> tuple[str, list[Value]]:
    """Return the SQL after FROM for the deleted runs of a selector, and its parameters."""
    when, times = deletion
    selection = replace(_resolve(db, selector), some_deleted=False)
    if selection.is_empty():
        return "runs WHERE false", []
    where, params = _conditions(selector, selection)
    if not selector.match_all:
        return f"runs INDEXED BY runs_id WHERE {where} AND {_is_deleted(when)}", [*params, *times]
    # With CROSS JOIN, SQLite scans the first table and looks up rows of the second.
    source = f"deleted_runs CROSS JOIN runs WHERE runs.seq = deleted_runs.run AND {when}"
    return f"{source} AND {where}", [*times, *params]


def _newest_of_each(selector: RunSelection, selection: Selection) -> tuple[str, list[Value]]:
    """Return the query for the newest run, ended or active, of the task `tasks.value`, and its parameters."""
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


def _resolve(db: Connection, selector: RunSelection) -> Selection:
    return resolve(db, selector.filter if selector.match_all else RunFilter(tasks=selector.filter.tasks))


def _conditions(selector: RunSelection, selection: Selection) -> tuple[str, list[Value]]:
    where, params = selection.conditions()
    if not selector.match_all:
        return f"id IN {TEXTS} AND {where}", [json.dumps([*selector.ids]), *params]
    if selector.except_ids:
        return f"{where} AND id NOT IN {TEXTS}", [*params, json.dumps([*selector.except_ids])]
    return where, params


def _index(db: Connection, selection: Selection) -> str:
    """Return the index with the fewest entries to read."""
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
    return min(ranges, key=lambda candidate: count(db, candidate[1]))[0]


def _slices(db: Connection, column: str, source: str, params: list[Value], size: int) -> list[str]:
    """Return slices in the order of row numbers. Rows that are changed together were created at about the same time."""
    numbered = f"SELECT {column} AS number, (row_number() OVER (ORDER BY {column}) - 1) / {size} AS part FROM {source}"  # noqa: S608 - ours
    array = "'[' || string_agg(CAST(number AS TEXT), ',') || ']'"
    made = db.rows(f"SELECT {array} FROM ({numbered}) AS numbered GROUP BY part ORDER BY part", params)  # noqa: S608 - ours
    return [row[0] for row in made]


def _excess(db: Connection, name: str, rule: Retention, now_ms: int) -> Iterator[int]:
    source = f"runs INDEXED BY {{}} WHERE {_ENDED} AND task_name = ?"
    if ":" in name:  # perhaps a step: its runs go with those of the flow, except those started alone
        source += " AND (flow_run_id IS NULL OR task_name NOT LIKE '%:' || step)"
    parts = []
    params: list[Value] = []
    for part, states, limit, where in (
        ("ran", ENDED_STATES - REFUSED_STATES, rule.keep_runs, f"NOT {_REFUSED}"),
        ("refused", REFUSED_STATES, rule.keep_refused, _REFUSED),
    ):
        if count(db, Selection(names=frozenset({name}), states=states)) > limit:
            last = f"ORDER BY end_number DESC, ended_at DESC LIMIT {ALL} OFFSET ?"
            ended = f"SELECT seq FROM {source.format('runs_ended')} AND {where} AND {VISIBLE} {last}"  # noqa: S608 - ours
            parts.append(f"SELECT * FROM ({ended}) AS {part}")  # noqa: S608 - ours
            params += [name, limit]
    until = now_ms - rule.keep_for_ms
    # A run does not end before its creation, so the index finds the few runs that may be too old.
    old = "created_at <= ? AND COALESCE(ended_at, created_at) <= ?"
    parts.append(f"SELECT seq FROM {source.format('runs_task')} AND {old} AND {VISIBLE}")  # noqa: S608 - ours
    params += [name, until, until]
    return (row[0] for row in db.rows(" UNION ".join(parts), params))


def _cut(numbers: list[int]) -> Iterable[str]:
    return (json.dumps(numbers[at : at + PURGE_ROWS]) for at in range(0, len(numbers), PURGE_ROWS))


def _slice(rows: Iterable[Row]) -> str:
    """Return the slice of row numbers, the first column of `rows`."""
    return json.dumps([row[0] for row in rows])


def _count_slice(db: Connection, rows: str, which: str, sign: int) -> None:
    """Add the ended runs of a slice to the counts, or subtract them, in place of the triggers.

    The wide buckets of all tasks together are computed from the narrow ones, which are a tenth as many as the runs:
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
    else:  # PostgreSQL accepts an INSERT within WITH, so the slice is read only once
        db.execute(f"{parts}, counts AS ({counts}) {durations.format('chosen WHERE')}", [rows])
