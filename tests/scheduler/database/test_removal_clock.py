"""The time by which old things are removed."""

import json

from supervisor.scheduler.database.removal_clock import RemovalClock

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Hands:
    """Clocks that a test moves."""

    def __init__(self) -> None:
        self.wall_ms, self.boot = START_MS, 1000.0

    def now_ms(self) -> int:
        return self.wall_ms

    def boot_s(self) -> float:
        return self.boot

    def passes(self, by_ms: int) -> None:
        self.wall_ms += by_ms
        self.boot += by_ms / 1000


def restarted(clock: RemovalClock, hands: Hands) -> RemovalClock:
    """Another scheduler's clock, under the same boot."""
    return RemovalClock(hands, "boot", json.loads(json.dumps(clock.state())))


def test_a_clock_that_jumps_for_seconds() -> None:
    """Nothing becomes old by 8 s of a clock that is 400 days ahead, and afterwards all is as before."""
    hands = Hands()
    changes: list[int] = []
    clock = RemovalClock(hands, "boot", None, lambda: changes.append(clock.step_ms))
    hands.wall_ms += 400 * DAY_MS
    assert clock.earliest_ms() == START_MS
    hands.passes(8000)
    assert clock.earliest_ms() == START_MS + 8000
    hands.wall_ms -= 400 * DAY_MS
    assert (clock.earliest_ms(), clock.latest_ms(), clock.step_ms) == (START_MS + 8000, START_MS + 8000, 0)
    assert changes == [400 * DAY_MS, 0]


def test_a_step_that_holds() -> None:
    """A step beyond a day is believed after an hour in which the clock was not set again."""
    hands = Hands()
    clock = RemovalClock(hands, "boot", None)
    hands.wall_ms += 400 * DAY_MS
    clock.look()
    hands.passes(HOUR_MS // 2)
    hands.wall_ms += DAY_MS
    clock.look()
    hands.passes(HOUR_MS - 1000)
    clock.look()
    assert (clock.step_ms, clock.believed_at_ms) == (401 * DAY_MS, hands.wall_ms + 1000)
    hands.passes(1000)
    assert clock.earliest_ms() == hands.wall_ms
    assert clock.believed_at_ms is None


def test_a_small_step_counts_at_once() -> None:
    """Within a day the wall clock is believed, forwards and backwards; so is time that passes, however long."""
    hands = Hands()
    clock = RemovalClock(hands, "boot", None)
    for step_ms in (DAY_MS, -DAY_MS, 5000):
        hands.wall_ms += step_ms
        assert clock.earliest_ms() == hands.wall_ms
    hands.passes(400 * DAY_MS)
    assert clock.earliest_ms() == hands.wall_ms


def test_a_clock_that_goes_back() -> None:
    """Under a clock that was set back by days nothing new is old, and nothing of before lies in the future."""
    hands = Hands()
    clock = RemovalClock(hands, "boot", None)
    hands.wall_ms -= 400 * DAY_MS
    assert (clock.earliest_ms(), clock.latest_ms()) == (START_MS - 400 * DAY_MS, START_MS)


def test_a_person_says_so() -> None:
    """The wall clock counts at once."""
    hands = Hands()
    clock = RemovalClock(hands, "boot", None)
    hands.wall_ms += 400 * DAY_MS
    clock.look()
    clock.believe()
    assert (clock.earliest_ms(), clock.step_ms) == (hands.wall_ms, 0)


def test_over_another_scheduler() -> None:
    """A new scheduler notices a step made while none ran, and keeps an earlier doubt."""
    hands = Hands()
    clock = RemovalClock(hands, "boot", None)
    hands.passes(1000)
    hands.wall_ms += 400 * DAY_MS
    clock = restarted(clock, hands)
    assert clock.earliest_ms() == START_MS + 1000
    hands.passes(HOUR_MS)
    clock = restarted(clock, hands)
    assert clock.earliest_ms() == hands.wall_ms


def test_over_a_boot() -> None:
    """A host that was off for weeks, or whose clock is wrong since the boot, removes by age after an hour only."""
    hands = Hands()
    clock = RemovalClock(hands, "boot", None)
    stored = clock.state()
    hands.wall_ms, hands.boot = START_MS + 30 * DAY_MS, 10.0
    clock = RemovalClock(hands, "another boot", stored)
    assert clock.earliest_ms() == START_MS
    hands.passes(HOUR_MS)
    assert clock.earliest_ms() == hands.wall_ms
    stored = clock.state()
    hands.wall_ms, hands.boot = hands.wall_ms + DAY_MS // 2, 10.0
    assert RemovalClock(hands, "one more", stored).earliest_ms() == hands.wall_ms
