"""Admission of waiting runs: a table of cases, and simulations of random configurations."""

import random
from collections.abc import Iterable

import pytest

from supervisor.schedule.admission import (
    POINT_MS,
    ActiveRuns,
    Capacity,
    Claim,
    Obstacle,
    SlotUse,
    WaitingRuns,
    admit,
    obstacles,
    rank_of,
    slot_uses,
)

DB = {"db": 1}
CAPACITY = Capacity({"db": 2, "api": 1}, max_running=3)


def claim(
    run: str, uses: dict[str, int] | None = None, *, unit: str = "", limit: int | None = 9, rank: int = 0
) -> Claim:
    return Claim(run, unit or f"unit of {run}", uses or {}, limit, rank)


def service(run: str, uses: dict[str, int] | None = None, *, rank: int = 0) -> Claim:
    return claim(run, uses, limit=None, rank=rank)


def started(capacity: Capacity, running: Iterable[Claim], waiting: Iterable[Claim]) -> list[str]:
    """Return all runs that start now, in order."""
    active, queue, admitted_runs = ActiveRuns(running), WaitingRuns(waiting), []
    while (admitted := admit(capacity, active, queue)) is not None:
        queue.remove(admitted.run)
        active.add(admitted)
        admitted_runs.append(admitted.run)
    return admitted_runs


@pytest.mark.parametrize(
    ("running", "waiting", "expected"),
    [
        ([], [claim("a", DB), claim("b", DB), claim("c", DB)], ["a", "b"]),
        ([claim("x", {"db": 2})], [claim("a", DB), claim("b")], ["b"]),
        ([claim("x", DB)], [claim("a", {"db": 2}), claim("b", DB)], []),
        ([claim("x", {"api": 1})], [claim("a", {"api": 1, "db": 1}), claim("b", DB)], []),
        ([], [claim("a", {"api": 1, "db": 2}), claim("b", DB)], ["a"]),
        ([], [claim("a"), claim("b"), claim("c"), claim("d")], ["a", "b", "c"]),
        ([service("x"), service("y"), service("z")], [claim("a")], ["a"]),
        ([claim("x"), claim("y"), claim("z")], [claim("a"), service("b"), service("c", DB)], ["b", "c"]),
        ([service("x", {"db": 2})], [service("a", DB), claim("b", DB)], []),
        ([claim("x", unit="t", limit=1)], [claim("a", unit="t", limit=1), claim("b")], ["b"]),
        ([claim("x", DB, unit="t", limit=1)], [claim("a", DB, unit="t", limit=1), claim("b", DB)], []),
        ([], [claim("b", DB, rank=2), claim("a", {"db": 2}, rank=1)], ["a"]),
        ([], [claim("a", {"gone": 1}), claim("b")], ["b"]),
        ([claim("x", {"db": 5})], [claim("a", DB), claim("b", {"api": 1})], ["b"]),
    ],
)
def test_started_runs(running: list[Claim], waiting: list[Claim], expected: list[str]) -> None:
    """A run takes all its places or none, in order, and passes an earlier run only without a common slot.

    Services count towards no limit.
    """
    assert started(CAPACITY, running, waiting) == expected


def test_waiting_raises_the_rank() -> None:
    """A minute of waiting equals a point: priority 0 precedes a run of priority 5 that came over 5 minutes later."""
    old = rank_of(0, 0)
    assert old < rank_of(5, 5 * POINT_MS + 1)
    assert old > rank_of(5, 5 * POINT_MS - 1)
    assert rank_of(100, 1000) < rank_of(99, 1000) < rank_of(-100, 1000)


def test_changed_claim() -> None:
    """A changed definition moves a queued run to its new place, and a removed run does not start."""
    waiting = WaitingRuns([claim("a", DB, rank=1), claim("b", DB, rank=2)])
    waiting.add(claim("a", {"api": 1}, rank=3))
    assert [waiting_claim.run for waiting_claim in waiting.heads()] == ["b", "a"]
    waiting.remove("b")
    waiting.remove("b")
    assert [waiting_claim.run for waiting_claim in waiting.heads()] == ["a"]
    assert len(waiting) == 1


def test_obstacles() -> None:
    """Each obstacle has its size, its holders, and the earlier runs that go first."""
    first, second = claim("a", {"db": 2}, rank=1), claim("b", DB, unit="t", limit=1, rank=2)
    running = [claim("x", DB), claim("y", unit="t", limit=1), service("s", DB), claim("z")]
    waiting = WaitingRuns([first, second])
    of_second, of_first = obstacles(CAPACITY, ActiveRuns(running), waiting, [second, first])
    assert of_second == [
        Obstacle("slot", "db", 2, ("x", "s", "a")),
        Obstacle("task", "t", 1, ("y",)),
        Obstacle("daemon", "", 3, ("x", "y", "z")),
    ]
    assert of_first[0] == Obstacle("slot", "db", 2, ("x", "s"))
    assert obstacles(CAPACITY, ActiveRuns(), WaitingRuns([first]), [first]) == [[]]


