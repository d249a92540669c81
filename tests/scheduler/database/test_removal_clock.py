"""The time by which old things are removed."""

import json

from supervisor.scheduler.database.removal_clock import RemovalClock
from tests.scheduler.fake_clock import FakeClock

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Clocks(FakeClock):
    """The two clocks that the removal asks."""

    def now_ms(self) -> int:
        return self.wall


def restarted(clock: RemovalClock, clocks: Clocks) -> RemovalClock:
    """Another scheduler's clock, under the same boot."""
    return RemovalClock(clocks, "boot", json.loads(json.dumps(clock.state())))


def test_a_clock_that_jumps_for_seconds() -> None:
    """Nothing becomes old by 8 s of a clock that is 400 days ahead, and afterwards all is as before."""
    clocks = Clocks(START_MS)
    changes: list[int] = []
    clock = RemovalClock(clocks, "boot", None, lambda: changes.append(clock.step_ms))
    clocks.wall += 400 * DAY_MS
    assert clock.earliest_ms() == START_MS
    clocks.advance_ms(8000)
    assert clock.earliest_ms() == START_MS + 8000
    clocks.wall -= 400 * DAY_MS
    assert (clock.earliest_ms(), clock.latest_ms(), clock.step_ms) == (START_MS + 8000, START_MS + 8000, 0)
    assert changes == [400 * DAY_MS, 0]


def test_a_step_that_holds() -> None:
    """A step beyond a day is believed after an hour in which the clock was not set again."""
    clocks = Clocks(START_MS)
    clock = RemovalClock(clocks, "boot", None)
    clocks.wall += 400 * DAY_MS
    clock.compare_clocks()
    clocks.advance_ms(HOUR_MS // 2)
    clocks.wall += DAY_MS
    clock.compare_clocks()
    clocks.advance_ms(HOUR_MS - 1000)
    clock.compare_clocks()
    assert (clock.step_ms, clock.believed_at_ms) == (401 * DAY_MS, clocks.wall + 1000)
    clocks.advance_ms(1000)
    assert clock.earliest_ms() == clocks.wall
    assert clock.believed_at_ms is None


def test_a_small_step_counts_at_once() -> None:
    """Within a day the wall clock is believed, forwards and backwards; so is time that passes, however long."""
    clocks = Clocks(START_MS)
    clock = RemovalClock(clocks, "boot", None)
    for step_ms in (DAY_MS, -DAY_MS, 5000):
        clocks.wall += step_ms
        assert clock.earliest_ms() == clocks.wall
    clocks.advance_ms(400 * DAY_MS)
    assert clock.earliest_ms() == clocks.wall


def test_a_clock_that_goes_back() -> None:
    """Under a clock that was set back by days nothing new is old, and nothing of before lies in the future."""
    clocks = Clocks(START_MS)
    clock = RemovalClock(clocks, "boot", None)
    clocks.wall -= 400 * DAY_MS
    assert (clock.earliest_ms(), clock.latest_ms()) == (START_MS - 400 * DAY_MS, START_MS)


def test_a_person_says_so() -> None:
    """The wall clock counts at once."""
    clocks = Clocks(START_MS)
    clock = RemovalClock(clocks, "boot", None)
    clocks.wall += 400 * DAY_MS
    clock.compare_clocks()
    clock.believe()
    assert (clock.earliest_ms(), clock.step_ms) == (clocks.wall, 0)


def test_over_another_scheduler() -> None:
    """A new scheduler notices a step made while none ran, and keeps an earlier doubt."""
    clocks = Clocks(START_MS)
    clock = RemovalClock(clocks, "boot", None)
    clocks.advance_ms(1000)
    clocks.wall += 400 * DAY_MS
    clock = restarted(clock, clocks)
    assert clock.earliest_ms() == START_MS + 1000
    clocks.advance_ms(HOUR_MS)
    clock = restarted(clock, clocks)
    assert clock.earliest_ms() == clocks.wall


def test_over_a_boot() -> None:
    """A host that was off for weeks, or whose clock is wrong since the boot, removes by age after an hour only."""
    clocks = Clocks(START_MS)
    clock = RemovalClock(clocks, "boot", None)
    stored = clock.state()
    clocks.wall, clocks.boot = START_MS + 30 * DAY_MS, 10.0
    clock = RemovalClock(clocks, "another boot", stored)
    assert clock.earliest_ms() == START_MS
    clocks.advance_ms(HOUR_MS)
    assert clock.earliest_ms() == clocks.wall
    stored = clock.state()
    clocks.wall, clocks.boot = clocks.wall + DAY_MS // 2, 10.0
    assert RemovalClock(clocks, "one more", stored).earliest_ms() == clocks.wall
