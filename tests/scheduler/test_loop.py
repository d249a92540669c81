import os
import time
from collections.abc import Callable

import pytest

from supervisor.scheduler.loop import Loop
from supervisor.scheduler.timetable import Timetable
from tests.scheduler.bench import Bench

DAY_MS = 24 * 3600 * 1000


def test_any_time_can_be_waited_for() -> None:
    """Delays beyond 24.8 days do not overflow."""
    loop = Loop()
    loop.after(365 * DAY_MS, lambda: None)
    end, other_end = os.pipe()
    os.close(other_end)
    loop.watch(end, lambda _mask: loop.end())
    loop.run()
    os.close(end)


def test_an_event_does_not_reach_a_successor() -> None:
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

    (one, one_end), (two, two_end) = pipes
    loop.watch(one, lambda _mask: first(two))
    loop.watch(two, lambda _mask: first(one))
    os.write(one_end, b"x")
    os.write(two_end, b"x")
    loop.round(0)
    assert called == ["first"]


def test_cancelled_timers_take_no_memory() -> None:
    """However many timers were cancelled long before they are due, only those that count are kept, in their order."""
    loop = Loop()
    fired: list[int] = []
    for number in range(10_000):
        loop.after(DAY_MS, lambda: None).cancel()
        if number % 1000 == 0:
            loop.after(-number, lambda number=number: fired.append(number))  # type: ignore[misc]
    assert len(loop._monotonic._timers) < 600
    loop.round(0)
    assert fired == list(range(9000, -1, -1000))


def test_a_clock_that_was_set_back(bench: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule does not wait for a time that was only reached because the clock was wrong."""
    one = bench('[tasks.t]\nrun = "true"\ncron = "* * * * *"\n')
    unit = one.units["t"]
    timetable = Timetable(one.loop, one.engine)
    now_s = time.time()
    seen: list[float] = []
    one.loop.on_clock_back = lambda: seen.append(time.time())
    monkeypatch.setattr(time, "time", lambda: now_s + 365 * 86400)
    monkeypatch.setattr(Loop, "now_ms", staticmethod(lambda: int(time.time() * 1000)))
    one.loop.round(0)
    timetable.begin(unit)
    monkeypatch.setattr(time, "time", lambda: now_s)
    one.loop.round(0)
    assert seen == [now_s]
    timetable.begin(unit)
    assert unit.last_instant == int(now_s * 1000)
    assert one.loop._wall.next_s() is not None
    assert now_s < (one.loop._wall.next_s() or 0) <= now_s + 60
    one.loop.round(0)
    assert seen == [now_s]
