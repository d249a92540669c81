"""Windows: their times over clock changes, and what becomes of the scheduled times in them."""

from datetime import UTC, date, datetime
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from supervisor.config.model import Task
from supervisor.config.value_records import CronEntry
from supervisor.schedule.catchup import due_instants
from supervisor.schedule.instants import Schedule, upcoming
from supervisor.schedule.windows import (
    OPEN_END,
    Opening,
    Override,
    WindowDefinition,
    Windows,
    WindowTimes,
    upcoming_openings,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


START = ms("2026-06-01T00:00Z")


def at(hours: float) -> int:
    return START + round(hours * HOUR)


def schedule(*windows: WindowTimes, cron: str | tuple[CronEntry, ...] = "0 * * * *", **keys: Any) -> Schedule:
    values = {"cron": (CronEntry(cron),) if isinstance(cron, str) else cron, "timezone": "UTC", **keys}
    made = Schedule(Task(name="t", run="true", **values))
    made.windows = list(windows)
    return made


def nightly(instants: Any = "skip", **keys: Any) -> WindowTimes:
    """A window from 01:00 to 04:30."""
    return WindowTimes(
        WindowDefinition(name="w", crons=("0 1 * * *",), duration_ms=3 * HOUR + HOUR // 2, instants=instants, **keys)
    )


def opened(start: float, end: float, *, closed: bool = False) -> Override:
    return Override(window="w", start=at(start), end=at(end), open=not closed, by="anna")


def spans(times: WindowTimes, start: int, end: int) -> list[tuple[int, int]]:
    return [(opening.start, opening.end) for opening in times.openings(start, end)]


@pytest.mark.parametrize(
    ("day", "opens", "closes"),
    [
        ("2026-03-28", "2026-03-28T23:00Z", "2026-03-29T04:00Z"),  # clocks skip an hour: 00:00 to 06:00 local
        ("2026-10-24", "2026-10-24T22:00Z", "2026-10-25T03:00Z"),  # clocks repeat an hour: 00:00 to 04:00 local
    ],
)
def test_window_lasts_elapsed_time(day: str, opens: str, closes: str) -> None:
    """A window lasts its duration as elapsed time, also in nights of clock changes."""
    times = WindowTimes(WindowDefinition(name="w", crons=("0 0 * * *",), duration_ms=5 * HOUR, zone="Europe/Berlin"))
    begin = ms(f"{day}T12:00Z")
    assert spans(times, begin, begin + DAY) == [(ms(opens), ms(closes))]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_openings_agree_with_datetime(zone: str) -> None:
    """Openings of a year are those that local midnights and timedelta give."""
    times = WindowTimes(WindowDefinition(name="w", crons=("0 5 * * *",), duration_ms=20 * HOUR, zone=zone))
    local = ZoneInfo(zone)
    expected = []
    for number in range(365):
        day = datetime.fromordinal(date(2026, 1, 2).toordinal() + number)
        opens = int(day.replace(hour=5, tzinfo=local).astimezone(UTC).timestamp() * 1000)
        expected.append((opens, opens + 20 * HOUR))
    assert spans(times, expected[0][0] - HOUR, expected[-1][1]) == expected


def test_openings_without_a_gap_are_one() -> None:
    """Two openings that touch or overlap are one."""
    times = WindowTimes(WindowDefinition(name="w", crons=("0 1 * * *", "0 3 * * *"), duration_ms=2 * HOUR))
    assert spans(times, START, START + DAY) == [(at(1), at(5))]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([opened(10, 12)], [(1, 4.5), (10, 12)]),
        ([opened(2, 6)], [(1, 6)]),  # it lasts longer
        ([opened(2, 4.5, closed=True)], [(1, 2)]),  # it is ended early
        ([opened(2, 4.5, closed=True), opened(3, 5)], [(1, 2), (3, 5)]),  # and opened again
        ([opened(4, 7), opened(5, 7, closed=True)], [(1, 5)]),
    ],
)
def test_people_open_and_close(overrides: list[Override], expected: list[tuple[float, float]]) -> None:
    """What people did last holds, and afterwards the times of the window again."""
    times = nightly()
    times.override(overrides)
    assert spans(times, START, at(24)) == [(at(start), at(end)) for start, end in expected]
    assert times.opening(at(25.5)) is not None


def test_people_without_times() -> None:
    """A window without times opens only by hand, for as long as nobody ends it."""
    times = WindowTimes(WindowDefinition(name="w"))
    assert (times.opening(START), times.next_change(START)) == (None, OPEN_END)
    times.override([_open_end()])
    assert spans(times, START, at(5)) == [(at(1), OPEN_END)]


def _open_end() -> Override:
    return Override(window="w", start=at(1), end=OPEN_END, open=True, by="anna")


def running(made: Schedule, start: float, end: float, mark: float | None = None) -> list[float]:
    instants = made.running(at(start if mark is None else mark), at(start))
    return [(instant.at - START) / HOUR for instant in takewhile(lambda instant: instant.at <= at(end), instants)]


def test_skipped_instants() -> None:
    """Scheduled times in a window do not run; the end of the window is not part of it."""
    assert running(schedule(nightly()), 0, 6) == [5, 6]
    assert running(schedule(nightly(), cron="0,30 * * * *"), 0, 6) == [0.5, 4.5, 5, 5.5, 6]


