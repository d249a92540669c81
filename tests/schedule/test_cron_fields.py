"""Local times of expressions, compared with croniter's."""

import random
from datetime import UTC, datetime
from itertools import islice

import pytest
from croniter import croniter
from croniter.croniter import CroniterBadDateError, CroniterError

from supervisor.schedule.cron import validate
from supervisor.schedule.cron_fields import Pattern

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
DAYS = ("L", "15W", "1W", "31W", "1,L", "?", "1-31")
SPECIAL = ("5#3", "L5", "mon#1,fri#2", "?", "0#5", "L0", "0-7", "0-6", "1,*")
COUNT = 12


def field(choose: random.Random, low: int, high: int, names: list[str], special: tuple[str, ...]) -> str:
    """Return a field in a random form."""

    def value() -> str:
        return choose.choice(names) if names and choose.random() < 0.3 else str(choose.randint(low, high))

    return choose.choice(
        (
            "*",
            f"*/{choose.randint(2, high)}",
            choose.choice(special or ("*",)),
            ",".join(value() for _ in range(choose.randint(1, 3))),
            f"{value()}-{value()}",
            f"{value()}-{value()}/{choose.randint(1, 5)}",
        )
    )


def expression(choose: random.Random) -> str:
    fields = [
        field(choose, 0, 59, [], ()),
        field(choose, 0, 23, [], ()),
        field(choose, 1, 31, [], DAYS),
        field(choose, 1, 12, MONTHS, ()),
        field(choose, 0, 7, WEEKDAYS, SPECIAL),
    ]
    if choose.random() < 0.3:
        fields.insert(0, field(choose, 0, 59, [], ()))
    return " ".join(fields)


def theirs(text: str, after: int) -> list[int]:
    """Return croniter's times, which may be fewer than `COUNT`."""
    times = croniter(text, float(after), implement_cron_bug=True, second_at_beginning=True)
    times_found: list[int] = []
    while len(times_found) < COUNT:
        try:
            times_found.append(int(times.get_next(float)))
        except CroniterBadDateError:
            break
    return times_found


def backward(part: str) -> bool:
    """Return whether croniter misreads a range: of one value, or with steps beyond the end of the field."""
    ends, _, step = part.partition("/")
    low, dash, high = ends.partition("-")
    numbers = {name: number for names in (["", *MONTHS], WEEKDAYS) for number, name in enumerate(names)}
    first, last = (numbers.get(end, int(end) if end.isdigit() else 0) for end in (low, high))
    return bool(dash) and (first == last or (first, last) == (7, 0) or (bool(step) and first > last))


def full(text: str) -> bool:
    """Return whether croniter reads a field with all values, such as ``1-31``, as ``*``."""
    *_, day, _month, weekday = text.split()
    try:
        read = croniter(text, 0.0, second_at_beginning=True).expanded
    except CroniterError:
        return False
    return any("*" in read[place] and field[0] not in "*?" for place, field in ((2, day), (4, weekday)))


def comparable(text: str) -> bool:
    """Return whether croniter combines days of month and week as Vixie cron does, even with # and W."""
    *_, day, _month, weekday = text.split()
    if any(map(backward, text.replace(",", " ").split())):
        return False
    wild = day[0] in "*?" or weekday[0] in "*?"
    if not wild and full(text):
        return False
    return wild or not ("#" in weekday or "L" in weekday or "W" in day)


def test_same_times_as_croniter() -> None:
    """Ringward and croniter agree on the times from any moment on, and refuse the same expressions."""
    choose = random.Random()
    compared = 0
    while compared < 500:
        text, after = expression(choose), choose.randrange(2_000_000_000)
        if not comparable(text):
            continue
        compared += 1
        try:
            expected = theirs(text, after)
        except CroniterError:
            assert validate(text), text
            continue
        assert list(islice(Pattern(text).local_times(after), COUNT)) == expected, (text, after)


def dates(text: str, count: int) -> list[str]:
    after = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) - 1
    seconds_found = islice(Pattern(text).local_times(after), count)
    return [datetime.fromtimestamp(second, UTC).strftime("%m-%d") for second in seconds_found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 13 * fri#3", ["01-13", "01-16", "02-13", "02-20"]),
        ("0 0 1 * L5", ["01-01", "01-30", "02-01", "02-27"]),
        ("0 0 L * mon#1", ["01-05", "01-31", "02-02", "02-28"]),
    ],
)
def test_day_and_nth_weekday(text: str, expected: list[str]) -> None:
    """A day of the month and an nth weekday that are both restricted are joined by "or", as other days are."""
    assert dates(text, len(expected)) == expected
