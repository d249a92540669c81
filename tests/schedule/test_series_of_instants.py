"""All instants of a task as one series."""

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
    return [(one.local, one.note) for one in upcoming(schedule, None, ms(start), count)]


def test_several_expressions_are_one_schedule(make: Make) -> None:
    """In order; what two of them have is one instant."""
    found = locals_of(make("cron = ['0 3 * * *', '0 */3 * * *']"), "2026-07-01T00:30+02:00", 5)
    assert found == [(f"2026-07-01T{hour:02d}:00:00+02:00", None) for hour in (3, 6, 9, 12, 15)]


def test_nothing_is_upcoming_without_a_schedule(make: Make) -> None:
    """A task that only people run has no instants; a service has no schedule at all."""
    assert upcoming(make(""), None, 0, 5) == []
    assert upcoming(Schedule(None), None, 0, 5) == []


def test_what_one_expression_skips_another_may_run(make: Make) -> None:
    """02:30 is skipped in the gap; the run at 03:00, which the other expression wants, is not."""
    schedule = make("cron = ['30 2 * * *', '0 * * * *']\ndst_gap = 'skip'")
    found = list(islice(schedule.occurrences(ms("2026-03-29T00:30Z")), 2))
    assert [(one.at, one.runs) for one in found] == [
        (ms("2026-03-29T01:00Z"), True),
        (ms("2026-03-29T02:00Z"), True),
    ]


@pytest.mark.parametrize(
    ("keys", "start", "expected"),
    [
        ("", "2026-03-28T12:00Z", [("2026-03-29T03:00:00+02:00", "gap"), ("2026-03-30T02:30:00+02:00", None)]),
        ("dst_gap = 'skip'", "2026-03-28T12:00Z", [("2026-03-30T02:30:00+02:00", None)]),
        ("", "2026-10-24T12:00Z", [("2026-10-25T02:30:00+02:00", "repeated"), ("2026-10-26T02:30:00+01:00", None)]),
        ("dst_overlap = 'second'", "2026-10-24T12:00Z", [("2026-10-25T02:30:00+01:00", "repeated")]),
    ],
)
def test_only_what_runs_is_upcoming(make: Make, keys: str, start: str, expected: list[tuple[str, str | None]]) -> None:
    """With what daylight saving time does to it."""
    assert locals_of(make(f"cron = '30 2 * * *'\n{keys}"), start, len(expected)) == expected


def test_what_was_accounted_for_is_not_upcoming(make: Make) -> None:
    """Also when the clock shows an earlier time."""
    schedule = make("cron = '0 * * * *'")
    mark = ms("2026-07-01T12:00Z")
    assert upcoming(schedule, mark, mark - 90 * MINUTE, 1)[0].at == mark + 60 * MINUTE


def test_jitter_is_the_task_s_own(make: Make) -> None:
    """Within its window, always the same for a name, and different from name to name."""
    offsets = {name: make("cron = '@daily'\njitter = '1h'", name).offset_ms for name in "abcdefgh"}
    assert all(0 <= offset < 60 * MINUTE for offset in offsets.values())
    assert len(set(offsets.values())) == len(offsets)
    assert offsets["a"] == make("cron = '@hourly'\njitter = '1h'", "a").offset_ms
    assert make("cron = '@daily'", "a").offset_ms == 0


def test_what_jitter_delays_is_still_upcoming(make: Make) -> None:
    """Until its run starts."""
    schedule = make("cron = '@hourly'\njitter = '1h'")
    mark, at = ms("2026-07-01T11:00Z"), ms("2026-07-01T12:00Z")
    found = upcoming(schedule, mark, at + schedule.offset_ms - 1, 1)[0]
    assert (found.at, found.starts_at) == (at, at + schedule.offset_ms)
    assert upcoming(schedule, mark, at + schedule.offset_ms, 1)[0].at == at + 60 * MINUTE


def test_an_interval_is_counted_from_the_mark(make: Make) -> None:
    """Whenever it is looked at."""
    schedule = make("every = '90s'")
    assert [one.at for one in islice(schedule.occurrences(1000), 2)] == [91_000, 181_000]
    assert next(schedule.occurrences(1000, 90_999)).at == 91_000
    assert next(schedule.occurrences(1000, 91_000)).at == 181_000
    assert next(schedule.occurrences(1000, 500)).at == 91_000
