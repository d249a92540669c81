"""Local times of expressions, compared with cronsim's, and the faults of croniter that Ringward puts right."""

import random
import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice

import pytest
from croniter import CroniterError, croniter
from cronsim import CronSim, CronSimError

from supervisor.schedule.cron import validate
from supervisor.schedule.cron_fields import CronPattern

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
DAYS = ("L", "1,L", "?", "1-31")
SPECIAL = ("5#3", "L5", "mon#1,fri#2", "?", "0#5", "L0", "0-7", "0-6", "1,*")
BOUNDS = ((0, 59, list[str]()), (0, 23, list[str]()), (1, 31, list[str]()), (1, 12, MONTHS), (0, 6, WEEKDAYS))
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


def forward(part: str, low: int, high: int, names: list[str]) -> str:
    """Return a part as cronsim reads it: a range over the end of the field as a list, L5 as 5L, and ? as *."""
    if part in ("?", "*"):
        return "*"
    ends, _, step = part.partition("/")
    first, dash, last = ends.partition("-")
    if not dash:
        return f"{part[1:]}L" if part[0] == "L" and part[1:] else part
    start, end = (low + names.index(text) if text in names else int(text) for text in (first, last))
    if start == end:
        return str(start)
    if start < end:
        return f"{start}-{end}/{step}" if step else f"{start}-{end}"
    return ",".join(map(str, [*range(start, high + 1), *range(low, end + 1)][:: int(step or 1)]))


def theirs(text: str, after: int) -> list[int]:
    """Return cronsim's times, which may be fewer than `COUNT`."""
    fields = [
        ",".join(forward(part, *bounds) for part in field.split(","))
        for field, bounds in zip(text.split(), [(0, 59, list[str]()), *BOUNDS][-len(text.split()) :], strict=True)
    ]
    start = datetime.fromtimestamp(after, UTC).replace(tzinfo=None)
    times = islice(CronSim(" ".join(fields), start), COUNT)
    return [int(time.replace(tzinfo=UTC).timestamp()) for time in times]


def test_same_times_as_cronsim() -> None:
    """Ringward and cronsim agree on the times from any moment on, and refuse the same expressions."""
    choose = random.Random()
    for _ in range(500):
        text, after = expression(choose), choose.randrange(2_000_000_000)
        try:
            expected = theirs(text, after)
        except CronSimError:
            assert validate(text), text
            continue
        assert list(islice(CronPattern(text).local_times(after), COUNT)) == expected, (text, after)


def dates(text: str, count: int) -> list[str]:
    after = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) - 1
    seconds_found = islice(CronPattern(text).local_times(after), count)
    return [datetime.fromtimestamp(second, UTC).strftime("%m-%d") for second in seconds_found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 13 * fri#3", ["01-13", "01-16", "02-13", "02-20"]),
        ("0 0 1 * L5", ["01-01", "01-30", "02-01", "02-27"]),
        ("0 0 L * mon#1", ["01-05", "01-31", "02-02", "02-28"]),
        ("0 0 31W * *", ["01-30", "03-31", "05-29", "07-31"]),
        ("0 0 30W * *", ["01-30", "03-30", "04-30", "05-29"]),
    ],
)
def test_day_and_nth_weekday(text: str, expected: list[str]) -> None:
    """A day of the month and an nth weekday that are both restricted are joined by "or", as other days are.

    A working day nearest to a day leaves out the months without that day.
    """
    assert dates(text, len(expected)) == expected


@pytest.mark.parametrize(
    ("index", "part", "read"),
    [
        (0, "5-5", ["*"]),
        (0, "5-5/30", [0, 30]),
        (4, "7-0", ["*"]),
        (2, "31-L", ["*"]),
        (1, "22-2/3", [2, 22]),
        (4, "1-5#2", None),
        (4, "mon#1,*", ["*", 1]),
    ],
)
def test_faults_of_croniter(index: int, part: str, read: list[object] | None) -> None:
    """The package misreads or refuses what `cron_fields` puts right; where this test fails, its part there can go."""
    fields = ["*"] * 5
    fields[index] = part
    try:
        found = croniter.expand(" ".join(fields))[0][index]
    except CroniterError:
        found = None
    assert found == read


def test_croniter_starts_a_program() -> None:
    """Importing croniter starts a program; if this test fails, `cron_fields` can import it like any other package."""
    code = "import sys; sys.addaudithook(lambda event, _: print(event)); import croniter"
    told = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert "subprocess.Popen" in told.split()
