from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from supervisor.scheduler.catchup import Gap, gap
from supervisor.scheduler.cron import Cron, next_instant, upcoming, validate

PRAGUE = ZoneInfo("Europe/Prague")


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def instants(expression: str, zone: ZoneInfo, start: str, count: int) -> list[str]:
    cron = Cron(expression, zone)
    found, at = [], ms(start)
    for _ in range(count):
        following = cron.after(at)
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%d %H:%M"))
    return found


@pytest.mark.parametrize(
    "expression", ["* * * * *", "@daily", "*/15 1-5 * JAN,FEB mon-fri", "0 0 L * *", "5 4 * * 5#3"]
)
def test_valid(expression: str) -> None:
    """What Vixie cron and its usual extensions accept is accepted."""
    assert validate(expression) is None


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("* * * *", "5 belong"),
        ("* * * * * *", "5 belong"),
        ("@reboot", "unknown macro"),
        ("60 * * * *", "range"),
        ("0 0 30 2 *", "never occur"),
        ("*/99 * * * *", "step"),
        ("R R * * *", "say the time"),
        ("H * * * *", "say the time"),
        ("a b c d e", "not acceptable"),
        ("x" * 300, "longer"),
        ("", "5 belong"),
    ],
)
def test_invalid(expression: str, word: str) -> None:
    """What cannot be meant is refused, and the reason says what is wrong."""
    assert word in (validate(expression) or "")


def test_a_time_in_the_gap_runs_at_its_end() -> None:
    """02:30 does not exist on 29 March 2026 in Prague: that day it runs at 03:00, 01:00 UTC."""
    assert instants("30 2 * * *", PRAGUE, "2026-03-28T12:00+00:00", 2) == ["29 01:00", "30 00:30"]


def test_a_repeated_time_runs_once() -> None:
    """02:30 exists twice on 25 October 2026 in Prague: it runs the first time only."""
    assert instants("30 2 * * *", PRAGUE, "2026-10-24T12:00+00:00", 2) == ["25 00:30", "26 01:30"]


def test_intervals_follow_real_time() -> None:
    """Every half hour means every half hour, also through both changes of the clock."""
    expected = ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "25 02:00"]
    assert instants("*/30 * * * *", PRAGUE, "2026-10-24T23:59+00:00", 5) == expected
    expected = ["29 00:00", "29 00:30", "29 01:00", "29 01:30"]
    assert instants("*/30 * * * *", PRAGUE, "2026-03-28T23:59+00:00", 4) == expected


def test_several_expressions_are_one_schedule() -> None:
    """The next instant of a task is the earliest of all its expressions."""
    crons = [Cron("0 3 * * *", PRAGUE), Cron("0 2 * * *", PRAGUE)]
    assert next_instant(crons, ms("2026-06-01T00:00+02:00")) == ms("2026-06-01T02:00+02:00")
    assert next_instant([], 0) is None


def test_a_gap_is_counted() -> None:
    """What passed unseen is counted, and its two newest instants are known."""
    crons = [Cron("0 * * * *", ZoneInfo("UTC"))]
    last, now = ms("2026-06-01T00:00+00:00"), ms("2026-06-01T05:30+00:00")
    assert gap(crons, last, now) == Gap(5, ms("2026-06-01T05:00+00:00"), ms("2026-06-01T04:00+00:00"))
    assert gap(crons, ms("2026-06-01T05:00+00:00"), now) is None
    assert gap(crons, ms("2026-06-01T04:00+00:00"), now) == Gap(1, ms("2026-06-01T05:00+00:00"), None)


def test_upcoming() -> None:
    """The instants of several expressions in order, each once, with their local times."""
    crons = [Cron("0 3 * * *", PRAGUE), Cron("0 */3 * * *", PRAGUE)]
    found = upcoming(crons, ms("2026-07-01T00:30+02:00"), 5)
    assert [one.local for one in found] == [f"2026-07-01T{hour:02d}:00:00+02:00" for hour in (3, 6, 9, 12, 15)]
    assert [one.at for one in found] == [ms(one.local) for one in found]
    assert {one.note for one in found} == {None}
    assert upcoming([], ms("2026-07-01T00:00Z"), 5) == []


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        (
            "30 2 * * *",
            "2026-03-28T12:00Z",
            [("2026-03-29T03:00:00+02:00", "gap"), ("2026-03-30T02:30:00+02:00", None)],
        ),
        (
            "30 2 * * *",
            "2026-10-24T12:00Z",
            [("2026-10-25T02:30:00+02:00", "repeated"), ("2026-10-26T02:30:00+01:00", None)],
        ),
        (
            "30 * * * *",
            "2026-10-25T00:00Z",
            [("2026-10-25T02:30:00+02:00", "repeated"), ("2026-10-25T02:30:00+01:00", "repeated")],
        ),
        ("0 * * * *", "2026-03-29T00:30Z", [("2026-03-29T03:00:00+02:00", None), ("2026-03-29T04:00:00+02:00", None)]),
    ],
)
def test_notes(expression: str, start: str, expected: list[tuple[str, str | None]]) -> None:
    """An instant whose local time does not exist, or comes twice, says so."""
    found = upcoming([Cron(expression, PRAGUE)], ms(start), 2)
    assert [(one.local, one.note) for one in found] == expected
