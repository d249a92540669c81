from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from supervisor.schedule.clock_changes import DstGap, DstOverlap
from supervisor.schedule.cron import Cron, local_text, validate

PRAGUE = ZoneInfo("Europe/Prague")


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def instants(expression: str, zone: ZoneInfo, start: str, count: int) -> list[str]:
    occurrences = (occurrence for occurrence in Cron(expression, zone).occurrences(ms(start)) if occurrence.runs)
    return [
        datetime.fromtimestamp(instant.at / 1000, UTC).strftime("%d %H:%M") for instant in islice(occurrences, count)
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "@daily",
        "*/15 1-5 * JAN,FEB mon-fri",
        "0 0 L * *",
        "5 4 * * 5#3",
        "*/10 0 3 * * *",
        "0 0 31 2 mon",
        "0 8 * * 1-5#2",
    ],
)
def test_valid_expressions(expression: str) -> None:
    """Expressions of Vixie cron and its usual extensions are accepted."""
    assert validate(expression) is None


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("* * * *", "instead of 5"),
        ("* * * * * * *", "instead of 5"),
        ("@reboot", "run_on_start"),
        ("@every 5m", 'every = "5m"'),
        ("@fortnightly", "known are @yearly"),
        ("@Dayly", "did you mean @daily?"),
        ("60 * * * * *", "60: second must be 0-59"),
        ("0 0 31 2 *", "never"),
        ("0 0 31 2,4,6,9,11 *", "never"),
        ("0 0 0 30 2 *", "never"),
        ("60 * * * *", "60: minute must be 0-59"),
        ("0 24 * * *", "24: hour must be 0-23"),
        ("0 0 1,,2 * *", "1,,2: day of the month must be 1-31"),
        ("0 0 1 13 *", "13: month must be 1-12"),
        ("0 0 4-0 * *", "4-0: day of the month must be 1-31"),
        ("0 0 * * mon#1,*", "mon#1,*: day of the week must be 0-7"),
        ("٣ * * * *", "٣: minute must be 0-59"),
        ("*/0 * * * *", "*/0: a step must be at least 1"),
        ("0 0 1,15W * *", "a single day with W such as 15W"),
        ("0 0 * * friL", "L5 (the last one)"),
        ("0 0 * * 5#6", "5#6: day of the week must be 0-7"),
        ("CRON_TZ=Asia/Tokyo 0 3 * * *", 'write timezone = "Asia/Tokyo"'),
        ("0 0 30 2 *", "never"),
        ("*/99 * * * *", "step"),
        ("R R * * *", "write the time"),
        ("H * * * *", "write the time"),
        ("0~30 2 * * *", "~ (hashed and random times)"),
        ("~ 2 * * *", "write the time"),
        ("a b c d e", "a: minute must be"),
        ("x" * 300, "longer"),
        ("", "instead of 5"),
    ],
)
def test_invalid_expressions(expression: str, word: str) -> None:
    """An impossible expression is refused with the reason."""
    assert word in (validate(expression) or "")


def test_time_in_the_gap() -> None:
    """02:30 does not exist on 29 March 2026 in Prague, and runs at 03:00, 01:00 UTC."""
    assert instants("30 2 * * *", PRAGUE, "2026-03-28T12:00+00:00", 2) == ["29 01:00", "30 00:30"]


def test_repeated_time() -> None:
    """02:30 exists twice on 25 October 2026 in Prague, and runs only the first time."""
    assert instants("30 2 * * *", PRAGUE, "2026-10-24T12:00+00:00", 2) == ["25 00:30", "26 01:30"]


def test_steps_follow_real_time() -> None:
    """Every half hour means every half hour, even through both changes of the clock."""
    expected = ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "25 02:00"]
    assert instants("*/30 * * * *", PRAGUE, "2026-10-24T23:59+00:00", 5) == expected
    expected = ["29 00:00", "29 00:30", "29 01:00", "29 01:30"]
    assert instants("*/30 * * * *", PRAGUE, "2026-03-28T23:59+00:00", 4) == expected


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 13 * fri", [5, 12, 13, 19]),
        ("0 0 */2 * fri", [5, 19, 3, 17]),
        ("0 0 13 * *", [13, 13, 13, 13]),
        ("0 0 * * fri", [5, 12, 19, 26]),
        ("0 0 1-7 * */7", [7, 5, 2, 6]),
        ("0 0 5,* * fri", [2, 3, 4, 5]),
        ("0 0 *,5 * fri", [5, 12, 19, 26]),
        ("0 0 1-31 * fri", [2, 3, 4, 5]),
        ("0 0 1-31/1 * fri", [2, 3, 4, 5]),
        ("0 0 13 * 0-6", [2, 3, 4, 5]),
        ("0 0 13 * 1,*", [2, 3, 4, 5]),
        ("0 0 13 * *,1", [13, 13, 13, 13]),
    ],
)
def test_both_days(expression: str, days: list[int]) -> None:
    """Restricted days of month and week are alternatives.

    If one of them begins with *, both must match, as in Vixie cron.
    """
    texts = instants(expression, ZoneInfo("UTC"), "2026-06-01T12:00+00:00", 4)
    assert [int(text[:2]) for text in texts] == days


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        ("0 3-3 * * *", ["01 03:00", "02 03:00", "03 03:00"]),
        ("0 0 * * mon-mon", ["01 00:00", "08 00:00", "15 00:00"]),
        ("0 0 * * 7-7", ["07 00:00", "14 00:00", "21 00:00"]),
        ("0 0 5-5/2 * *", ["05 00:00", "05 00:00", "05 00:00"]),
        ("005-005 0 1-1/01 * *", ["01 00:05", "01 00:05", "01 00:05"]),
        ("0 0 * * fri-fri#2", ["12 00:00", "10 00:00", "14 00:00"]),
        ("0 22-2/3 * * *", ["01 01:00", "01 22:00", "02 01:00"]),
        ("50-27/14 0 * * *", ["01 00:04", "01 00:18", "01 00:50"]),
    ],
)
def test_ranges(expression: str, times: list[str]) -> None:
    """A range of one value is that value, and steps continue beyond the end of a field."""
    assert validate(expression) is None
    assert instants(expression, ZoneInfo("UTC"), "2026-05-31T23:59:59+00:00", 3) == times


