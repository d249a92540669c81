"""Location of a page of runs in time. `run_counts` gives it, so the runs before the page are not read."""

from collections.abc import Collection
from dataclasses import replace

from store.connection import Connection
from store.runs.filter import WIDTH_ALL, WIDTH_TASK, Selection
from store.runs.phases import ENDED_STATES
from store.runs.totals import Starts, ended_by_duration, starts_by_time, tally_by_time

_LONGEST = 2**63 - 1


def narrowed(
    db: Connection, selection: Selection, offset: int, limit: int, *, descending: bool
) -> tuple[Selection, int, int]:
    """Limit a selection to the time range that contains a page sorted by creation.

    Args:
        db: A connection in a snapshot.
        selection: A selection without a part of an id.
        offset: Number of runs before the page, less than the total.
        limit: Number of runs in the page, 1 or more.
        descending: Whether the newest come first.

    Returns:
        The limited selection, the number of its runs before the page, and the number of its runs.
    """
    total = 0
    for width in (WIDTH_TASK,) if selection.names is not None else (WIDTH_TASK, WIDTH_ALL):
        numbers = tally_by_time(db, selection, width)
        buckets, before, total = _around(numbers, offset, limit, descending=descending)
        selection = _within(selection, buckets, width)
        offset -= before
    return selection, offset, total


def narrowed_by_id(
    db: Connection, selection: Selection, offset: int, limit: int, *, descending: bool
) -> tuple[Selection, int, int]:
    """Limit a selection to the time range that contains a page sorted by id.

    Runs get their ids at about the time of creation, so buckets of creation are usually in the order of ids. They are
    not if the clock was set, or a run was created long after its id. The selection is cut only where the order holds.

    Args:
        db: A connection in a snapshot.
        selection: A selection without a part of an id.
        offset: Number of runs before the page, less than the total.
        limit: Number of runs in the page, 1 or more.
        descending: Whether the greatest ids come first.

    Returns:
        The limited selection, the number of its runs before the page, and the number of its runs.
    """
    total = 0
    for width in (WIDTH_TASK,) if selection.names is not None else (WIDTH_TASK, WIDTH_ALL):
        numbers = tally_by_time(db, selection, width)
        parts = _in_order(sorted(numbers), _ids_by_time(db, min(numbers), max(numbers), width))
        sizes = {index: sum(numbers[bucket] for bucket in part) for index, part in enumerate(parts)}
        indexes, before, total = _around(sizes, offset, limit, descending=descending)
        selection = _within(selection, [bucket for index in indexes for bucket in parts[index]], width)
        offset -= before
    return selection, offset, total


def _ids_by_time(db: Connection, first: int, last: int, width: int) -> dict[int, tuple[str, str]]:
    """Return, for buckets of `created_at >> width`, two ids that enclose the ids of all their runs."""
    finer = width - WIDTH_ALL
    rows = db.rows(
        f"SELECT bucket >> {finer}, min(first_id), max(last_id) FROM run_ids"  # noqa: S608 - constants
        " WHERE bucket >= ? AND bucket < ? GROUP BY 1",
        [first << finer, last + 1 << finer],
    )
    return {bucket: (first_id, last_id) for bucket, first_id, last_id in rows}


def _in_order(buckets: list[int], ids: dict[int, tuple[str, str]]) -> list[list[int]]:
    """Group the buckets in parts such that each id of a part is greater than all ids of the parts before it."""
    parts: list[tuple[list[int], str, str]] = []
    for bucket in buckets:
        part, (first, last) = [bucket], ids[bucket]
        while parts and parts[-1][2] >= first:
            others, other_first, other_last = parts.pop()
            part, first, last = [*others, *part], min(first, other_first), max(last, other_last)
        parts.append((part, first, last))
    return [part for part, _, _ in parts]


def narrowed_by_start(
    db: Connection, selection: Selection, offset: int, limit: int, *, descending: bool
) -> tuple[Selection, int, int]:
    """Limit a selection to the range of start times that contains a page sorted by start.

    Buckets of creation are also in the order of starts, except for runs that waited. The selection is cut only between
    two buckets where no earlier run was still waiting to start.

    Args:
        db: A connection in a snapshot.
        selection: A selection of runs with a start, without a part of an id.
        offset: Number of runs before the page, less than the total.
        limit: Number of runs in the page, 1 or more.
        descending: Whether the newest come first.

    Returns:
        The limited selection, the number of its runs before the page, and the number of its runs.
    """
    starts = starts_by_time(db, selection)
    parts = _disjoint([starts[bucket] for bucket in sorted(starts)])
    numbers = {index: part.n for index, part in enumerate(parts)}
    indexes, before, total = _around(numbers, offset, limit, descending=descending)
    started = parts[min(indexes)].first, parts[max(indexes)].last
    return replace(selection, started=started), offset - before, total


def narrowed_by_duration(
    db: Connection, selection: Selection, offset: int, limit: int, *, descending: bool
) -> tuple[Selection, int, int]:
    """Limit a selection to the range of durations that contains a page sorted by duration.

    Args:
        db: A connection in a snapshot.
        selection: A selection of ended runs with a duration, without conditions except on the state.
        offset: Number of runs before the page, less than the total.
        limit: Number of runs in the page, 1 or more.
        descending: Whether the longest come first.

    Returns:
        The limited selection, the number of its runs before the page, and the number of its runs.
    """
    numbers = ended_by_duration(db, ENDED_STATES if selection.states is None else selection.states)
    buckets, before, total = _around(numbers, offset, limit, descending=descending)
    following = [bucket for bucket in numbers if bucket > max(buckets)]
    lasted = min(buckets), min(following, default=_LONGEST) - 1
    return replace(selection, lasted=lasted), offset - before, total


def _disjoint(parts: list[Starts]) -> list[Starts]:
    """Merge overlapping parts, so that each part ends before the next one begins."""
    joined: list[Starts] = []
    for following in parts:
        part = following
        while joined and joined[-1].last >= part.first:
            before = joined.pop()
            part = Starts(before.n + part.n, min(before.first, part.first), max(before.last, part.last))
        joined.append(part)
    return joined


def _within(selection: Selection, buckets: Collection[int], width: int) -> Selection:
    """Limit a selection to buckets; there must be at least one."""
    first, last = min(buckets), max(buckets)
    start, end = first << width, (last + 1 << width) - 1
    after, until = selection.created_after, selection.created_before
    return replace(
        selection,
        created_after=start if after is None else max(start, after),
        created_before=end if until is None else min(end, until),
    )


def _around(numbers: dict[int, int], offset: int, limit: int, *, descending: bool) -> tuple[list[int], int, int]:
    """Return the buckets that contain a page, the number of runs before them, and the number of their runs."""
    before = total = 0
    buckets: list[int] = []
    for bucket in sorted(numbers, reverse=descending):
        if not buckets and before + numbers[bucket] <= offset:
            before += numbers[bucket]
            continue
        buckets.append(bucket)
        total += numbers[bucket]
        if before + total >= offset + limit:
            break
    return buckets, before, total