class Simulation:
    """Random runs in a random configuration, with independent bookkeeping."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        names = [f"s{n}" for n in range(self.random.randint(0, 5))]
        sizes = {name: self.random.randint(1, 4) for name in names}
        self.capacity = Capacity(sizes, self.random.choice([None, 1, 2, 5]))
        self.units = [self.unit(n) for n in range(self.random.randint(1, 8))]
        self.running: list[Claim] = []
        self.active = ActiveRuns()
        self.waiting = WaitingRuns()
        self.all_waiting: dict[str, Claim] = {}
        self.count = 0

    def unit(self, number: int) -> Claim:
        names = self.random.sample(sorted(self.capacity.slots), self.random.randint(0, len(self.capacity.slots)))
        uses = {name: self.random.randint(1, self.capacity.slots[name]) for name in names}
        limit = self.random.choice([None, 1, 1, 2, 3])
        return claim("", uses, unit=f"u{number}", limit=limit, rank=self.random.randint(-5, 5) * POINT_MS)

    def come(self, at: int) -> None:
        unit = self.random.choice(self.units)
        self.count += 1
        waiting_claim = Claim(f"r{self.count:06}", unit.unit, unit.uses, unit.limit, at + unit.rank)
        self.waiting.add(waiting_claim)
        self.all_waiting[waiting_claim.run] = waiting_claim

    def end_one(self) -> None:
        self.end(self.random.randrange(len(self.running)))

    def end(self, number: int) -> None:
        self.active.remove(self.running.pop(number).run)

    def admit_all(self) -> None:
        while (admitted := admit(self.capacity, self.active, self.waiting)) is not None:
            earlier = [other for other in self.all_waiting.values() if other.order < admitted.order]
            assert all(other.uses.keys().isdisjoint(admitted.uses) for other in earlier), (
                "passed a run with the same slot"
            )
            self.waiting.remove(admitted.run)
            del self.all_waiting[admitted.run]
            self.running.append(admitted)
            self.active.add(admitted)
            self.check()
        assert self.running or not self.all_waiting, "all runs wait, and none runs: a deadlock"

    def check(self) -> None:
        for name, size in self.capacity.slots.items():
            assert sum(waiting_claim.uses.get(name, 0) for waiting_claim in self.running) <= size
        tasks = [waiting_claim for waiting_claim in self.running if waiting_claim.limit is not None]
        assert self.capacity.max_running is None or len(tasks) <= self.capacity.max_running
        for task in tasks:
            assert task.limit is not None
            assert sum(other.unit == task.unit for other in tasks) <= task.limit


def test_slot_uses() -> None:
    """Each configured slot has its size, its used places, and the runs that wait for it in order."""
    running_claims = [service("x", {"db": 2}), claim("y", {"db": 1, "gone": 1}), claim("z")]
    last = claim("last", {"db": 1, "api": 1}, rank=3)
    first, second = claim("first", DB, rank=1), claim("second", {"db": 2}, rank=2)
    waiting = WaitingRuns([last, second, first, claim("other")])
    assert slot_uses(CAPACITY, ActiveRuns(running_claims), waiting, 2) == [
        SlotUse("api", 1, used=0, waiting=1, holders=[], next_runs=[last]),
        SlotUse("db", 2, used=3, waiting=3, holders=running_claims[:2], next_runs=[first, second]),
    ]


@pytest.mark.parametrize("seed", range(150))
def test_random_configurations(seed: int) -> None:
    """Limits hold, some run is always active while runs wait, and no run passes an earlier one with the same slot."""
    play = Simulation(seed)
    for at in range(120):
        if play.random.random() < 0.6:
            play.come(at)
        elif play.running:
            play.end_one()
        play.admit_all()
    while play.running:
        play.end_one()
        play.admit_all()
    assert play.all_waiting == {}
    assert len(play.waiting) == 0


@pytest.mark.parametrize("seed", range(30))
def test_no_run_starves(seed: int) -> None:
    """A run starts even if runs of every priority keep coming, because only earlier ones go first."""
    play = Simulation(seed)
    play.come(0)
    victim = next(iter(play.all_waiting.values()))
    for minute in range(400):
        play.come(minute * POINT_MS)
        play.come(minute * POINT_MS)
        play.admit_all()
        if victim.run not in play.all_waiting:
            return
        play.end(0)
        play.admit_all()
    raise AssertionError("a run never starts")


@pytest.mark.parametrize("seed", range(30))
def test_decision_is_independent_of_the_order(seed: int) -> None:
    """A scheduler that reads the same runs in another order makes the same decision."""
    play = Simulation(seed)
    for at in range(40):
        play.come(at)
        if play.running and play.random.random() < 0.5:
            play.end_one()
        again = list(play.all_waiting.values())
        running_claims = list(play.running)
        play.random.shuffle(again)
        play.random.shuffle(running_claims)
        assert admit(play.capacity, ActiveRuns(running_claims), WaitingRuns(again)) == admit(
            play.capacity, play.active, play.waiting
        )
        play.admit_all()
