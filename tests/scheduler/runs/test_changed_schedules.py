"""Changes of schedules, and the parameters of their expressions: no instant runs twice, and none is lost."""

import json
from typing import Any

import pytest

from store.tasks import update_task
from supervisor.config.public_definition import definition_text
from supervisor.scheduler.control.unit_operations import UnitOperations
from tests.scheduler.control.operations import operations_of
from tests.scheduler.runs.schedules import DAY, HOUR, MINUTE, START, Make, Schedules, ms, next_run, task


def test_changed_schedule(make_schedules: Make) -> None:
    """A changed schedule does not catch up with the past, and instants do not run twice when the clock is behind."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.until(START + 2 * HOUR)
    harness.rewrite(task('cron = "*/5 * * * *"'))
    harness.clock.wall -= 30 * MINUTE
    harness.dies()
    assert len(harness.rows()) == 2
    harness.until(START + 2 * HOUR + 5 * MINUTE)
    assert harness.ran()[2:] == [START - 30_000 + 2 * HOUR + 5 * MINUTE]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "ran", "lines"),
    [
        ('cron = "0 3 * * *"', 'cron = "0 9 * * *"', [], 1),
        ('cron = "0 8 * * *"', 'cron = "0 9 * * *"', ["08:00"], 1),
        ('cron = "0 3 * * *"', 'cron = "0 15 * * *"', [], 0),
        ('cron = "30 7 * * *"\ntimezone = "UTC"', 'cron = "30 7 * * *"\ntimezone = "Atlantic/Azores"', ["07:30"], 1),
        ("", 'cron = "0 9 * * *"', [], 0),
        ("at = 2026-06-01T08:00:00Z", "at = 2026-06-01T15:00:00Z", ["08:00"], 0),
        ('cron = "0 7 * * *"\njitter = "10h"', 'cron = "0 9 * * *"\njitter = "10h"', ["07:00"], 1),
        ('every = "5h"', 'cron = "0 9 * * *"', ["10:00:30"], 1),
        ('cron = "0 8 * * *"\ntimezone = "UTC"', 'cron = "0 9 * * *"\ntimezone = "CET"', ["08:00"], 1),
    ],
)
def test_schedule_changed_while_no_daemon_ran(
    make_schedules: Make, *, before: str, after: str, ran: list[str], lines: int, first: bool
) -> None:
    """The former schedule applies until the start, and the new one from then on; the log names what is not caught up.

    Nothing more follows from the next start.
    """
    harness = make_schedules(before)
    harness.until(ms("2026-06-01T06:00:30Z"))
    done = len(harness.rows())
    harness.rewrite(task(after))
    harness.clock.advance_ms(6 * HOUR)
    harness.dies(first=first)
    assert harness.ran()[done:] == [ms(f"2026-06-01T{at}Z") for at in ran]
    assert sum("not caught up" in line for line in harness.lines.texts) == lines
    rows = harness.rows()
    harness.dies(first=True)
    assert harness.rows() == rows
    harness.until(ms("2026-06-02T20:00Z"))
    assert len(harness.rows()) > len(rows)


def test_former_schedule_with_an_unknown_zone(make_schedules: Make) -> None:
    """A stored schedule in a time zone that the host lost has no instants, so only the new one counts."""
    harness = make_schedules('cron = "0 8 * * *"\ntimezone = "CET"')
    harness.store.database.execute("UPDATE tasks SET definition = replace(definition, 'CET', 'Gone/Zone')")
    harness.clock.advance_ms(12 * HOUR)
    harness.dies(first=True)
    assert harness.rows() == []
    harness.until(ms("2026-06-02T12:00Z"))
    assert harness.ran() == [ms("2026-06-02T08:00+02:00")]


def test_schedule_that_comes_back(make_schedules: Make) -> None:
    """A schedule that is taken out and put back later counts from its return."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.rewrite(task(""))
    harness.dies(first=True)
    harness.clock.advance_ms(5 * HOUR)
    harness.rewrite(task('cron = "0 * * * *"'))
    harness.dies(first=True)
    assert harness.rows() == []
    harness.until(START + 6 * HOUR)
    assert harness.ran() == [START - 30_000 + 6 * HOUR]


def redefined(schedules: Schedules, keys: str) -> None:
    schedules.rewrite(task(keys))
    change = schedules.committer.change()
    schedules.scheduled_starts.redefine(schedules.units["t"], schedules.config.tasks["t"], change)
    schedules.committer.commit(change)
    schedules.store.work_all()


def test_changed_interval(make_schedules: Make) -> None:
    """A changed interval counts from the reload; a run that was due before still starts."""
    harness = make_schedules('every = "1h"')
    harness.clock.advance_ms(HOUR + 1000)
    redefined(harness, 'every = "10m"')
    assert harness.ran() == [START + HOUR]
    assert next_run(harness) == START + HOUR + 1000 + 10 * MINUTE


