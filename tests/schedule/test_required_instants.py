"""The instants of other tasks that a scheduled run waits for."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.schedule.instants import Schedule
from supervisor.schedule.required_instants import previous_instant, required_instant

HOUR = 3_600_000
Make = Callable[[str], Schedule]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def schedule(keys: str) -> Schedule:
        path = tmp_path / "ringward.toml"
        path.write_text(f"[tasks.t]\nrun = 'true'\ntimezone = 'Europe/Prague'\n{keys}\n")
        path.chmod(0o600)
        return Schedule(load(str(path), {}).tasks["t"])

    return schedule


def needed(own: Schedule, required: Schedule, at: str) -> str | None:
    """Return the required instant in UTC."""
    previous = previous_instant(own, None, ms(at))
    found = required_instant(required, None, 0, previous, ms(at))
    return None if found is None else datetime.fromtimestamp(found / 1000).astimezone().isoformat()


def same(found: str | None, expected: str) -> bool:
    return found is not None and ms(found) == ms(expected)


def test_across_midnight(make: Make) -> None:
    """A run after midnight requires the instant of the evening before, and the newest one of several."""
    own = make("cron = '0 1 * * *'")
    assert same(needed(own, make("cron = '0 23 * * *'"), "2026-06-02T01:00+02:00"), "2026-06-01T23:00+02:00")
    assert same(needed(own, make("cron = '0 */6 * * *'"), "2026-06-02T01:00+02:00"), "2026-06-02T00:00+02:00")
    assert same(needed(own, make("cron = '0 1 * * *'"), "2026-06-02T01:00+02:00"), "2026-06-02T01:00+02:00")


def test_nothing_required(make: Make) -> None:
    """A weekly task requires nothing of a run on another day; a run at the own previous instant is not new."""
    own = make("cron = '0 1 * * *'")
    assert needed(own, make("cron = '0 23 * * sun'"), "2026-06-03T01:00+02:00") is None
    assert same(needed(own, make("cron = '0 23 * * sun'"), "2026-06-01T01:00+02:00"), "2026-05-31T23:00+02:00")
    assert needed(make("cron = '0 * * * *'"), make("cron = '0 1 * * *'"), "2026-06-01T02:00+02:00") is None


@pytest.mark.parametrize(("gap", "expected"), [("run", "2026-03-29T03:00+02:00"), ("skip", None)])
def test_clock_set_forward(make: Make, gap: str, expected: str | None) -> None:
    """In a gap, an instant that runs at its end is required, and one that is skipped is not."""
    found = needed(
        make("cron = '0 6 * * *'"), make(f"cron = '30 2 * * *'\ndst_gap = '{gap}'"), "2026-03-29T06:00+02:00"
    )
    assert found is None if expected is None else same(found, expected)


def test_clock_set_back(make: Make) -> None:
    """Of a repeated local time, the instant that runs is required."""
    required = make("cron = '30 2 * * *'")
    assert same(needed(make("cron = '0 6 * * *'"), required, "2026-10-25T06:00+01:00"), "2026-10-25T02:30+02:00")


def test_closed_days(make: Make) -> None:
    """A closed day requires nothing; if the own task rests, its next run requires the newest instant since."""
    daily, workdays = make("cron = '0 6 * * *'"), make("cron = '0 5 * * *'\nskip_on = ['weekend']")
    assert needed(daily, workdays, "2026-06-06T06:00+02:00") is None
    resting = make("cron = '0 6 * * *'\nskip_on = ['weekend']")
    assert same(needed(resting, make("cron = '0 5 * * sat'"), "2026-06-08T06:00+02:00"), "2026-06-06T05:00+02:00")


def test_intervals(make: Make) -> None:
    """Intervals are counted from the last instant, backwards too; a long period takes few steps."""
    every = make("every = '2h'")
    assert previous_instant(every, 2 * HOUR, 100 * HOUR) == 98 * HOUR
    for mark in (1, 11, 21):
        assert required_instant(every, 2 * HOUR, mark * HOUR, 8 * HOUR, 12 * HOUR) == 11 * HOUR
    own, second = make("cron = '0 0 1 1 *'"), make("every = '1s'")
    at = ms("2026-01-01T00:00+01:00")
    assert required_instant(second, 1000, at, previous_instant(own, None, at), at) == at
