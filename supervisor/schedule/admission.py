"""Admission: which waiting run starts next. Pure.

A run starts when its task, all its slots and the daemon have room. It takes all places at once or none: runs that held
some places while they wait for others could deadlock.

Waiting runs are ordered by priority and age: each minute of waiting adds a point. All runs gain points at the same
rate, so their order never changes. A run passes an earlier one only if they share no slot. Otherwise small runs could
starve a run that needs many places.

No counters are kept. The rows of the runs tell which runs are active or waiting, so every scheduler decides alike.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice

from msgspec import Struct, field

POINT_MS = 60_000
"""The waiting time that is worth a point of priority."""
MOST_HOLDERS = 100
"""The maximum number of runs that an obstacle lists."""


class Capacity(Struct, frozen=True):
    """The limits that runs share."""

    slots: Mapping[str, int] = field(default_factory=dict)
    """Sizes by name."""
    max_running: int | None = None
    """Maximum number of active runs of tasks; None: no limit."""


class Claim(Struct, frozen=True):
    """The resources that a run needs or holds."""

    run: str
    unit: str
    uses: Mapping[str, int]
    """Number of places by slot."""
    limit: int | None
    """``max_concurrent`` of its task; None: a run of a service, which counts towards no limit."""
    rank: int
    """Its order among the waiting runs (:func:`rank_of`)."""

    @property
    def order(self) -> tuple[int, str]:
        """The sort key of waiting runs; ULIDs order runs of the same rank by creation."""
        return self.rank, self.run


class Obstacle(Struct, frozen=True):
    """One reason why a run waits."""

    kind: str
    """``slot``, ``task`` (its own limit) or ``daemon``."""
    name: str
    """The slot or the task; empty for the daemon."""
    size: int
    held_by: tuple[str, ...]
    """Runs that hold places, then waiting runs that start earlier."""


class SlotUse(Struct, frozen=True):
    """The present use of a slot."""

    name: str
    size: int
    used: int
    """Places that runs hold; more than `size` after a reload with a smaller size."""
    waiting: int
    """Number of queued runs that need the slot."""
    holders: list[Claim]
    next_runs: list[Claim]
    """The first queued runs that need the slot, in order."""


def rank_of(priority: int, since_ms: int) -> int:
    """Return the rank of a run that has waited since `since_ms` (since the epoch); lower ranks start first."""
    return since_ms - priority * POINT_MS


class WaitingRuns:
    """The waiting runs, in lines of runs that cannot pass each other.

    Runs that need the same slots form a line, as do the runs of a unit without slots. Only the first run of a line can
    start, so a decision takes time for the number of lines, not of runs.
    """

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._lines: dict[object, list[Claim]] = {}
        self._claims: dict[str, Claim] = {}
        for claim in claims:
            self.add(claim)

    def add(self, claim: Claim) -> None:
        """Add a run, or replace the claim of a run that already waits."""
        self.remove(claim.run)
        self._claims[claim.run] = claim
        insort(self._lines.setdefault(_line_of(claim), []), claim, key=_order)

    def remove(self, run: str) -> None:
        """Remove a run, if it waits."""
        claim = self._claims.pop(run, None)
        if claim is None:
            return
        line = self._lines[_line_of(claim)]
        del line[bisect_left(line, claim.order, key=_order)]
        if not line:
            del self._lines[_line_of(claim)]

    def get(self, run: str) -> Claim | None:
        """Return the claim of a run; None if it does not wait."""
        return self._claims.get(run)

    def heads(self) -> list[Claim]:
        """Return the first run of each line, in order."""
        return sorted((line[0] for line in self._lines.values()), key=_order)

    def before(self, claim: Claim, slot: str) -> Iterator[Claim]:
        """Yield the runs that need `slot` and start before `claim`, in order."""
        lines = self._lines_of(slot)
        return merge(*(islice(line, bisect_left(line, claim.order, key=_order)) for line in lines), key=_order)

    def by_slot(self) -> dict[str, list[list[Claim]]]:
        """Return, by slot, the lines of runs that need it."""
        lines_by_slot = defaultdict[str, list[list[Claim]]](list)
        for line in self._lines.values():
            for slot in line[0].uses:
                lines_by_slot[slot].append(line)
        return lines_by_slot

    def _lines_of(self, slot: str) -> list[list[Claim]]:
        return [line for line in self._lines.values() if slot in line[0].uses]

    def __len__(self) -> int:
        return len(self._claims)


def admit(capacity: Capacity, running: Iterable[Claim], waiting: WaitingRuns) -> Claim | None:
    """Return the waiting run that starts next; None if all must wait."""
    load = _Load(running)
    passed: set[str] = set()
    """Slots of earlier runs that must wait; a later run may not take them."""
    for claim in waiting.heads():
        if passed.isdisjoint(claim.uses) and load.has_room(capacity, claim):
            return claim
        passed.update(claim.uses)
    return None


def obstacles(
    capacity: Capacity, running: Iterable[Claim], waiting: WaitingRuns, claims: Iterable[Claim]
) -> list[list[Obstacle]]:
    """Return, for each of `claims`, the reasons why it waits; empty if it starts at once."""
    active = list(running)
    load = _Load(active)
    return [_obstacles(capacity, active, load, waiting, claim) for claim in claims]


def _obstacles(
    capacity: Capacity, active: list[Claim], load: "_Load", waiting: WaitingRuns, claim: Claim
) -> list[Obstacle]:
    in_the_way = []
    for name, count in claim.uses.items():
        first = tuple(holder.run for holder in islice(waiting.before(claim, name), MOST_HOLDERS))
        size = capacity.slots.get(name, 0)
        if first or load.slots.get(name, 0) + count > size:
            holders = (*(holder.run for holder in active if name in holder.uses), *first)
            in_the_way.append(Obstacle("slot", name, size, holders[:MOST_HOLDERS]))
    if claim.limit is not None:
        if load.units.get(claim.unit, 0) >= claim.limit:
            own = tuple(holder.run for holder in active if holder.unit == claim.unit)
            in_the_way.append(Obstacle("task", claim.unit, claim.limit, own[:MOST_HOLDERS]))
        if capacity.max_running is not None and load.tasks >= capacity.max_running:
            counted = tuple(holder.run for holder in active if holder.limit is not None)
            in_the_way.append(Obstacle("daemon", "", capacity.max_running, counted[:MOST_HOLDERS]))
    return in_the_way


def slot_uses(capacity: Capacity, running: Iterable[Claim], waiting: WaitingRuns, listed: int) -> list[SlotUse]:
    """Return the use of all slots by name, each with up to `listed` runs that hold it and as many that wait."""
    holders = defaultdict[str, list[Claim]](list)
    for claim in running:
        for name in claim.uses:
            holders[name].append(claim)
    lines = waiting.by_slot()
    return [
        SlotUse(
            name,
            size,
            used=sum(claim.uses[name] for claim in holders[name]),
            waiting=sum(map(len, lines[name])),
            holders=holders[name][:listed],
            next_runs=list(islice(merge(*lines[name], key=_order), listed)),
        )
        for name, size in sorted(capacity.slots.items())
    ]


class _Load:
    """Totals of the resources that active runs hold."""

    def __init__(self, running: Iterable[Claim]) -> None:
        self.slots: dict[str, int] = {}
        self.units: dict[str, int] = {}
        self.tasks = 0
        for claim in running:
            for name, count in claim.uses.items():
                self.slots[name] = self.slots.get(name, 0) + count
            if claim.limit is not None:
                self.tasks += 1
                self.units[claim.unit] = self.units.get(claim.unit, 0) + 1

    def has_room(self, capacity: Capacity, claim: Claim) -> bool:
        """Return whether a run fits beside the active runs."""
        if any(self.slots.get(name, 0) + count > capacity.slots.get(name, 0) for name, count in claim.uses.items()):
            return False
        if claim.limit is None:
            return True
        full = capacity.max_running is not None and self.tasks >= capacity.max_running
        return not full and self.units.get(claim.unit, 0) < claim.limit


def _order(claim: Claim) -> tuple[int, str]:
    return claim.order


def _line_of(claim: Claim) -> object:
    return frozenset(claim.uses.items()) or claim.unit
