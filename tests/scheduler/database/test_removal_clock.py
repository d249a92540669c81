"""The clock for removal by age."""

import json

from supervisor.scheduler.database.removal_clock import RemovalClock
from supervisor.scheduler.loop.loop import Loop
from tests.scheduler.fake_clock import FakeClock

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def restarted(clock: RemovalClock, clocks: FakeClock) -> RemovalClock:
    """Return the clock of the next scheduler in the same boot."""
    return RemovalClock(Loop(clocks), "boot", json.loads(json.dumps(clock.state())))


def test_short_clock_jump() -> None:
    """A clock that is 400 days ahead for 8 s ages nothing, and leaves no trace once it is corrected."""
    clocks = FakeClock(START_MS)
    changes: list[int] = []
    clock = RemovalClock(Loop(clocks), "boot", None, lambda: changes.append(clock.step_ms))
    clocks.wall += 400 * DAY_MS
    assert clock.earliest_ms() == START_MS
    clocks.advance_ms(8000)
    assert clock.earliest_ms() == START_MS + 8000
    clocks.wall -= 400 * DAY_MS
    assert (clock.earliest_ms(), clock.latest_ms(), clock.step_ms) == (START_MS + 8000, START_MS + 8000, 0)
    assert changes == [400 * DAY_MS, 0]


def test_lasting_step() -> None:
    """A step beyond a day is believed after an hour without another step."""
    clocks = FakeClock(START_MS)
    clock = RemovalClock(Loop(clocks), "boot", None)
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


def test_small_step() -> None:
    """Steps of up to a day are believed at once in both directions, as is any time that passes."""
    clocks = FakeClock(START_MS)
    clock = RemovalClock(Loop(clocks), "boot", None)
    for step_ms in (DAY_MS, -DAY_MS, 5000):
        clocks.wall += step_ms
        assert clock.earliest_ms() == clocks.wall
    clocks.advance_ms(400 * DAY_MS)
    assert clock.earliest_ms() == clocks.wall


def test_backward_step() -> None:
    """After a backward step of days, nothing new is old and nothing earlier lies in the future."""
    clocks = FakeClock(START_MS)
    clock = RemovalClock(Loop(clocks), "boot", None)
    clocks.wall -= 400 * DAY_MS
    assert (clock.earliest_ms(), clock.latest_ms()) == (START_MS - 400 * DAY_MS, START_MS)


def test_confirmed_clock() -> None:
    """When an operator confirms the wall clock, it counts at once."""
    clocks = FakeClock(START_MS)
    clock = RemovalClock(Loop(clocks), "boot", None)
    clocks.wall += 400 * DAY_MS
    clock.compare_clocks()
    clock.believe()
    assert (clock.earliest_ms(), clock.step_ms) == (clocks.wall, 0)


def test_scheduler_restart() -> None:
    """A new scheduler notices a step made while none ran, and keeps an earlier doubt."""
    clocks = FakeClock(START_MS)
    clock = RemovalClock(Loop(clocks), "boot", None)
    clocks.advance_ms(1000)
    clocks.wall += 400 * DAY_MS
    clock = restarted(clock, clocks)
    assert clock.earliest_ms() == START_MS + 1000
    clocks.advance_ms(HOUR_MS)
    clock = restarted(clock, clocks)
    assert clock.earliest_ms() == clocks.wall


def test_reboot() -> None:
    """After a reboot, a clock that is weeks ahead is believed only after an hour."""
    clocks = FakeClock(START_MS)
    clock = RemovalClock(Loop(clocks), "boot", None)
    stored = clock.state()
    clocks.wall, clocks.settings = START_MS + 30 * DAY_MS, 10.0
    clock = RemovalClock(Loop(clocks), "another boot", stored)
    assert clock.earliest_ms() == START_MS
    clocks.advance_ms(HOUR_MS)
    assert clock.earliest_ms() == clocks.wall
    stored = clock.state()
    clocks.wall, clocks.settings = clocks.wall + DAY_MS // 2, 10.0
    assert RemovalClock(Loop(clocks), "one more", stored).earliest_ms() == clocks.wall