@pytest.mark.parametrize("keys", ['timezone = "Asia/Tokyo"', 'dst_gap = "skip"', 'dst_overlap = "both"'])
def test_time_zone_does_not_move_an_interval(make_schedules: Make, keys: str) -> None:
    """An interval continues when only the time zone or the rules for daylight saving time change."""
    harness = make_schedules('every = "1h"\ntimezone = "UTC"')
    harness.clock.advance_ms(HOUR // 2)
    redefined(harness, f'every = "1h"\n{keys}')
    assert next_run(harness) == START + HOUR


def test_changed_jitter(make_schedules: Make) -> None:
    """A run that waits for its jitter starts at the new time."""
    harness = make_schedules('cron = "0 * * * *"\njitter = "50m"')
    first = START - 30_000 + HOUR
    harness.clock.advance_ms(first - START + 1)
    redefined(harness, 'cron = "0 * * * *"')
    harness.look()
    assert harness.ran() == [first]


def test_schedule_change_during_jitter(make_schedules: Make) -> None:
    """A run that waits for its jitter starts even if the schedule changes."""
    harness = make_schedules('cron = "0 * * * *"\njitter = "50m"')
    first = START - 30_000 + HOUR
    harness.clock.advance_ms(first - START + 1)
    redefined(harness, 'cron = "30 12 * * *"')
    assert harness.ran() == [first]


def test_changed_single_time(make_schedules: Make) -> None:
    """A new single time in the future runs; a past one is recorded as missed, and is not repeated if it ran."""
    harness = make_schedules("at = 2026-06-01T01:00:00Z")
    harness.until(START + 2 * HOUR)
    redefined(harness, "at = 2026-06-01T01:00:00Z\ndst_gap = 'skip'")
    assert len(harness.rows()) == 1
    redefined(harness, "at = 2026-06-01T00:30:00Z")
    assert harness.rows()[0] == ("missed", START + 30 * MINUTE - 30_000, 1)
    redefined(harness, "at = 2026-06-01T03:00:00Z")
    harness.until(START + 4 * HOUR)
    assert harness.ran() == [START - 30_000 + hours * HOUR for hours in (1, 3)]


def test_last_instant_set_back(make_schedules: Make) -> None:
    """If the stored last instant is set back by hand, no instant runs twice and the schedule continues."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.until(START + HOUR)
    update_task(harness.store.database, "t", last_instant=START)
    harness.dies(first=True)
    harness.until(START + 2 * HOUR)
    assert harness.ran() == [START - 30_000 + hours * HOUR for hours in (1, 2)]


PARAMS = 'params = [{ name = "FULL", kind = "env", default = "no" }, { name = "KEY", kind = "env", secret = true }]\n'


def values(harness: Schedules) -> list[tuple[int, dict[str, str | None]]]:
    """Return the instants of all runs with their parameters, ordered by instant."""
    texts = harness.store.database.rows("SELECT scheduled_at, params FROM runs ORDER BY scheduled_at")
    return [(at, json.loads(text)) for at, text in texts]


def test_parameters_of_an_expression(make_schedules: Make) -> None:
    """Each run has the parameters of its expression, also after a restart; of two with the time, those of the first."""
    sunday = '{ cron = "0 2 * * sun", params = { FULL = "yes", KEY = "hidden-word" } }'
    harness = make_schedules(
        f'{PARAMS}cron = [{sunday}, "0 2 * * sat", {{ cron = "0 2 * * *", params = {{ FULL = "x" }} }}]'
    )
    expected = [(ms(f"2026-06-0{day}T02:00:00Z"), {"FULL": "x"}) for day in range(1, 6)]
    expected.append((ms("2026-06-06T02:00:00Z"), {"FULL": "no"}))
    harness.until(expected[-1][0])
    assert values(harness) == expected
    harness.clock.advance_ms(DAY)
    harness.dies()
    harness.until(harness.clock.wall + 1)
    assert values(harness)[-1] == (ms("2026-06-07T02:00:00Z"), {"FULL": "yes", "KEY": None})
    (secret,) = [run.params.secret for run in harness.engine.live.values() if run.params.secret]
    assert secret == {"KEY": "hidden-word"}
    assert "hidden-word" not in definition_text(harness.units["t"].definition)
    answers: list[Any] = []
    commands = UnitOperations(
        harness.core, harness.engine.stop, harness.controller, harness.scheduled_starts, harness.units
    )
    operations_of(commands)["schedule"]({"task": "t", "count": 7}, answers.append)
    shown = [{"FULL": "x"}] * 5 + [{}] + [{"FULL": "yes", "KEY": "***"}]
    assert answers[0]["result"]["params"] == shown


def test_changed_parameters_of_an_expression(make_schedules: Make) -> None:
    """Times that were due under the former schedule get the defaults, whose parameters may be gone."""
    harness = make_schedules(f'{PARAMS}cron = {{ cron = "0 2 * * *", params = {{ FULL = "yes" }} }}')
    harness.clock.advance_ms(DAY)
    harness.rewrite(task(f'{PARAMS}cron = {{ cron = "0 3 * * *", params = {{ FULL = "new" }} }}'))
    harness.dies()
    harness.until(ms("2026-06-02T03:00:00Z"))
    assert values(harness)[-2:] == [
        (ms("2026-06-01T02:00:00Z"), {"FULL": "no"}),
        (ms("2026-06-02T03:00:00Z"), {"FULL": "new"}),
    ]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "missed"),
    [
        ('shift = "next"', 'shift = "previous"', [("missed", ms("2026-06-05T06:00:00Z"), 1)]),
        ('shift = "previous"', 'shift = "next"', []),
        ("", 'shift = "previous"', []),
        ('shift = "next"', "", []),
    ],
)
def test_time_that_moved_into_the_past(
    make_schedules: Make, before: str, after: str, missed: list[Any], restart: bool
) -> None:
    """A time that still had to come, and that a changed calendar moves into the past, is recorded as missed once."""
    sunday = 'cron = "0 6 * * sun,wed"\nskip_on = "weekend"\n'
    harness = make_schedules(f"{sunday}{before}")
    harness.until(ms("2026-06-06T12:00:00Z"))  # a Saturday; the time of Sunday moves to Monday or to Friday
    known = harness.rows()
    harness.rewrite(task(f"{sunday}{after}"))
    if restart:
        harness.dies()
    else:
        (definition,) = harness.config.tasks.values()
        with harness.committer.changing() as change:
            harness.scheduled_starts.redefine(harness.units["t"], definition, change)
        harness.store.work_all()
    assert [row for row in harness.rows() if row not in known] == missed
