"""Where in time a page of runs is: `run_counts` tells, so nobody has to go through the runs before it."""

from collections.abc import Collection
from dataclasses import replace

from store.connection import Connection
from store.run_filter import WIDTH_ALL, WIDTH_TASK, Selection
from store.run_totals import Starts, starts_by_time, tally_by_time


def narrowed(
    db: Connection, selection: Selection, offset: int, limit: int, *, descending: bool
) -> tuple[Selection, int, int]:
    """The part of a selection, a range of time, that has a page of it by creation.

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


def narrowed_by_start(
    db: Connection, selection: Selection, offset: int, limit: int, *, descending: bool
) -> tuple[Selection, int, int]:
    """The part of a selection, between two starts, that has a page of it by start.

    Buckets of creation follow each other in the order of starts too, but for runs that waited. Between two of them
    where nobody from before had still to start the selection can be cut.

    Args:
        db: In a snapshot.
        selection: Those with a start, without a part of an id.
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


def _disjoint(parts: list[Starts]) -> list[Starts]:
    """The same runs in parts each of which has ended before the next one begins."""
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
    """Those of a selection that are in the buckets, of which there is one at least."""
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
    """The buckets that a page is in, how many runs come before them, and how many they have."""
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