def test_seconds() -> None:
    """Six fields begin with the second, and a time of day in the gap still runs once."""
    occurrences = Cron("*/20 59 1 * * *", PRAGUE).occurrences(ms("2026-06-01T00:00+02:00"))
    assert [instant.at for instant in islice(occurrences, 4)] == [
        ms(f"2026-06-{day:02d}T01:59:{second:02d}+02:00") for day, second in ((1, 0), (1, 20), (1, 40), (2, 0))
    ]
    assert instants("*/20 30 2 * * *", PRAGUE, "2026-03-28T12:00+00:00", 2) == ["29 01:00", "30 00:30"]


def shown(gap: DstGap, overlap: DstOverlap, start: str, count: int) -> list[tuple[str, bool, str | None]]:
    occurrences = Cron("30 2 * * *", PRAGUE, gap, overlap).occurrences(ms(start))
    return [(local_text(instant.at, PRAGUE)[8:], instant.runs, instant.note) for instant in islice(occurrences, count)]


@pytest.mark.parametrize(("gap", "runs"), [("run", True), ("skip", False)])
def test_dst_gap(gap: DstGap, runs: bool) -> None:
    """A time that does not exist is scheduled at the end of the gap, and runs unless dst_gap is skip."""
    instants_shown = shown(gap, "first", "2026-03-28T12:00Z", 2)
    assert instants_shown == [("29T03:00:00+02:00", runs, "gap"), ("30T02:30:00+02:00", True, None)]


@pytest.mark.parametrize(
    ("overlap", "first", "second"), [("first", True, False), ("second", False, True), ("both", True, True)]
)
def test_dst_overlap(overlap: DstOverlap, first: bool, second: bool) -> None:
    """Both instants of a repeated time are in the schedule, and dst_overlap decides which run."""
    assert shown("run", overlap, "2026-10-24T12:00Z", 3) == [
        ("25T02:30:00+02:00", first, "repeated"),
        ("25T02:30:00+01:00", second, "repeated"),
        ("26T02:30:00+01:00", True, None),
    ]


def test_time_at_the_end_of_the_gap() -> None:
    """A time that the gap moves onto another time of the expression adds no second run."""
    instants_found = list(islice(Cron("30 2,3 * * *", PRAGUE).occurrences(ms("2026-03-28T12:00Z")), 2))
    assert [local_text(instant.at, PRAGUE)[11:16] for instant in instants_found] == ["03:00", "03:30"]
    instants_found = list(islice(Cron("0,30 2,3 * * *", PRAGUE, "skip").occurrences(ms("2026-03-28T12:00Z")), 2))
    assert [(local_text(instant.at, PRAGUE)[11:16], instant.runs, instant.note) for instant in instants_found] == [
        ("03:00", True, None),
        ("03:30", True, None),
    ]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        (
            "30 * * * *",
            "2026-10-25T00:00Z",
            [("2026-10-25T02:30:00+02:00", "repeated"), ("2026-10-25T02:30:00+01:00", "repeated")],
        ),
        ("0 * * * *", "2026-03-29T00:30Z", [("2026-03-29T03:00:00+02:00", None), ("2026-03-29T04:00:00+02:00", None)]),
    ],
)
def test_wildcard_expressions(expression: str, start: str, expected: list[tuple[str, str | None]]) -> None:
    """An expression with * runs in real time, and repeated times are marked."""
    instants_found = list(islice(Cron(expression, PRAGUE).occurrences(ms(start)), 2))
    assert [(local_text(instant.at, PRAGUE), instant.note) for instant in instants_found] == expected
    assert all(instant.runs for instant in instants_found)


@pytest.mark.parametrize(
    ("expression", "gap", "skipped"), [("*/15 2 * 3 L0", "run", False), ("30 2 * 3 L0", "skip", True)]
)
def test_always_in_the_gap(expression: str, gap: DstGap, skipped: bool) -> None:
    """If clock changes skip every time of an expression, no instant runs, and the search ends."""
    occurrences = list(Cron(expression, PRAGUE, gap).occurrences(ms("2026-06-01T00:00Z")))
    assert bool(occurrences) == skipped
    assert not any(instant.runs for instant in occurrences)


def test_yearly_gap() -> None:
    """A time that clock changes skip every year runs at the end of each gap."""
    assert instants("30 2 * 3 L0", PRAGUE, "2026-06-01T00:00Z", 3) == ["28 01:00", "26 01:00", "25 01:00"]