def test_deferred_instants() -> None:
    """Scheduled times in a window become one run at its end, which another time then can share."""
    assert running(schedule(nightly("defer")), 0, 6) == [4.5, 5, 6]
    assert running(schedule(nightly("defer"), cron="0,30 * * * *"), 0, 6) == [0.5, 4.5, 5, 5.5, 6]
    assert running(schedule(nightly("defer"), cron="0 12 * * *"), 0, 20) == [12]


def test_deferred_instants_from_within_the_window() -> None:
    """A time that passed in an open window still runs at its end, unless it was accounted for."""
    made = schedule(nightly("defer"), cron="0 2 * * *")
    assert running(made, 3, 6, mark=0) == [4.5]
    assert running(made, 3, 6, mark=3) == []
    assert running(made, 4.5, 6, mark=4.5) == []


def test_parameters_of_deferred_instants() -> None:
    """A deferred run has the parameters of the first expression that has a time in the window."""
    made = schedule(
        nightly("defer"),
        cron=(
            CronEntry("30 5 * * *", (("a", "0"),)),
            CronEntry("0 2 * * *", (("a", "1"),)),
            CronEntry("0 3 * * *"),
        ),
    )
    assert [made.params_at(at(hours)) for hours in (4.5, 5.5, 6)] == [{"a": "1"}, {"a": "0"}, {}]


@pytest.mark.parametrize(("keys", "expected"), [({"every_ms": HOUR}, [1, 4.5, 5.5]), ({"at_ms": at(2)}, [4.5])])
def test_deferred_intervals(keys: dict[str, Any], expected: list[float]) -> None:
    """An interval counts from the deferred run; a single time is deferred too."""
    window = WindowTimes(WindowDefinition(name="w", start=at(1.5), end=at(4.5), instants="defer"))
    assert running(schedule(window, cron=(), **keys), 0, 6) == expected


def test_several_windows() -> None:
    """A window that skips is stronger; a deferred run waits for all windows that defer it."""
    early = WindowTimes(WindowDefinition(name="a", start=at(1), end=at(4), instants="defer"))
    late = WindowTimes(WindowDefinition(name="b", start=at(3), end=at(6), instants="defer"))
    assert running(schedule(early, late, cron="0 2 * * *"), 0, 20) == [6]
    assert running(schedule(early, late, cron="0 2 * * *"), 5, 20, mark=0) == [6]
    stronger = WindowTimes(WindowDefinition(name="c", start=at(3.5), end=at(8)))
    (instant,) = islice(schedule(early, stronger, cron="0 2 * * *").occurrences(START), 1)
    assert (instant.at, instant.runs, instant.closed) == (at(4), False, "c")


def test_calendars_come_before_windows() -> None:
    """A time on a closed day counts for its calendar, even within a window."""
    from supervisor.schedule.calendars import WEEKEND

    saturday = ms("2026-06-06T00:00Z")
    window = WindowTimes(WindowDefinition(name="w", start=saturday - DAY, end=saturday + 2 * DAY))
    due = due_instants(
        schedule(window, cron="0 2 * * *", skip_on=(WEEKEND,)),
        saturday - DAY,
        saturday + DAY,
        catch_up=1,
        window_ms=DAY,
    )
    assert due is not None
    assert [(day.cause, day.reason) for day in due.closed] == [("window", "w"), ("calendar", "weekend")]


def test_window_without_end() -> None:
    """Times in a window without an end have no next run, until someone ends it."""
    for instants in ("skip", "defer"):
        times = WindowTimes(WindowDefinition(name="w", instants=instants))
        times.override([_open_end()])
        assert running(schedule(times, cron="0,30 * * * *"), 0, 5) == [0.5]


def test_dense_schedule_over_a_long_window() -> None:
    """The next run after a window of weeks takes one step, however many times it skips."""
    window = WindowTimes(WindowDefinition(name="w", start=at(1), end=at(1) + 60 * DAY))
    made = schedule(window, cron="* * * * * *")
    assert next(made.running(at(2))).at == at(1) + 60 * DAY


def test_schedule_that_a_window_always_skips() -> None:
    """The search for a next run ends, even if windows skip all times of a schedule."""
    made = schedule(nightly(), cron="0 2 * * *")
    assert list(islice(made.running(START), 1)) == []
    assert upcoming(made, START, START, 3) == []


def test_texts() -> None:
    """The next times name the window that deferred them, or that skips the times before them."""
    texts = {}
    for instants in ("skip", "defer"):
        made = upcoming(schedule(nightly(instants), cron="0 2,5 * * *"), START, START, 2)
        texts[instants] = [instant.window for instant in made]
    assert texts == {"skip": ["not in the window w", "not in the window w"], "defer": ["after the window w", None]}


def test_openings_of_all_windows() -> None:
    """The openings of all windows are listed in the order of their beginnings."""
    windows = Windows(
        [nightly().window, WindowDefinition(name="x", start=at(2), end=at(30))], {"w": ["a"], "x": ["a", "b"]}
    )
    listed = [(opening.window.name, opening.start) for opening in upcoming_openings(windows, START, at(26))]
    assert listed == [("w", at(1)), ("x", at(2)), ("w", at(25))]
    assert windows.holding("b", at(1)) is None
    assert windows.holding("a", at(2)) == (at(1), at(30))
    assert [opening.window.name for opening in windows.open_at(at(2))] == ["w", "x"]
    assert windows.opening("b", at(2)) == Opening(windows.all["x"].window, at(2), at(30))
