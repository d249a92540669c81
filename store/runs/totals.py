"""Exact numbers of runs, mostly without counting them.

Numbers of ended runs are sums from `run_counts`. A time range is covered by whole buckets, wide ones first. Only the
remainder at its two ends is counted run by run in an index. Active runs are few, so they are counted as well. Readers
cache each number until the next commit, because choosing a plan needs some numbers repeatedly.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from store.connection import NUMBERS, Connection, Row, Value
from store.runs.filter import WIDTH_ALL, WIDTH_TASK, Selection, among
from store.runs.phases import ENDED_STATES

GroupColumn = Literal["task_name", "state", "exit_code"]
_ALL_TASKS = ""  # task name of the sums over all tasks in run_counts
_WIDTHS_ALL = (27, WIDTH_ALL)  # log2 of the milliseconds in a bucket
_WIDTHS_TASK = (WIDTH_TASK,)
_FIRST_BUCKET = f"SELECT min(bucket) FROM run_counts WHERE width = {WIDTH_TASK}"  # noqa: S608 - constants
_BUCKETS = (
    f"WITH RECURSIVE found (bucket) AS ({_FIRST_BUCKET} UNION ALL"  # noqa: S608 - constants
    f" SELECT ({_FIRST_BUCKET} AND bucket > found.bucket) FROM found WHERE found.bucket IS NOT NULL)"
    " SELECT bucket FROM found WHERE bucket IS NOT NULL"
)
"""The existing wide buckets. The query steps through the index from each to the next."""


class BucketRange(NamedTuple):
    """Part of a time range: buckets `start` to `end` of 2**width ms, or single ms if width is 0.

    `end` is exclusive. None means that the range has no such limit.
    """

    width: int
    start: int | None
    end: int | None


class Starts(NamedTuple):
    """Number of runs with a start, and two times that enclose all their starts (ms since the epoch)."""

    n: int
    first: int
    last: int


class _Tally(NamedTuple):
    """Numbers of runs by group value: all runs, runs with a start, and runs with a duration."""

    n: Counter[int | str]
    started: Counter[int | str]
    timed: Counter[int | str]


class _Group(NamedTuple):
    """The SQL expressions by which numbers are grouped: for `run_counts`, and for `runs`."""

    summed: str
    counted: str


class _Numbers(NamedTuple):
    """The SQL expressions for the numbers of each group: for `run_counts`, and for `runs`."""

    summed: str
    counted: str


class _RunSource(NamedTuple):
    """A source of runs: the SQL after FROM, its parameters, and whether its rows are already sums."""

    rows: str
    params: list[Value]
    summed: bool


def count(db: Connection, selection: Selection) -> int:
    """Return the exact number of visible runs of a selection; `db` is in a snapshot."""
    return tally(db, selection).total()


def tally(db: Connection, selection: Selection, column: GroupColumn | None = None) -> Counter[int | str]:
    """Return the exact numbers of visible runs of a selection, by the values of a column; without one, under key 0."""
    by_task = selection.names is not None or column == "task_name"
    group = None if column is None else _Group(column, column)
    widths = _WIDTHS_TASK if by_task else _WIDTHS_ALL
    # A caller that needs one of the three numbers of a _Tally soon needs another one, so compute all.
    every = selection if selection.id_part is not None else replace(selection, has=None, lacks=None)
    return _matching_counts(selection, db.remember((every, column), lambda: _tally(db, every, group, widths)))


def tally_by_time(db: Connection, selection: Selection, width: int) -> dict[int, int]:
    """Return the exact numbers of visible runs by `created_at >> width`, of a selection without a part of an id.

    Args:
        db: A connection in a snapshot.
        selection: The selection; it has no names unless `width` is `WIDTH_TASK`.
        width: `WIDTH_TASK` or `WIDTH_ALL`.
    """
    totals = _matching_counts(selection, _tally(db, selection, _by_time(width), _widths_down_to(selection, width)))
    return {int(bucket): n for bucket, n in totals.items()}


def starts_by_time(db: Connection, selection: Selection) -> dict[int, Starts]:
    """Return runs with a start by `created_at >> WIDTH_TASK`, of a selection without a part of an id."""
    starts: dict[int, Starts] = {}
    group = _by_time(WIDTH_TASK)
    numbers = _Numbers(
        "SUM(started), MIN(first_start), MAX(last_start)", "count(started_at), MIN(started_at), MAX(started_at)"
    )
    for bucket, n, first, last in _grouped(db, selection, group, _widths_down_to(selection, WIDTH_TASK), numbers):
        if n:
            earlier = starts.get(bucket, Starts(0, first, last))
            starts[bucket] = Starts(earlier.n + n, min(earlier.first, first), max(earlier.last, last))
    return starts


def ended_by_duration(db: Connection, states: Collection[int]) -> dict[int, int]:
    """Return the exact numbers of visible runs with a duration that ended in these states, by bucket."""
    rows = db.rows(
        "SELECT bucket, SUM(n) FROM run_durations"  # noqa: S608 - numbers
        f" WHERE state IN ({', '.join(map(str, sorted(states)))}) GROUP BY bucket"
    )
    return {bucket: n for bucket, n in rows if n}


def number_lasting(db: Connection, shortest: int, longest: int) -> int:
    """Return the approximate number of visible runs with a duration in this range (ms)."""
    row = db.row("SELECT SUM(n) FROM run_durations WHERE bucket BETWEEN ? AND ?", [shortest, longest])
    return (row[0] if row else None) or 0


def _by_time(width: int) -> _Group:
    return _Group(f"bucket >> CAST({width} - width AS INTEGER)", f"created_at >> {width}")


def _widths_down_to(selection: Selection, width: int) -> tuple[int, ...]:
    widths = _WIDTHS_TASK if selection.names is not None else _WIDTHS_ALL
    return tuple(narrow for narrow in widths if narrow <= width)


def _tally(db: Connection, selection: Selection, group: _Group | None, widths: tuple[int, ...]) -> _Tally:
    counts = _Tally(Counter(), Counter(), Counter())
    # For a search in ids, only use columns of the narrowest index.
    counted = "count(*), count(started_at), count(duration)" if selection.id_part is None else "count(*), 0, 0"
    numbers = _Numbers("SUM(n), SUM(started), SUM(timed)", counted)
    for value, *parts in _grouped(db, selection, group, widths, numbers):
        for counter, n in zip(counts, parts, strict=True):
            counter[value] += n or 0  # SUM of nothing is NULL
    return counts


def _matching_counts(selection: Selection, counts: _Tally) -> Counter[int | str]:
    """Return the numbers for a selection, given those without its `has` and `lacks` (with them for a search in ids)."""
    if selection.id_part is None and selection.has is not None:
        return +(counts.started if selection.has == "started_at" else counts.timed)
    if selection.id_part is None and selection.lacks is not None:
        return counts.n - (counts.started if selection.lacks == "started_at" else counts.timed)
    return +counts.n


def _sources(
    db: Connection, selection: Selection, group: _Group | None, widths: tuple[int, ...]
) -> Iterator[_RunSource]:
    """Yield the sources that together contain each run of a selection exactly once."""
    if selection.is_empty():
        return
    by_id = Selection(id_part=selection.id_part, some_deleted=selection.some_deleted)
    if selection.id_part is not None and selection == by_id and group is None:
        yield _rows(selection, "runs_id")  # the narrowest index with all needed columns
        return
    active, ended = selection.active(), selection.ended()
    if active.states:
        yield _rows(active, "runs_active")
    if ended.states and selection.id_part is not None:
        yield _rows(ended, "runs_created")
    elif ended.states:
        edge_index = "runs_task" if selection.names is not None and len(selection.names) == 1 else "runs_created"
        start = selection.created_after
        end = None if selection.created_before is None else selection.created_before + 1
        for span in spans(start, end, widths):
            if span.width:
                yield _summed(db, ended, group, span)
            else:
                last = None if span.end is None else span.end - 1
                yield _rows(replace(ended, created_after=span.start, created_before=last), edge_index)


def spans(start: int | None, end: int | None, widths: tuple[int, ...]) -> Iterator[BucketRange]:
    """Cover the times from `start` up to, but excluding, `end` with the widest whole buckets that fit."""
    if start is not None and end is not None and start >= end:
        return
    if not widths:
        yield BucketRange(0, start, end)
        return
    width, *finer = widths
    first = None if start is None else -(-start >> width)  # rounded up: the first whole bucket
    last = None if end is None else end >> width
    if first is not None and last is not None and first >= last:
        yield from spans(start, end, tuple(finer))
        return
    yield BucketRange(width, first, last)
    if start is not None and first is not None:
        yield from spans(start, first << width, tuple(finer))
    if end is not None and last is not None:
        yield from spans(last << width, end, tuple(finer))


def _summed(db: Connection, ended: Selection, group: _Group | None, span: BucketRange) -> _RunSource:
    """Return a source of whole buckets. In each wide bucket, which has all tasks, the selected tasks are looked up."""
    parts = ["width = ?"]
    params: list[Value] = [span.width]
    each_task = ended.names is None and group is not None and group.summed == "task_name"
    bounds: list[tuple[str, int | None]] = [("bucket >= ?", span.start), ("bucket < ?", span.end)]
    if span.width == WIDTH_TASK and not each_task:
        start, end = span.start, span.end
        there = [n for n in _buckets(db) if (start is None or n >= start) and (end is None or n < end)]
        parts.append(f"bucket IN {NUMBERS}")
        params.append(json.dumps(there))
        bounds = []
    if ended.names is not None:
        parts.append(among("task_name", ended.names, params))
    else:
        parts.append("task_name > ?" if each_task else "task_name = ?")
        params.append(_ALL_TASKS)
    for expression, bound in (
        *bounds,
        ("exit_code >= ?", ended.exit_code_min),
        ("exit_code <= ?", ended.exit_code_max),
    ):
        if bound is not None:
            parts.append(expression)
            params.append(bound)
    if ended.states and ended.states != ENDED_STATES:  # all states need no condition, which would look up each
        parts.append(f"state IN ({', '.join(map(str, sorted(ended.states)))})")
    if ended.triggers is not None:
        parts.append(among("triggered_by", ended.triggers, params))
    if ended.retries_only:
        parts.append("retry = 1")
    rows = f"run_counts WHERE {' AND '.join(parts)}"
    if each_task:  # group in the order of the table first, so that fewer rows are sorted by name
        sums = "SUM(n) AS n, SUM(started) AS started, SUM(timed) AS timed"
        rows = f"(SELECT task_name, {sums} FROM {rows} GROUP BY bucket, task_name) AS parts"  # noqa: S608 - ours
    return _RunSource(rows, params, summed=True)


def _buckets(db: Connection) -> list[int]:
    return db.remember("wide buckets", lambda: [row[0] for row in db.rows(_BUCKETS)])


def _rows(selection: Selection, index: str) -> _RunSource:
    """Return a source that counts run by run in an index."""
    where, params = selection.conditions()
    if selection.id_is_whole():
        index = "runs_id"
    return _RunSource(f"runs INDEXED BY {index} WHERE {where}", params, summed=False)


def _grouped(
    db: Connection, selection: Selection, group: _Group | None, widths: tuple[int, ...], numbers: _Numbers
) -> list[Row]:
    """Return the groups of all sources, in one statement: each statement costs a round trip and a plan."""
    parts: list[str] = []
    params: list[Value] = []
    for source in _sources(db, selection, group, widths):
        # Without a group, leave out GROUP BY: even with a constant, it would sort.
        by, ending = "0", ""
        if group is not None:
            by, ending = group.summed if source.summed else group.counted, " GROUP BY 1"
        number = numbers.summed if source.summed else numbers.counted
        parts.append(f"SELECT {by}, {number} FROM {source.rows}{ending}")  # noqa: S608 - all ours
        params += source.params
    return db.rows(" UNION ALL ".join(parts), params) if parts else []
