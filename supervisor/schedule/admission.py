"""Admission: which waiting run starts next. Pure.

A run starts when its task, all its slots and the daemon have room. It takes all places at once or none: runs that held
some places while they wait for others could deadlock.

Waiting runs are ordered by priority and age: each minute of waiting adds a point. All runs gain points at the same
rate, so their order never changes. A run passes an earlier one only if they share no slot. Otherwise small runs could
starve a run that needs many places.

No counters are stored. The rows of the runs tell which runs are active or waiting, so every scheduler decides alike.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
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
    counts: bool = True
    """Whether a run of a task counts towards ``max_running``; that of a flow does not, because it has no process."""

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


class ActiveRuns:
    """The claims of the active runs, the earliest first, and the totals of the resources that they hold."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._claims: dict[str, Claim] = {}
        self._slots = Counter[str]()
        self._units = Counter[str]()
        """Number of active runs by task."""
        self.tasks = 0
        """Number of active runs of tasks."""
        for claim in claims:
            self.add(claim)

    def add(self, claim: Claim) -> None:
        """Add a run, or replace the claim of a run that is already active."""
        self.remove(claim.run)
        self._claims[claim.run] = claim
        self._count(claim, 1)

    def remove(self, run: str) -> None:
        """Remove a run, if it is active."""
        claim = self._claims.pop(run, None)
        if claim is not None:
            self._count(claim, -1)

    def _count(self, claim: Claim, sign: int) -> None:
        for name, places in claim.uses.items():
            self._slots[name] += sign * places
        if claim.limit is not None:
            self.tasks += sign * claim.counts
            self._units[claim.unit] += sign

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def fill_slot(self, capacity: Capacity, name: str, places: int) -> bool:
        """Return whether a slot has fewer than `places` free places."""
        return self._slots[name] + places > capacity.slots.get(name, 0)

    def fill_task(self, claim: Claim) -> bool:
        """Return whether as many runs of a task are active as its limit allows; False for a run of a service."""
        return claim.limit is not None and self._units[claim.unit] >= claim.limit

    def fill_daemon(self, capacity: Capacity, claim: Claim) -> bool:
        """Return whether as many runs of tasks are active as the daemon allows; False for one that does not count."""
        return (
            claim.limit is not None
            and claim.counts
            and capacity.max_running is not None
            and self.tasks >= capacity.max_running
        )

    def leave_room(self, capacity: Capacity, claim: Claim) -> bool:
        """Return whether a run fits beside the active runs."""
        full = any(self.fill_slot(capacity, name, places) for name, places in claim.uses.items())
        return not (full or self.fill_task(claim) or self.fill_daemon(capacity, claim))


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

    def __contains__(self, run: str) -> bool:
        """Return whether a run waits."""
        return run in self._claims

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


def admit(capacity: Capacity, active: ActiveRuns, waiting: WaitingRuns) -> Claim | None:
    """Return the waiting run that starts next; None if all must wait."""
    passed: set[str] = set()
    """Slots of earlier runs that must wait; a later run may not take them."""
    for claim in waiting.heads():
        if passed.isdisjoint(claim.uses) and active.leave_room(capacity, claim):
            return claim
        passed.update(claim.uses)
    return None


def obstacles(
    capacity: Capacity, active: ActiveRuns, waiting: WaitingRuns, claims: Iterable[Claim]
) -> list[list[Obstacle]]:
    """Return, for each of `claims`, the reasons why it waits; empty if it starts at once."""
    return [_obstacles(capacity, active, waiting, claim) for claim in claims]


def _obstacles(capacity: Capacity, active: ActiveRuns, waiting: WaitingRuns, claim: Claim) -> list[Obstacle]:
    in_the_way = []
    for name, count in claim.uses.items():
        first = tuple(holder.run for holder in islice(waiting.before(claim, name), MOST_HOLDERS))
        if first or active.fill_slot(capacity, name, count):
            holders = (*(holder.run for holder in active if name in holder.uses), *first)
            in_the_way.append(Obstacle("slot", name, capacity.slots.get(name, 0), holders[:MOST_HOLDERS]))
    if claim.limit is not None and active.fill_task(claim):
        own = tuple(holder.run for holder in active if holder.unit == claim.unit)
        in_the_way.append(Obstacle("task", claim.unit, claim.limit, own[:MOST_HOLDERS]))
    if capacity.max_running is not None and active.fill_daemon(capacity, claim):
        counted = tuple(holder.run for holder in active if holder.limit is not None and holder.counts)
        in_the_way.append(Obstacle("daemon", "", capacity.max_running, counted[:MOST_HOLDERS]))
    return in_the_way


def slot_uses(capacity: Capacity, active: ActiveRuns, waiting: WaitingRuns, listed: int) -> list[SlotUse]:
    """Return the use of all slots by name, each with up to `listed` runs that hold it and as many that wait."""
    holders = defaultdict[str, list[Claim]](list)
    for claim in active:
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


def _order(claim: Claim) -> tuple[int, str]:
    return claim.order


def _line_of(claim: Claim) -> object:
    return frozenset(claim.uses.items()) or claim.unit
