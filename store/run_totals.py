"""Exact numbers of runs, mostly without counting them.

Ended runs are summed up from `run_counts`. A time range is covered by whole buckets, coarse ones first; only what
sticks out at its two ends is counted run by run in an index. Runs that have not ended are few: they are counted too.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from store.connection import Connection, Value
from store.run_filter import WIDTH_ALL, WIDTH_TASK, Selection

GroupColumn = Literal["task_name", "state", "exit_code"]
_ALL_TASKS = ""  # the name under which run_counts keeps the sum over all tasks
_WIDTHS_ALL = (27, WIDTH_ALL)  # log2 of the milliseconds in a bucket
_WIDTHS_TASK = (WIDTH_TASK,)


class Span(NamedTuple):
    """Part of a time range: buckets `start` to `end` of 2**width ms, or single ms when width is 0.

    `end` is exclusive; None: without that end.
    """

    width: int
    start: int | None
    end: int | None


class _Group(NamedTuple):
    """What numbers are grouped by: the expression in `run_counts`, and the one in `runs`."""

    summed: str
    counted: str


def count(db: Connection, selection: Selection) -> int:
    """The exact number of visible runs of a selection; `db` is in a snapshot."""
    if selection.id_part is not None:  # the only ones that must be gone through
        return db.remember(selection, lambda: sum(tally(db, selection).values()))
    return sum(tally(db, selection).values())


def tally(db: Connection, selection: Selection, column: GroupColumn | None = None) -> Counter[int | str]:
    """The exact numbers of visible runs of a selection, by one column's values; without one all under 0."""
    by_task = selection.names is not None or column == "task_name"
    group = None if column is None else _Group(column, column)
    return _tally(db, selection, group, _WIDTHS_TASK if by_task else _WIDTHS_ALL)


def tally_by_time(db: Connection, selection: Selection, width: int) -> dict[int, int]:
    """The exact numbers of visible runs of a selection without a part of an id, by `created_at >> width`.

    Args:
        db: In a snapshot.
        selection: Without names, or `width` is `WIDTH_TASK`.
        width: `WIDTH_TASK` or `WIDTH_ALL`.
    """
    group = _Group(f"bucket >> CAST({width} - width AS INTEGER)", f"created_at >> {width}")
    widths = _WIDTHS_TASK if selection.names is not None else _WIDTHS_ALL
    totals = _tally(db, selection, group, tuple(narrow for narrow in widths if narrow <= width))
    return {int(bucket): n for bucket, n in totals.items() if n}


def _tally(db: Connection, selection: Selection, group: _Group | None, widths: tuple[int, ...]) -> Counter[int | str]:
    totals: Counter[int | str] = Counter()
    if selection.is_empty():
        return totals
    if selection.id_part is not None:
        _count_rows(db, selection, group, "runs_created", totals)
        return totals
    active = selection.active()
    if active.states:
        _count_rows(db, active, group, "runs_state", totals)
    ended = selection.ended()
    if ended.states:
        edge_index = "runs_task" if selection.names is not None and len(selection.names) == 1 else "runs_created"
        start = selection.created_after
        end = None if selection.created_before is None else selection.created_before + 1
        for span in spans(start, end, widths):
            if span.width:
                _sum(db, ended, group, span, totals)
            else:
                last = None if span.end is None else span.end - 1
                edge = replace(ended, created_after=span.start, created_before=last)
                _count_rows(db, edge, group, edge_index, totals)
    return totals


def spans(start: int | None, end: int | None, widths: tuple[int, ...]) -> Iterator[Span]:
    """Cover the times from `start` up to but not `end`, without overlap, by the widest whole buckets that fit."""
    if start is not None and end is not None and start >= end:
        return
    if not widths:
        yield Span(0, start, end)
        return
    width, *finer = widths
    first = None if start is None else -(-start >> width)  # rounded up: the first whole bucket
    last = None if end is None else end >> width
    if first is not None and last is not None and first >= last:
        yield from spans(start, end, tuple(finer))
        return
    yield Span(width, first, last)
    if start is not None and first is not None:
        yield from spans(start, first << width, tuple(finer))
    if end is not None and last is not None:
        yield from spans(last << width, end, tuple(finer))


def _sum(db: Connection, ended: Selection, group: _Group | None, span: Span, totals: Counter[int | str]) -> None:
    """Add up whole buckets."""
    parts = ["width = ?"]
    params: list[Value] = [span.width]
    if ended.names is not None:
        parts.append(f"task_name IN ({', '.join('?' * len(ended.names))})")
        params.extend(ended.names)
    else:
        parts.append("task_name > ?" if group is not None and group.summed == "task_name" else "task_name = ?")
        params.append(_ALL_TASKS)
    for expression, bound in (
        ("bucket >= ?", span.start),
        ("bucket < ?", span.end),
        ("exit_code >= ?", ended.exit_code_min),
        ("exit_code <= ?", ended.exit_code_max),
    ):
        if bound is not None:
            parts.append(expression)
            params.append(bound)
    if ended.states:
        parts.append(f"state IN ({', '.join(map(str, sorted(ended.states)))})")
    if ended.triggers is not None:
        parts.append(f"triggered_by IN ({', '.join('?' * len(ended.triggers))})")
        params.extend(ended.triggers)
    if ended.retries_only:
        parts.append("retry = 1")
    _add(db, "SUM(n)", "run_counts", " AND ".join(parts), None if group is None else group.summed, params, totals)


def _count_rows(
    db: Connection, selection: Selection, group: _Group | None, index: str, totals: Counter[int | str]
) -> None:
    """Count run by run."""
    where, params = selection.conditions()
    if selection.id_is_whole():
        index = "runs_id"
    by = None if group is None else group.counted
    _add(db, "count(*)", f"runs INDEXED BY {index}", where, by, params, totals)


def _add(
    db: Connection,
    number: str,
    table: str,
    where: str,
    by: str | None,
    params: list[Value],
    totals: Counter[int | str],
) -> None:
    # Without an expression no GROUP BY either: even by a constant it would sort.
    columns, group = (f"{by}, {number}", "GROUP BY 1") if by else (f"0, {number}", "")
    for value, n in db.rows(f"SELECT {columns} FROM {table} WHERE {where} {group}", params):  # noqa: S608 - all ours
        totals[value] += n or 0  # SUM of nothing is NULL
