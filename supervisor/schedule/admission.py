"""Admission: the decision which waiting run starts next. Pure.

A run starts when its task's own limit, all its slots and the daemon have room. It takes all of them or none, so runs
cannot deadlock. Waiting runs are ordered by priority and age: each minute of waiting adds a point. The difference of
two runs in points never changes, so neither does their order. A run passes an earlier one only if they share no slot,
so later runs cannot starve an earlier one.

There are no counters in memory. The rows of the runs determine which runs are active or waiting, so every scheduler
reaches the same decision.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice

POINT_MS = 60_000
"""The waiting time that is worth a point of priority."""
MOST_HOLDERS = 100
"""The number of runs that are listed as an obstacle."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The limits that runs share."""

    slots: Mapping[str, int] = field(default_factory=dict)
    """Sizes by name."""
    max_running: int | None = None
    """Number of runs of tasks at the same time; None: no limit."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The resources that a run needs or holds."""

    run: str
    unit: str
    uses: Mapping[str, int]
    """Places by slot."""
    limit: int | None
    """Runs of its task at the same time; None: a run of a service, which counts for no limit."""
    rank: int
    """Position among the waiting runs (:func:`rank_of`)."""

    @property
    def order(self) -> tuple[int, str]:
        """Return the sort key: runs start in this order."""
        return self.rank, self.run


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why a run waits."""

    kind: str
    """``slot``, ``task`` (its own limit) or ``daemon``."""
    name: str
    """The slot or the task; empty for the daemon."""
    size: int
    held_by: tuple[str, ...]
    """Runs that hold places, then earlier waiting runs that go first."""


@dataclass(frozen=True, slots=True)
class SlotUse:
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
    """Return the rank of a run that waits since `since_ms`; lower ranks start first."""
    return since_ms - priority * POINT_MS


class WaitingRuns:
    """The waiting runs in order, in lines of runs that cannot pass each other.

    Runs with the same slots form a line, as do runs of one unit without slots. Only the first run of a line can start,
    so a decision costs the number of lines, not of runs.
    """

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._lines: dict[object, list[Claim]] = {}
        self._claims: dict[str, Claim] = {}
        for claim in claims:
            self.add(claim)

    def add(self, claim: Claim) -> None:
        """Let a run wait; a run that waits already gets its new claim."""
        self.remove(claim.run)
        self._claims[claim.run] = claim
        insort(self._lines.setdefault(_line_of(claim), []), claim, key=_order)

    def remove(self, run: str) -> None:
        """Let a run wait no longer."""
        claim = self._claims.pop(run, None)
        if claim is None:
            return
        line = self._lines[_line_of(claim)]
        del line[bisect_left(line, claim.order, key=_order)]
        if not line:
            del self._lines[_line_of(claim)]

    def get(self, run: str) -> Claim | None:
        """Return the claim of a run; None: it does not wait."""
        return self._claims.get(run)

    def heads(self) -> list[Claim]:
        """Return the first run of each line, in order."""
        return sorted((line[0] for line in self._lines.values()), key=_order)

    def before(self, claim: Claim, slot: str) -> Iterator[Claim]:
        """Yield the runs that are earlier than a run and need the same slot, in order."""
        lines = self._lines_of(slot)
        return merge(*(islice(line, bisect_left(line, claim.order, key=_order)) for line in lines), key=_order)

    def by_slot(self) -> dict[str, list[list[Claim]]]:
        """Return the lines of the runs that need each slot."""
        found = defaultdict[str, list[list[Claim]]](list)
        for line in self._lines.values():
            for slot in line[0].uses:
                found[slot].append(line)
        return found

    def _lines_of(self, slot: str) -> list[list[Claim]]:
        return [line for line in self._lines.values() if slot in line[0].uses]

    def __len__(self) -> int:
        return len(self._claims)


def admit(capacity: Capacity, running: Iterable[Claim], waiting: WaitingRuns) -> Claim | None:
    """Return the waiting run that starts next; None: every run has to wait."""
    load = _Load(running)
    passed: set[str] = set()
    """Slots of earlier runs that have to wait."""
    for claim in waiting.heads():
        if passed.isdisjoint(claim.uses) and load.has_room(capacity, claim):
            return claim
        passed.update(claim.uses)
    return None


def obstacles(
    capacity: Capacity, running: Iterable[Claim], waiting: WaitingRuns, claims: Iterable[Claim]
) -> list[list[Obstacle]]:
    """Return the reasons why each of some runs waits; empty: it starts at once."""
    held = list(running)
    load = _Load(held)
    return [_obstacles(capacity, held, load, waiting, claim) for claim in claims]


def _obstacles(
    capacity: Capacity, held: list[Claim], load: "_Load", waiting: WaitingRuns, claim: Claim
) -> list[Obstacle]:
    found = []
    for name, count in claim.uses.items():
        first = tuple(one.run for one in islice(waiting.before(claim, name), MOST_HOLDERS))
        size = capacity.slots.get(name, 0)
        if first or load.slots.get(name, 0) + count > size:
            holders = (*(one.run for one in held if name in one.uses), *first)
            found.append(Obstacle("slot", name, size, holders[:MOST_HOLDERS]))
    if claim.limit is not None:
        if load.units.get(claim.unit, 0) >= claim.limit:
            own = tuple(one.run for one in held if one.unit == claim.unit)
            found.append(Obstacle("task", claim.unit, claim.limit, own[:MOST_HOLDERS]))
        if capacity.max_running is not None and load.tasks >= capacity.max_running:
            counted = tuple(one.run for one in held if one.limit is not None)
            found.append(Obstacle("daemon", "", capacity.max_running, counted[:MOST_HOLDERS]))
    return found


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
    """The sums of the resources that active runs hold."""

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
        """Return whether a run can start beside the active runs."""
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
