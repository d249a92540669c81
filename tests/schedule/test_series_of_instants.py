"""The instants of a task as one series."""

from collections.abc import Callable
from datetime import datetime
from itertools import islice
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.schedule.instants import Schedule, upcoming

MINUTE = 60_000
Make = Callable[..., Schedule]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def schedule(keys: str, name: str = "t") -> Schedule:
        path = tmp_path / "ringward.toml"
        path.write_text(f"[tasks.{name}]\nrun = 'true'\ntimezone = 'Europe/Prague'\n{keys}\n")
        path.chmod(0o600)
        return Schedule(load(str(path), {}).tasks[name])

    return schedule


def locals_of(schedule: Schedule, start: str, count: int) -> list[tuple[str, str | None]]:
    return [(instant.local, instant.note) for instant in upcoming(schedule, None, ms(start), count)]


def test_several_expressions(make: Make) -> None:
    """Several expressions are one ordered schedule, and an instant that two of them have occurs once."""
    instants_shown = locals_of(make("cron = ['0 3 * * *', '0 */3 * * *']"), "2026-07-01T00:30+02:00", 5)
    assert instants_shown == [(f"2026-07-01T{hour:02d}:00:00+02:00", None) for hour in (3, 6, 9, 12, 15)]


def test_no_schedule(make: Make) -> None:
    """A task without a schedule and a service have no upcoming instants."""
    assert upcoming(make(""), None, 0, 5) == []
    assert upcoming(Schedule(None), None, 0, 5) == []


def test_skip_applies_to_one_expression(make: Make) -> None:
    """An instant that one expression skips in the gap still runs if another expression has it."""
    schedule = make("cron = ['30 2 * * *', '0 * * * *']\ndst_gap = 'skip'")
    instants_found = list(islice(schedule.occurrences(ms("2026-03-29T00:30Z")), 2))
    assert [(instant.at, instant.runs) for instant in instants_found] == [
        (ms("2026-03-29T01:00Z"), True),
        (ms("2026-03-29T02:00Z"), True),
    ]


@pytest.mark.parametrize("crons", ["['30 2 * * *', '0 */3 * * *']", "['0 */3 * * *', '30 2 * * *']"])
def test_end_of_the_gap_is_also_a_time(make: Make, crons: str) -> None:
    """A local time that one expression has, and that ends the gap of another one, occurs once, without a note."""
    instants_shown = locals_of(make(f"cron = {crons}"), "2026-03-29T00:30Z", 2)
    assert instants_shown == [("2026-03-29T03:00:00+02:00", None), ("2026-03-29T06:00:00+02:00", None)]


@pytest.mark.parametrize(
    ("keys", "start", "expected"),
    [
        ("", "2026-03-28T12:00Z", [("2026-03-29T03:00:00+02:00", "gap"), ("2026-03-30T02:30:00+02:00", None)]),
        ("dst_gap = 'skip'", "2026-03-28T12:00Z", [("2026-03-30T02:30:00+02:00", None)]),
        ("", "2026-10-24T12:00Z", [("2026-10-25T02:30:00+02:00", "repeated"), ("2026-10-26T02:30:00+01:00", None)]),
        ("dst_overlap = 'second'", "2026-10-24T12:00Z", [("2026-10-25T02:30:00+01:00", "repeated")]),
    ],
)
def test_upcoming_during_dst(make: Make, keys: str, start: str, expected: list[tuple[str, str | None]]) -> None:
    """Only instants that run are upcoming, each with its note about daylight saving time."""
    assert locals_of(make(f"cron = '30 2 * * *'\n{keys}"), start, len(expected)) == expected


def test_processed_instants(make: Make) -> None:
    """Processed instants are not upcoming, even if the clock shows an earlier time."""
    schedule = make("cron = '0 * * * *'")
    mark = ms("2026-07-01T12:00Z")
    assert upcoming(schedule, mark, mark - 90 * MINUTE, 1)[0].at == mark + 60 * MINUTE


def test_jitter(make: Make) -> None:
    """The jitter of a task is within its window, constant for its name, and different for other names."""
    offsets = {name: make("cron = '@daily'\njitter = '1h'", name).offset_ms for name in "abcdefgh"}
    assert all(0 <= offset < 60 * MINUTE for offset in offsets.values())
    assert len(set(offsets.values())) == len(offsets)
    assert offsets["a"] == make("cron = '@hourly'\njitter = '1h'", "a").offset_ms
    assert make("cron = '@daily'", "a").offset_ms == 0


def test_upcoming_during_jitter(make: Make) -> None:
    """An instant is upcoming until its delayed run starts."""
    schedule = make("cron = '@hourly'\njitter = '1h'")
    mark, at = ms("2026-07-01T11:00Z"), ms("2026-07-01T12:00Z")
    next_instant = upcoming(schedule, mark, at + schedule.offset_ms - 1, 1)[0]
    assert (next_instant.at, next_instant.starts_at) == (at, at + schedule.offset_ms)
    assert upcoming(schedule, mark, at + schedule.offset_ms, 1)[0].at == at + 60 * MINUTE


def test_interval(make: Make) -> None:
    """An interval counts from its mark, whenever the schedule is read."""
    schedule = make("every = '90s'")
    assert [instant.at for instant in islice(schedule.occurrences(1000), 2)] == [91_000, 181_000]
    assert next(schedule.occurrences(1000, 90_999)).at == 91_000
    assert next(schedule.occurrences(1000, 91_000)).at == 181_000
    assert next(schedule.occurrences(1000, 500)).at == 91_000
