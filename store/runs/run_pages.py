"""Pages of runs: every filter with every sort order, with the exact total.

A page is found in one index that has all needed columns; then its rows are fetched. There are two kinds of plans. The
first walks an index in sort order until the page is full, and skips rows that do not match. The second takes all
candidates from an index that begins with a filtered column, and sorts them. The exact numbers of store.runs.totals tell
which plan is shorter. SQLite's planner has no such numbers, so queries name the index (INDEXED BY). The numbers do not
tell whether matches are clustered at the far end, like the runs of a slow task. A walk that takes much longer than
expected is therefore stopped, and the plan with a bounded cost is used.

Missing values come last in both directions. So runs without a value form a second list, sorted by id, after the first;
the numbers tell where it begins. Each list is a part of an index, so neither list is read to reach the other.

All this applies to ended runs. Active runs, thousands at most, are merged into the page here.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from store.connection import NUMBERS, Connection, Value
from store.database import Database
from store.runs.filter import Optional, RunFilter, Selection, resolve
from store.runs.page_seek import narrowed, narrowed_by_duration, narrowed_by_id, narrowed_by_start
from store.runs.phases import END_REASONS, RUNNING
from store.runs.record import SELECT, Run, from_row
from store.runs.totals import GroupColumn, count, number_lasting, tally

WALKED = {"start_at": "runs_started", "duration": "runs_duration"}
"""Indexes in the order of a sort field; the index by creation is treated separately."""


class PagePlan(NamedTuple):
    """A plan for finding a page.

    Attributes:
        through: The index.
        walks: Whether the index has the sort order, so that reading can stop at the end of the page.
        cost: Number of entries to read if matches are spread evenly.
        most: Number of entries to read if all matches are clustered at the far end.
    """

    through: str
    walks: bool
    cost: float
    most: float


def plan_page(db: Connection, selection: Selection, field: str, needed: int, total: int) -> tuple[PagePlan, PagePlan]:
    """Return the plan that is expected to read the fewest entries, and the plan with a bounded cost.

    Args:
        db: A connection in a snapshot.
        selection: A selection of ended runs that matches at least one.
        field: The sort field of the API, or "id".
        needed: Number of matches from the nearer end of the list to the end of the page.
        total: Number of matches.
    """
    everything = Selection(some_deleted=selection.some_deleted).ended()
    in_range = replace(everything, created_after=selection.created_after, created_before=selection.created_before)
    by_time = field == "created_at"
    states = None if selection.states == everything.states else selection.states
    # Each tuple has an index, the number of entries in its range, and whether they are in sort order.
    ranges = [("runs_created", count(db, in_range), by_time)]
    if field in WALKED:
        part = replace(everything, has=selection.has, lacks=selection.lacks)
        if selection.started is not None:  # most of these runs were created in that time too
            part = replace(part, created_after=selection.started[0], created_before=selection.started[1])
        size = count(db, part) if selection.lasted is None else number_lasting(db, *selection.lasted)
        ranges.append((WALKED[field], size, True))
    for index, values, part in (
        ("runs_task", selection.names, replace(in_range, names=selection.names)),
        ("runs_state", states, replace(in_range, states=selection.states)),
        ("runs_trigger", selection.triggers, replace(in_range, triggers=selection.triggers)),
    ):
        if values is not None:
            size = total if part == selection else count(db, part)
            ranges.append((index, size, by_time and len(values) == 1))

    def plan(index: str, size: int, walks: bool) -> PagePlan:
        if not walks:  # sorting a match costs about as much as reading a candidate
            return PagePlan(index, walks, size + total, size + total)
        return PagePlan(index, walks, needed * size / total, size)

    plans = [plan(*bounds) for bounds in ranges]
    return min(plans, key=lambda plan: plan.cost), min(plans, key=lambda plan: plan.most)


SortField = Literal["task_name", "status", "start_at", "exit_code", "duration", "created_at"]
Direction = Literal["asc", "desc"]

_Field = SortField | Literal["id"]

_COLUMNS: dict[_Field, str] = {
    "id": "id",
    "task_name": "task_name",
    "status": "state",
    "start_at": "started_at",
    "exit_code": "exit_code",
    "duration": "duration",
    "created_at": "created_at",
}
_OPTIONAL: dict[_Field, Optional] = {"start_at": "started_at", "duration": "duration"}
_GROUPED: dict[_Field, GroupColumn] = {"task_name": "task_name", "status": "state", "exit_code": "exit_code"}
_STEPS = 6  # of SQLite's virtual machine, to read one entry of an index
_LUCK = 3  # how many times its expected cost a plan may take before the bounded plan is used
_FEW = 500  # entries that any plan may read
_DEEP = 5000  # number of runs to skip from which on it pays to locate the page in time
_SCAN_LIMIT = 20_000  # number of matches of a search in ids that are sorted here instead of scanning a second time


class Sort(NamedTuple):
    """The order of a list of runs."""

    field: SortField = "created_at"
    """Task names are sorted bytewise; statuses by phase, then by reason, each by name."""
    direction: Direction = "desc"
    """Missing values are last in both directions; ties are broken by id, in the same direction."""
    alike: Mapping[str, str] = MappingProxyType({})
    """End reasons that a sort by status treats as another one, mapped to that one."""


_NEWEST_FIRST = Sort()


class _PageRow(NamedTuple):
    """A run of a page: its row number and sort value."""

    row_number: int
    value: int | str | None
    id: str


class _SortOrder(NamedTuple):
    """The order of a list, with missing values last in both directions and ties by id; or an order by id alone."""

    field: _Field
    descending: bool
    alike: Mapping[int | str, int] = MappingProxyType({})
    """States that are sorted as another state."""

    @property
    def column(self) -> str:
        return _COLUMNS[self.field]

    def sql(self, *, backwards: bool, mixed: bool) -> str:
        """Return the ORDER BY of this order, or of its exact reverse. `mixed`: whether only some values are missing."""
        word = "DESC" if self.descending != backwards else "ASC"
        # Only if needed: with it, SQLite walks an index twice, and PostgreSQL finds no index in this order.
        missing = f" NULLS {'FIRST' if backwards else 'LAST'}" if mixed else ""
        return f"ORDER BY {self.column} {word}{missing}, id {word}"

    def sort_key(self, value: int | str | None) -> Any:
        """Return the stand-in for a value in this order."""
        return value if value is None else self.alike.get(value, value)

    def arrange(self, rows: Iterable[_PageRow]) -> list[_PageRow]:
        """Sort rows that were already read in this order."""
        present: list[_PageRow] = []
        missing: list[_PageRow] = []
        for item in rows:
            (missing if item.value is None else present).append(item)
        return [
            *sorted(present, key=lambda item: (self.sort_key(item.value), item.id), reverse=self.descending),
            *sorted(missing, key=attrgetter("id"), reverse=self.descending),
        ]


def count_runs(db: Database, run_filter: RunFilter) -> int:
    """Return the exact number of visible runs that match.

    Raises:
        ValueError: Unknown phase or end reason.
        StoreError: See store.errors.
    """
    with db.snapshot() as view:
        return count(view, resolve(view, run_filter))


def list_runs(
    db: Database,
    run_filter: RunFilter,
    sort: Sort = _NEWEST_FIRST,
    limit: int = 50,
    offset: int = 0,
    *,
    now_ms: int,
) -> tuple[list[Run], int]:
    """Return a page of the matching visible runs and their total, both from the same state of the database.

    Args:
        db: A reader or writer.
        run_filter: The filter.
        sort: The order of the runs.
        limit: Number of runs in the page, 0 or more.
        offset: Number of runs before the page, 0 or more.
        now_ms: Current time, which determines the duration of running runs.

    Raises:
        ValueError: Unknown phase, end reason or sort field; a negative limit or offset.
        StoreError: See store.errors.
    """
    if sort.field not in get_args(SortField) or sort.direction not in ("asc", "desc") or limit < 0 or offset < 0:
        raise ValueError(f"no such page of runs: {sort.field} {sort.direction} {limit} {offset}")
    merged: dict[int | str, int] = {}
    if sort.field == "status":
        merged = {END_REASONS[reason]: END_REASONS[other] for reason, other in sort.alike.items()}
    order = _SortOrder(sort.field, sort.direction == "desc", merged)
    with db.snapshot() as view:
        selection = resolve(view, run_filter)
        find = _find if selection.flow_run_id is None else _find_in_flow
        page, total = find(view, selection, order, limit, offset, now_ms)
        return _fetch(view, page), total


def newest_run(db: Connection, selection: Selection) -> Run | None:
    """Return the visible run of a selection that was created last; None if there is none. `db` is in a snapshot."""
    page, _ = _find(db, selection, _SortOrder("created_at", descending=True), 1, 0, 0)
    return _fetch(db, page)[0] if page else None


def _find(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int, now_ms: int
) -> tuple[list[_PageRow], int]:
    """Return the rows of a page, and the number of matches.

    Any number of the active matches may come before the page, so that many more ended matches are read.
    """
    active = selection.active()
    number = 0 if active.is_empty() else count(db, active)
    start = max(0, offset - number)
    rows, total = _find_ended(db, selection, order, limit and offset - start + limit, start, number)
    if number and limit:
        rows = order.arrange([*rows, *_active(db, active, order, min(number, offset + limit), now_ms)])
    return rows[offset - start :][:limit], total + number


def _find_in_flow(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int, now_ms: int
) -> tuple[list[_PageRow], int]:
    """Return the same for the runs of one flow: all are read, because they are few."""
    column: tuple[str, list[Value]] = (order.column, [])
    if order.field == "duration":
        column = f"CASE state WHEN {RUNNING} THEN CAST(? AS BIGINT) - started_at ELSE duration END", [now_ms]
    rows = order.arrange(_matches(db, selection, "runs_step", column, ("", [])))
    return rows[offset : offset + limit], len(rows)


def _find_ended(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int, active: int
) -> tuple[list[_PageRow], int]:
    """Return the same for ended runs; `active` is the number of other matches."""
    ended = selection.ended()
    if ended.is_empty():
        return [], 0
    if ended.id_part is not None:
        few = _scan(db, ended, order, _SCAN_LIMIT + 1)
        if len(few) <= _SCAN_LIMIT:
            return order.arrange(few)[offset : offset + limit], len(few)
    if order.field == "exit_code" or order.alike or (order.field in _GROUPED and ended.id_part is None):
        return _find_by_group(db, ended, order, limit, offset)
    # For a search in ids, counting all matches uses the narrowest index.
    total = count(db, ended) if ended.id_part is None else count(db, selection) - active
    if offset >= total or limit == 0:
        return [], total
    if order.field == "created_at" and ended.id_part is None:
        return _page_by_creation(db, ended, order, limit, offset, total), total
    return _page_in_two(db, ended, order, limit, offset, total), total


def _active(db: Connection, selection: Selection, order: _SortOrder, limit: int, now_ms: int) -> list[_PageRow]:
    """Return the first active matches. The duration of a running run is measured until now."""
    column: tuple[str, list[Value]] = (order.column, [])
    if order.field == "duration":
        column = f"CASE state WHEN {RUNNING} THEN CAST(? AS BIGINT) - started_at END", [now_ms]
    word = "DESC" if order.descending else "ASC"
    return _matches(db, selection, "runs_active", column, (f"ORDER BY 2 {word} NULLS LAST, id {word} LIMIT ?", [limit]))


def _page_by_creation(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int, total: int
) -> list[_PageRow]:
    """Return a page sorted by creation. It is located in time first, to avoid skipping many runs, deleted or not."""
    if selection.some_deleted or min(offset, total - offset - limit) > _DEEP:
        selection, offset, total = narrowed(db, selection, offset, limit, descending=order.descending)
    return _page(db, selection, order, limit, offset, total)


def _page_in_two(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int, total: int
) -> list[_PageRow]:
    """Return a page of runs with a sort value, followed by runs without."""
    column = _OPTIONAL.get(order.field)
    if column is None or selection.id_part is not None:  # counting the two lists would be another search
        return _page(db, selection, order, limit, offset, total)
    present = count(db, replace(selection, has=column))
    rows: list[_PageRow] = []
    if offset < present:
        rows = _page_of_present(db, replace(selection, has=column), order, limit, offset, present)
    if len(rows) < limit and present < total:
        others = replace(selection, lacks=column)
        rows += _page(db, others, order, limit - len(rows), max(0, offset - present), total - present)
    return rows


def _page_of_present(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int, total: int
) -> list[_PageRow]:
    """Return a page of runs with a sort value.

    A deep page is located first. By start, so is each page of a time range or among deleted runs.
    """
    deep = min(offset, total - offset - limit) > _DEEP
    in_range = selection.created_after is not None or selection.created_before is not None
    if order.field == "start_at" and (in_range or deep or selection.some_deleted):
        selection, offset, total = narrowed_by_start(db, selection, offset, limit, descending=order.descending)
    if order.field == "duration" and deep and selection.by_state_alone():
        selection, offset, total = narrowed_by_duration(db, selection, offset, limit, descending=order.descending)
    return _page(db, selection, order, limit, offset, total)


def _find_by_group(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int
) -> tuple[list[_PageRow], int]:
    """Return a page sorted by a field with few values: the number of runs of each value locates the page."""
    numbers = tally(db, selection, _GROUPED[order.field])
    groups: dict[int | str, list[int | str]] = {}
    for value in numbers:
        groups.setdefault(order.sort_key(value), []).append(value)
    rows: list[_PageRow] = []
    for group_key in sorted(groups, reverse=order.descending):
        size = sum(numbers[value] for value in groups[group_key])
        if offset < size and len(rows) < limit:
            group = selection.limited_to(order.column, groups[group_key])
            page = _page_by_id(db, group, limit - len(rows), offset, size, descending=order.descending)
            rows += [item._replace(value=group_key) for item in page]
        offset = max(0, offset - size)
    return rows, sum(numbers.values())


def _page_by_id(
    db: Connection, selection: Selection, limit: int, offset: int, total: int, *, descending: bool
) -> list[_PageRow]:
    """Return a page sorted by id. It is located in time too, because no index has the ids of a group in order."""
    if selection.id_part is None:
        limit = min(limit, total - offset)
        selection, offset, total = narrowed_by_id(db, selection, offset, limit, descending=descending)
    return _page(db, selection, _SortOrder("id", descending), limit, offset, total)


def _scan(db: Connection, selection: Selection, order: _SortOrder, limit: int) -> list[_PageRow]:
    """Return the ended matches in no particular order, up to a limit."""
    with db.scanning():
        return _matches(db, selection, "runs_created", (order.column, []), ("LIMIT ?", [limit]))


def _matches(
    db: Connection, selection: Selection, index: str, column: tuple[str, list[Value]], tail: tuple[str, list[Value]]
) -> list[_PageRow]:
    """Return matches from an index. `column` is the sort expression, `tail` the end of the query, with parameters."""
    where, params = selection.conditions()
    index = "runs_id" if selection.id_is_whole() else index
    sql = f"SELECT seq, {column[0]}, id FROM runs INDEXED BY {index} WHERE {where} {tail[0]}"  # noqa: S608 - ours
    return [*map(_PageRow._make, db.rows(sql, [*column[1], *params, *tail[1]]))]


def _page(
    db: Connection, selection: Selection, order: _SortOrder, limit: int, offset: int, total: int
) -> list[_PageRow]:
    """Return the rows of a page, sorted by a stored value. They are read from the end of the list that is cheaper."""
    limit = min(limit, total - offset)
    behind = total - offset - limit
    page_offset = _PageOffset(limit, offset, behind)
    best, bounded = plan_page(db, selection, order.field, min(offset, behind) + limit, total)
    most_steps = _STEPS * (_LUCK * best.cost + _FEW) if best.most > _LUCK * best.cost else None
    rows = _read_by_plan(db, selection, order, best, page_offset, most_steps)
    if rows is None:
        rows = _read_by_plan(db, selection, order, bounded, page_offset, None)
    return rows or []


class _PageOffset(NamedTuple):
    """The position of a page: its number of rows, and the numbers of rows before and after it."""

    limit: int
    offset: int
    behind: int


def _read_by_plan(
    db: Connection,
    selection: Selection,
    order: _SortOrder,
    plan: PagePlan,
    page_offset: _PageOffset,
    most_steps: float | None,
) -> list[_PageRow] | None:
    """Return the rows of a page by one plan; None if it needs more than `most_steps`."""
    limit, offset, behind = page_offset
    backwards = behind < offset if plan.walks else _sorts_better_backwards(order, offset, behind, limit)
    where, params = selection.conditions()
    mixed = order.field in _OPTIONAL and selection.has is None and selection.lacks is None
    ordered = order.sql(backwards=backwards, mixed=mixed)
    sql = f"SELECT seq, {order.column}, id FROM runs INDEXED BY {plan.through} WHERE {where} {ordered} LIMIT ? OFFSET ?"  # noqa: S608 - ours
    params += [limit, behind if backwards else offset]
    rows = db.rows(sql, params) if most_steps is None else db.attempt(sql, params, int(most_steps))
    if rows is None:
        return None
    page_rows = [_PageRow(*row) for row in rows]
    return page_rows[::-1] if backwards else page_rows


def _sorts_better_backwards(order: _SortOrder, offset: int, behind: int, limit: int) -> bool:
    """Return whether candidates should be sorted in reverse.

    The candidates come in the order of creation, which is about the order of ids and starts. A descending sort replaces
    a kept run with each candidate; an ascending sort only appends. It pays if many runs must be kept in either case.
    """
    down, up = (offset, behind) if order.descending else (behind, offset)
    upwards = down + limit > (offset + behind + limit) // 10 or up <= down
    return upwards == order.descending


def _fetch(db: Connection, page_rows: list[_PageRow]) -> list[Run]:
    """Return the runs of a page, in its order."""
    numbers = json.dumps([item.row_number for item in page_rows])
    rows = db.rows(f"SELECT seq, {SELECT} FROM runs WHERE seq IN {NUMBERS}", [numbers])  # noqa: S608 - constants
    runs = {row[0]: from_row(row[1:]) for row in rows}
    return [runs[item.row_number] for item in page_rows]
