import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import START_MS, FakeClock
from tests.support.waiting import until

DAY_MS = 24 * 3600 * 1000


def test_long_delay() -> None:
    """Delays beyond 24.8 days do not overflow."""
    loop = Loop()
    loop.after(365 * DAY_MS, lambda: None)
    end, other_end = os.pipe()
    os.close(other_end)
    loop.watch(end, lambda _mask: loop.end())
    loop.run()
    os.close(end)


def test_reused_descriptor() -> None:
    """A handler that closes another descriptor and opens one of the same number gets no event of the old one."""
    loop = Loop()
    pipes = [os.pipe(), os.pipe()]
    called: list[str] = []

    def first(other: int) -> None:
        called.append("first")
        loop.unwatch(other)
        quiet, _ = os.pipe()
        os.dup2(quiet, other)
        loop.watch(other, lambda _mask: called.append("successor"))

    (old_end, one_end), (two, two_end) = pipes
    loop.watch(old_end, lambda _mask: first(two))
    loop.watch(two, lambda _mask: first(old_end))
    os.write(one_end, b"x")
    os.write(two_end, b"x")
    loop.round(0)
    assert called == ["first"]


def test_failing_call_of_a_thread() -> None:
    """An error in a call of a thread is raised, and the calls behind it are made in the next round."""
    loop = Loop()
    called: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    loop.call_from_thread(partial(called.append, "first"))
    loop.call_from_thread(fail)
    loop.call_from_thread(partial(called.append, "last"))
    with pytest.raises(ZeroDivisionError):
        loop.round(None)
    assert called == ["first"]
    loop.round(0)
    assert called == ["first", "last"]


def test_cancelled_timers_take_no_memory() -> None:
    """Timers that were cancelled long before they are due are discarded, and active timers are kept in order."""
    loop = Loop()
    fired: list[int] = []
    for number in range(10_000):
        loop.after(DAY_MS, lambda: None).cancel()
        if number % 1000 == 0:
            loop.after(-number * DAY_MS, lambda number=number: fired.append(number))  # type: ignore[misc]
    assert len(loop._monotonic._timers) < 600
    loop.round(0)
    assert fired == list(range(9000, -1, -1000))


def test_clock_step() -> None:
    """Each step of the clock is reported once with its size; passing time is not a step, even while the host sleeps."""
    clock = FakeClock()
    steps: list[int] = []
    loop = Loop(clock, steps.append)
    clock.advance(3600)
    clock.suspend(3600)
    loop.round(0)
    assert steps == []
    for step_ms in (-3_600_000, 7_200_000, 999, -500):
        clock.wall += step_ms
        loop.round(0)
        clock.advance(0.5)
        loop.round(0)
    assert steps == [-3_600_000, 7_200_000]


def test_step_is_reported_before_its_timers() -> None:
    """A step is reported before the timers that it makes due, so that they can be corrected first."""
    clock = FakeClock()
    called: list[str] = []
    loop = Loop(clock, lambda _by_ms: called.append("step"))
    loop.at(clock.wall + 60_000, lambda: called.append("timer"))
    clock.wall += 60_000
    loop.round(0)
    assert called == ["step", "timer"]


def test_schedule_after_a_backward_step(bench: Callable[[str], Bench]) -> None:
    """A schedule does not wait for a time that was reached only because the clock was wrong."""
    harness = bench('[tasks.t]\nrun = "true"\ncron = "* * * * *"\n')
    unit = harness.units["t"]
    scheduled_starts = ScheduledStarts(harness.core, harness.engine)
    now_ms = harness.loop.now_ms()
    unit.last_instant = now_ms + 365 * DAY_MS
    scheduled_starts.clock_stepped([unit], -365 * DAY_MS)
    assert now_ms <= unit.last_instant <= harness.loop.now_ms()
    assert now_ms / 1000 < (harness.loop._wall.next_s() or 0) <= harness.loop.now_ms() / 1000 + 60


def test_wall_clock_timer() -> None:
    """A wall-clock timer is called when the clock shows its time, without polling in between."""
    loop = Loop()
    at_ms = loop.now_ms() + 200
    called: list[int] = []

    def due() -> None:
        called.append(loop.now_ms())
        loop.end()

    loop.at(at_ms + DAY_MS, lambda: None)
    assert loop._due_s() == 0

    def looked() -> bool:
        loop.round(0)
        return loop._due_s() is None

    until(looked, "a look at the clocks without a pause")
    loop.at(at_ms, due)
    loop.run()
    assert called[0] >= at_ms


class FakeAlarm:
    """An alarm of the kernel that the test rings, because the test cannot set the real clock."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.set_to: list[float] = []
        self.missed_a_step = False

    def fileno(self) -> int:
        return self._read

    def set(self, at_s: float) -> bool:
        self.set_to.append(at_s)
        missed, self.missed_a_step = self.missed_a_step, False
        return not missed

    def ring(self) -> None:
        os.write(self._write, b"x")

    def clear(self) -> None:
        os.read(self._read, 1)


def test_clock_step_wakes_the_loop() -> None:
    """The kernel's alarm wakes a waiting loop at a step, even if the step comes while the alarm is being set."""
    ringer = FakeAlarm()

    class Ringing(FakeClock):
        def alarm(self) -> Any:
            return ringer

    clock = Ringing()
    steps: list[int] = []
    loop = Loop(clock, steps.append)
    loop.at(clock.wall + 3_600_000, lambda: None)
    loop.round(loop._due_s())
    assert loop._due_s() is None
    clock.wall -= 60_000
    ringer.ring()
    loop.round(loop._due_s())
    assert steps == [-60_000]
    ringer.missed_a_step = True
    clock.wall += 60_000
    assert loop._due_s() == 0
    loop.round(0)
    assert steps == [-60_000, 60_000]
    assert loop._due_s() is None
    assert set(ringer.set_to) == {START_MS / 1000 + 3600}


def test_no_kernel_alarm() -> None:
    """Without an alarm of the kernel, a step is noticed within a second while a timer waits."""

    class Silent(FakeClock):
        def alarm(self) -> None:
            return None

    clock = Silent()
    loop = Loop(clock)
    assert loop._due_s() is None
    loop.at(clock.wall + 3_600_000, lambda: None)
    assert loop._due_s() == clock.monotonic + 1


def test_deferred_calls() -> None:
    """A deferred call is made once, after all handlers and timers, urgent calls first, or at once outside a round."""
    loop = Loop()
    called: list[str] = []
    send, urgent = (lambda: called.append("send")), (lambda: called.append("urgent"))

    def timer() -> None:
        called.append("timer")
        loop.at_round_end(send)
        loop.at_round_end(urgent, first=True)
        loop.at_round_end(send)

    loop.after(0, timer)
    loop.after(0, timer)
    loop.round(0)
    assert called == ["timer", "timer", "urgent", "send"]
    loop.at_round_end(send)
    loop.round(0)
    assert called[4:] == ["send"]
