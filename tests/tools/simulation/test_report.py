"""Counts of a simulation."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from supervisor.config.load import load
from supervisor.tools.simulation import report
from supervisor.tools.simulation.report import DAY_MS, TooManyInstants, simulate

PRAGUE = ZoneInfo("Europe/Prague")
START_MS = int(datetime(2026, 10, 25, tzinfo=PRAGUE).timestamp()) * 1000


def played(directory: Path, text: str, hours: int, **durations_ms: int) -> report.Report:
    path = directory / "ringward.toml"
    path.write_text(f'[daemon]\ntimezone = "Europe/Prague"\n{text}')
    path.chmod(0o600)
    return simulate(load(str(path)), START_MS, START_MS + hours * 3_600_000, durations_ms, {})


def test_day_with_a_repeated_hour(tmp_path: Path) -> None:
    """Hours follow the clock, one of them occurs twice, and repeated and omitted runs are listed by task."""
    text = '[tasks.a]\nrun = "x"\ncron = "30 2 * * *"\n[tasks.b]\nrun = "x"\ncron = "*/30 * * * *"\n'
    fields = played(tmp_path, text, 25, b=20 * 60_000).to_dict()
    assert fields["clockChanges"] == [
        {
            "date": "2026-10-25",
            "task": name,
            "timezone": "Europe/Prague",
            "movedToGapEnd": 0,
            "repeated": repeated,
            "dst_skipped": skipped,
        }
        for name, repeated, skipped in (("a", 1, 1), ("b", 4, 0))
    ]
    assert [hour["starts"] for hour in fields["hours"]] == [2, 2, 2.5, *[2] * 21]
    assert fields["hours"][2]["mostStarts"] == 3
    assert fields["hours"][5]["running"] == pytest.approx(2 / 3)
    assert fields["collisions"] == [{"tasks": ["a", "b"], "count": 1, "first": "2026-10-25T00:30:00.000Z"}]
    assert [(task["name"], task["times"], task["run"], task["dst_skipped"]) for task in fields["tasks"]] == [
        ("a", 2, 1, 1),
        ("b", 50, 50, 0),
    ]


def test_run_over_many_hours(tmp_path: Path) -> None:
    """A run counts in each of its hours, even if it continues beyond the end."""
    text = '[tasks.a]\nrun = "x"\ncron = "30 4,23 * * *"\n'
    fields = played(tmp_path, text, 25, a=150 * 60_000).to_dict()
    assert [hour["running"] for hour in fields["hours"][3:9]] == [0, 0.5, 1, 1, 0, 0]
    assert fields["hours"][23]["running"] == 0.5


def test_runs_of_years(tmp_path: Path) -> None:
    """Only hours of the report are counted, however long the runs take and wait."""
    text = '[tasks.a]\nrun = "x"\ncron = "0 * * * *"\non_overlap = "queue"\nqueue_max = 100\n'
    played_report = played(tmp_path, text, 25, a=10 * 366 * DAY_MS)
    hours = [(START_MS // 3_600_000) + number for number in range(25)]
    assert sorted(played_report.busy_ms) == hours
    assert {played_report.busy_ms[hour] for hour in hours} == {3_600_000}


def test_units_without_a_schedule(tmp_path: Path) -> None:
    """Tasks without a schedule, and services, are omitted."""
    text = '[tasks.a]\nrun = "x"\n[services.s]\nrun = "x"\n'
    assert played(tmp_path, text, 25).to_dict()["tasks"] == []


def test_too_many_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that would take too long stops after its first day."""
    monkeypatch.setattr(report, "MAX_TIMES", 10_000)
    text = '[tasks.a]\nrun = "x"\ncron = "* * * * *"\n'
    played(tmp_path, text, 6 * DAY_MS // 3_600_000)
    with pytest.raises(TooManyInstants):
        played(tmp_path, text, 7 * DAY_MS // 3_600_000)


def test_window(tmp_path: Path) -> None:
    """Times in a window are closed, or become one run at its end."""
    window = '[windows.w]\ncron = "0 6 * * *"\nduration = "2h30m"\ninstants = "{}"\n'
    window += '[tasks.a]\nrun = "x"\ncron = "0 * * * *"\n'
    for instants, run, closed in (("skip", 22, 3), ("defer", 23, 0)):
        (task,) = played(tmp_path, window.format(instants), 25).to_dict()["tasks"]
        assert (task["run"], task["closed"]) == (run, closed)
    skipping = played(tmp_path, window.format("skip"), 25).to_dict()
    assert skipping["closedDays"] == [{"date": "2026-10-25", "task": "a", "calendar": "w", "times": 3}]
