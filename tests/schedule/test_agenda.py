"""The agenda of a task: runs, many runs of a day as one entry, and times in which none starts."""

import pytest

from supervisor.schedule.agenda import AgendaEntry, agenda
from supervisor.schedule.calendars import WEEKEND
from supervisor.schedule.windows import OPEN_END, Override, WindowDefinition, WindowTimes
from tests.schedule.test_windows import DAY, HOUR, MINUTE, START, at, ms, nightly, schedule

SATURDAY = ms("2026-06-06T00:00Z")


def entry(kind: str, begin: int, **more: object) -> AgendaEntry:
    return AgendaEntry(kind=kind, task="t", at=begin, **more)  # type: ignore[arg-type]


def test_runs() -> None:
    """Few runs of a day are entries of their own, up to the end of the span."""
    made = schedule(cron="0 6,18 * * *")
    assert list(agenda("t", made, START, START, at(30))) == [entry("run", at(hours)) for hours in (6, 18)]
    assert [one.at for one in agenda("t", made, START, at(6), at(31))] == [at(hours) for hours in (6, 18, 30)]


@pytest.mark.parametrize(
    ("cron", "last", "count"),
    [("* * * * *", 1439 * MINUTE, 1440), ("*/5 8-17 * * *", 17 * HOUR + 55 * MINUTE, 120)],
)
def test_many_runs_of_a_day(cron: str, last: int, count: int) -> None:
    """Many runs of a day are one entry with their number."""
    first, second = agenda("t", schedule(cron=cron), START - DAY, START, START + 2 * DAY)
    assert (first.kind, first.until, first.count) == ("runs", START + last, count)
    assert (second.at, second.count) == (first.at + DAY, count)


def test_runs_each_second() -> None:
    """The number of very many runs is extrapolated."""
    (many,) = agenda("t", schedule(cron="* * * * * *"), START - DAY, START, START + DAY)
    assert many.until is not None
    assert (many.at, round(many.until, -3), many.count) == (START, START + DAY, 86_401)


def test_closed_times() -> None:
    """Closed days and windows are entries with their cause and their end, and split many runs."""
    window = WindowTimes(WindowDefinition(name="w", start=SATURDAY - 12 * HOUR, end=SATURDAY - 6 * HOUR))
    made = schedule(window, cron="*/10 * * * *", skip_on=(WEEKEND,))
    assert list(agenda("t", made, SATURDAY - DAY - 1, SATURDAY - DAY, SATURDAY + 2 * DAY + 1)) == [
        entry("runs", SATURDAY - DAY, until=SATURDAY - 12 * HOUR - 10 * MINUTE, count=72),
        entry("closed", SATURDAY - 12 * HOUR, until=SATURDAY - 6 * HOUR, cause="window: w"),
        entry("runs", SATURDAY - 6 * HOUR, until=SATURDAY - 10 * MINUTE, count=36),
        entry("closed", SATURDAY, until=SATURDAY + DAY, cause="calendar: weekend"),
        entry("closed", SATURDAY + DAY, until=SATURDAY + 2 * DAY, cause="calendar: weekend"),
        entry("run", SATURDAY + 2 * DAY),
    ]


def test_deferred_run() -> None:
    """A deferred run names its window."""
    made = schedule(nightly("defer"), cron="0 2 * * *")
    assert list(agenda("t", made, START, START, at(24))) == [entry("run", at(4.5), cause="after the window w")]


def test_window_without_end() -> None:
    """A window without an end closes the rest of the span."""
    window = WindowTimes(WindowDefinition(name="w"))
    window.override([Override(window="w", start=at(1), end=OPEN_END, open=True, by="anna")])
    made = schedule(window, cron="30 * * * *")
    closed = entry("closed", at(1.5), until=at(6), cause="window: w")
    assert list(agenda("t", made, START, START, at(6))) == [entry("run", at(0.5)), closed]
