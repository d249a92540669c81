"""The position of a page of runs in time: `run_counts` gives it, so the runs before the page are not read."""

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
    """Return the part of a selection, a range of time, that has a page of it by creation.

    Args:
        db: In a snapshot.
        selection: Without a part of an id.
        offset: Runs before the page, fewer than there are.
        limit: Runs of the page, 1 or more.
        descending: Whether the newest come first.

    Returns:
        The part, how many of its runs are before the page, and how many it has.
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
    """Return the part of a selection, a range of time, that has a page of it by id.

    Runs get their ids at about the time of creation, so buckets of creation are usually in the order of ids. They are
    not where a clock was set or an id waited for its run. The selection can be cut where the order holds.

    Args:
        db: In a snapshot.
        selection: Without a part of an id.
        offset: Runs before the page, fewer than there are.
        limit: Runs of the page, 1 or more.
        descending: Whether the greatest ids come first.

    Returns:
        The part, how many of its runs are before the page, and how many it has.
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
    """Return, for buckets of `created_at >> width`, two ids that enclose the ids of all runs."""
    finer = width - WIDTH_ALL
    rows = db.rows(
        f"SELECT bucket >> {finer}, min(first_id), max(last_id) FROM run_ids"  # noqa: S608 - constants
        " WHERE bucket >= ? AND bucket < ? GROUP BY 1",
        [first << finer, last + 1 << finer],
    )
    return {bucket: (first_id, last_id) for bucket, first_id, last_id in rows}


def _in_order(buckets: list[int], ids: dict[int, tuple[str, str]]) -> list[list[int]]:
    """Yield the buckets in parts; each part has only greater ids than the parts before it."""
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
    """Return the part of a selection, between two starts, that has a page of it by start.

    Buckets of creation are also in the order of starts, except for runs that waited. The selection can be cut between
    two buckets where no earlier run was still waiting to start.

    Args:
        db: In a snapshot.
        selection: Runs with a start, without a part of an id.
        offset: Runs before the page, fewer than there are.
        limit: Runs of the page, 1 or more.
        descending: Whether the newest come first.

    Returns:
        The part, how many of its runs are before the page, and how many it has.
    """
    found = starts_by_time(db, selection)
    parts = _disjoint([found[bucket] for bucket in sorted(found)])
    numbers = {index: part.n for index, part in enumerate(parts)}
    indexes, before, total = _around(numbers, offset, limit, descending=descending)
    started = parts[min(indexes)].first, parts[max(indexes)].last
    return replace(selection, started=started), offset - before, total


def narrowed_by_duration(
    db: Connection, selection: Selection, offset: int, limit: int, *, descending: bool
) -> tuple[Selection, int, int]:
    """Return the part of a selection, between two durations, that has a page of it by duration.

    Args:
        db: In a snapshot.
        selection: Ended runs with a duration, without any condition but that on the state.
        offset: Runs before the page, fewer than there are.
        limit: Runs of the page, 1 or more.
        descending: Whether the longest come first.

    Returns:
        The part, how many of its runs are before the page, and how many it has.
    """
    numbers = ended_by_duration(db, ENDED_STATES if selection.states is None else selection.states)
    buckets, before, total = _around(numbers, offset, limit, descending=descending)
    following = [bucket for bucket in numbers if bucket > max(buckets)]
    lasted = min(buckets), min(following, default=_LONGEST) - 1
    return replace(selection, lasted=lasted), offset - before, total


def _disjoint(parts: list[Starts]) -> list[Starts]:
    """Return the same runs in parts each of which has ended before the next one begins."""
    joined: list[Starts] = []
    for following in parts:
        part = following
        while joined and joined[-1].last >= part.first:
            before = joined.pop()
            part = Starts(before.n + part.n, min(before.first, part.first), max(before.last, part.last))
        joined.append(part)
    return joined


def bounded(db: Connection, selection: Selection) -> Selection:
    """A selection that says when its runs were created, so that deleted ones of other times need not be looked up.

    Args:
        db: In a snapshot.
        selection: Without a part of an id.
    """
    numbers = tally_by_time(db, selection, WIDTH_TASK)
    return _within(selection, numbers.keys(), WIDTH_TASK)


def _within(selection: Selection, buckets: Collection[int], width: int) -> Selection:
    """Return the part of a selection within the buckets, of which there is at least one."""
    first, last = min(buckets), max(buckets)
    start, end = first << width, (last + 1 << width) - 1
    with_gaps = width == WIDTH_TASK and len(buckets) <= last - first
    after, until = selection.created_after, selection.created_before
    return replace(
        selection,
        created_after=start if after is None else max(start, after),
        created_before=end if until is None else min(end, until),
        buckets=frozenset(buckets) if with_gaps else selection.buckets,
    )


def _around(numbers: dict[int, int], offset: int, limit: int, *, descending: bool) -> tuple[list[int], int, int]:
    """Return the buckets that a page is in, how many runs come before them, and how many they have."""
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
