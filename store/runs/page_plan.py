"""Which index leads to a page of runs over the fewest entries; the exact numbers of store.runs.totals tell."""

from dataclasses import replace
from typing import NamedTuple

from store.connection import Connection
from store.runs.filter import Selection
from store.runs.totals import count, number_lasting

WALKED = {"start_at": "runs_started", "duration": "runs_duration"}
"""The indexes in the order of a sort, but for that by creation."""

_IN_GROUPS = {"task_name": "runs_task", "status": "runs_state"}
_SORTING_COST = 1.0  # a match that is sorted, in units of a candidate that is looked at
_SORTING_COST_IN_ORDER = 4.0
_LOOKUP_COST = 10.0


class Way(NamedTuple):
    """One of the ways to a page.

    Attributes:
        through: The index.
        walks: Whether its entries come in the order of the sort, so that it ends with the page.
        cost: Entries to look at, as if matches were spread evenly.
        most: The same, if they stand together at the far end.
    """

    through: str
    walks: bool
    cost: float
    most: float


def ways(db: Connection, selection: Selection, field: str, wanted: int, total: int) -> tuple[Way, Way]:
    """The way that should be the shortest, and the one that cannot become long.

    Args:
        db: In a snapshot.
        selection: What the page is of, some runs at least; all have ended.
        field: What it is sorted by, in the words of the interface, or "id".
        wanted: Matches from the nearer end of the list up to the end of the page.
        total: How many match.
    """
    everything = Selection(some_deleted=selection.some_deleted).ended()
    in_range = replace(everything, created_after=selection.created_after, created_before=selection.created_before)
    by_time = field == "created_at"
    states = None if selection.states == everything.states else selection.states
    parts = (
        ("runs_task", selection.names, replace(in_range, names=selection.names)),
        ("runs_state", states, replace(in_range, states=selection.states)),
        ("runs_trigger", selection.triggers, replace(in_range, triggers=selection.triggers)),
    )
    for index, values, part in parts:
        if by_time and part == selection and values is not None and len(values) == 1:
            best = Way(index, True, wanted, wanted)  # every entry of its range matches
            return best, best
    # Each: the index, how many entries its range has, whether they come in the order of the sort.
    ranges = [("runs_created", count(db, in_range), by_time)]
    if field == "id":
        ranges.append(("runs_id", count(db, everything), True))
    if field in WALKED:
        part = replace(everything, has=selection.has, lacks=selection.lacks)
        if selection.started is not None:  # most of them were created then, too
            part = replace(part, created_after=selection.started[0], created_before=selection.started[1])
        size = count(db, part) if selection.lasted is None else number_lasting(db, *selection.lasted)
        ranges.append((WALKED[field], size, True))
    if selection.id_part is not None and field in _IN_GROUPS:  # else the page is within one group already
        ranges.append((_IN_GROUPS[field], count(db, everything), True))
    # Runs get their id and start about when they are created: those of a time range stand together in those orders as
    # well, perhaps at the far end, and a scan in the order of creation keeps replacing the best that it has found.
    by_age = field in ("start_at", "id") or selection.lacks is not None
    in_clump = by_age and in_range != everything and selection.started is None
    sorting = _SORTING_COST_IN_ORDER if field == "start_at" else _SORTING_COST
    for index, values, part in parts:
        if values is not None:
            size = total if part == selection else count(db, part)
            ranges.append((index, size, by_time and len(values) == 1))

    def way(index: str, size: int, walks: bool) -> Way:
        if not walks:
            return Way(index, walks, size + sorting * total, size + sorting * total)
        most = size * (_LOOKUP_COST if index == "runs_id" else 1.0)  # that has the ids alone
        return Way(index, walks, most if in_clump else min(most, wanted * most / total), most)

    found = [way(*one) for one in ranges]
    return min(found, key=lambda one: one.cost), min(found, key=lambda one: one.most)
