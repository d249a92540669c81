"""Schedules over time: each instant runs or is recorded as missed, exactly once."""

import random
from itertools import takewhile
from typing import Any

import pytest

from supervisor.scheduler.control.unit_operations import UnitOperations
from tests.scheduler.control.operations import operations_of
from tests.scheduler.runs.schedules import DAY, HOUR, MINUTE, START, Make, Schedules, ms, next_run, task


def act(harness: Schedules, operation: str) -> None:
    """Carry out an operation on the task."""
    commands = UnitOperations(
        harness.core, harness.engine.stop, harness.controller, harness.scheduled_starts, harness.units
    )
    operations_of(commands)[operation]({"task": "t", "by": "me"}, lambda _answer: None)
    harness.store.work_all()


def test_new_task_has_missed_nothing(make_schedules: Make) -> None:
    """A new task runs at the first instant after it was first seen."""
    harness = make_schedules('cron = "*/10 * * * *"')
    assert harness.rows() == []
    harness.until(START + 20 * MINUTE)
    assert harness.ran() == [START - 30_000 + minutes * MINUTE for minutes in (10, 20)]


def test_gap(make_schedules: Make) -> None:
    """After a gap the newest instant runs; one missed run, at the newest of the others, counts all of them."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.clock.advance_ms(5 * HOUR + 10 * MINUTE)
    harness.dies(first=True)
    assert harness.rows() == [("missed", START - 30_000 + 4 * HOUR, 4), ("run", START - 30_000 + 5 * HOUR, None)]
    harness.dies(first=True)
    assert len(harness.rows()) == 2


@pytest.mark.parametrize(
    ("keys", "runs", "missed"),
    [
        ("catch_up = 0", 0, 5),
        ("catch_up = 3", 3, 2),
        ("catch_up = 100", 5, 0),
        ('catch_up = 3\ncatch_up_window = "90m"', 2, 3),
        ('catch_up = 3\ncatch_up_window = "0s"', 0, 5),
    ],
)
def test_catch_up(make_schedules: Make, keys: str, runs: int, missed: int) -> None:
    """The newest catch_up instants within catch_up_window run; one missed run counts all others."""
    harness = make_schedules(f'cron = "0 * * * *"\n{keys}')
    harness.clock.advance_ms(5 * HOUR + 10 * MINUTE)
    harness.dies(first=True)
    assert harness.ran() == [START - 30_000 + hours * HOUR for hours in range(6 - runs, 6)]
    assert [count for reason, _, count in harness.rows() if reason == "missed"] == ([missed] if missed else [])


def test_late_scheduler(make_schedules: Make) -> None:
    """With catch_up = 0, an instant still runs if the scheduler is less than half a minute late."""
    harness = make_schedules('cron = "* * * * *"\ncatch_up = 0')
    harness.clock.advance_ms(59_000)
    harness.dies()
    assert harness.rows() == [("run", START + 30_000, None)]


def test_newest_instant_of_a_gap_is_on_time(make_schedules: Make) -> None:
    """The newest instant of a gap runs even with catch_up = 0 if it is on time; a missed run counts the others."""
    harness = make_schedules('cron = "0 * * * *"\ncatch_up = 0')
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=True)
    assert harness.rows() == [("missed", START - 30_000 + 4 * HOUR, 4), ("run", START - 30_000 + 5 * HOUR, None)]


@pytest.mark.parametrize(("cron", "every_ms", "missed"), [("* * * * *", MINUTE, 43_199), ("* * * * * *", 1000, 99_999)])
def test_long_gap(make_schedules: Make, cron: str, every_ms: int, missed: int) -> None:
    """After a long gap the newest instant runs and the schedule continues; the count of missed ones ends at 100,000."""
    harness = make_schedules(f'cron = "{cron}"')
    harness.clock.advance_ms(30 * DAY - 30_000)
    harness.dies(first=True)
    now = START - 30_000 + 30 * DAY
    assert harness.ran() == [now]
    assert harness.rows()[0] == ("missed", now - every_ms, missed)
    assert next_run(harness) == now + every_ms


def test_deleted_history_is_not_a_gap(make_schedules: Make) -> None:
    """Processed instants never run again, even after their runs were deleted."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.until(START + 3 * HOUR)
    assert len(harness.ran()) == 3
    harness.store.database.execute("DELETE FROM runs", [])
    harness.dies(first=True)
    assert harness.rows() == []


def test_suspended_host(make_schedules: Make) -> None:
    """Timers stand still while the host sleeps, and the wall clock reveals the gap afterwards."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.clock.suspend(5 * 3600)
    harness.look()
    assert harness.rows() == [("missed", START - 30_000 + 4 * HOUR, 4), ("run", START - 30_000 + 5 * HOUR, None)]


def test_forward_clock_step(make_schedules: Make) -> None:
    """Instants that a forward step of the clock skips are a gap."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.clock.wall += 5 * HOUR
    harness.look()
    assert harness.rows() == [("missed", START - 30_000 + 4 * HOUR, 4), ("run", START - 30_000 + 5 * HOUR, None)]


def test_backward_clock_step(make_schedules: Make) -> None:
    """After a backward step of the clock no instant runs again, and the schedule continues from its last instant."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.until(START + 5 * HOUR)
    harness.clock.wall -= 3 * HOUR
    harness.look()
    harness.until(START + 7 * HOUR)
    assert harness.ran() == [START - 30_000 + hours * HOUR for hours in range(1, 8)]


def test_resume_after_a_clock_correction(make_schedules: Make) -> None:
    """A resumed schedule follows the corrected clock, although its last instant was years ahead."""
    harness = make_schedules('cron = "0 * * * *"')
    harness.clock.wall += 1000 * DAY
    harness.look()
    unit = harness.units["t"]
    unit.paused = True
    change = harness.committer.change()
    harness.scheduled_starts.pause(unit, change)
    harness.committer.commit(change)
    harness.store.work_all()
    harness.clock.wall -= 1000 * DAY
    harness.look()
    unit.paused = False
    change = harness.committer.change()
    harness.scheduled_starts.resume(unit, change)
    harness.committer.commit(change)
    harness.store.work_all()
    assert next_run(harness) == START - 30_000 + HOUR


def test_pause_during_jitter(make_schedules: Make) -> None:
    """A run that waits for its jitter starts even if its task is paused and resumed meanwhile."""
    harness = make_schedules('cron = "0 * * * *"\njitter = "50m"')
    unit = harness.units["t"]
    assert unit.schedule.offset_ms > 2 * MINUTE
    harness.until(START - 30_000 + HOUR + MINUTE)
    for operation in ("task_pause", "task_resume"):
        act(harness, operation)
    harness.until(START + 2 * HOUR)
    assert harness.ran() == [START - 30_000 + HOUR]


def test_resume_during_removal(make_schedules: Make) -> None:
    """A schedule that is resumed during its removal stays removed."""
    harness = make_schedules('cron = "0 * * * *"')
    unit = harness.units["t"]
    unit.paused = True
    answers: list[dict[str, Any]] = []
    commands = UnitOperations(
        harness.core, harness.engine.stop, harness.controller, harness.scheduled_starts, harness.units
    )
    operations_of(commands)["task_resume"]({"task": "t", "by": "me"}, answers.append)
    harness.scheduled_starts.end(unit)
    unit.configured = False
    harness.store.work_all()
    assert answers == [{"ok": True, "result": {}}]
    assert unit.timer is None


@pytest.mark.parametrize("step", [3 * HOUR, -3 * HOUR])
def test_interval_ignores_the_wall_clock(make_schedules: Make, step: int) -> None:
    """Setting the wall clock neither triggers nor delays a run of an interval."""
    harness = make_schedules('every = "90s"')
    harness.until(START + 10 * MINUTE)
    assert harness.ran() == [START + number * 90_000 for number in range(1, 7)]
    harness.clock.wall += step
    harness.look()
    assert len(harness.rows()) == 6
    harness.until(START + step + 15 * MINUTE)
    assert sorted(harness.ran()) == sorted(
        [START + number * 90_000 for number in range(1, 7)]
        + [START + step + number * 90_000 for number in range(7, 11)]
    )


def test_interval_survives_restarts(make_schedules: Make) -> None:
    """A restart does not shift an interval."""
    harness = make_schedules('every = "90s"')
    harness.until(START + 100_000)
    harness.clock.advance_ms(20_000)
    harness.dies()
    harness.until(START + 200_000)
    harness.dies(first=True)
    assert harness.ran() == [START + 90_000, START + 180_000]
    assert next_run(harness) == START + 270_000


def test_interval_after_the_clock_was_set_back_by_a_multiple(make_schedules: Make) -> None:
    """An interval continues after a backward step by a multiple of it, although the same instants have already run."""
    harness = make_schedules('every = "1m"')
    harness.until(START + 3 * HOUR)
    for steps, minutes in ((1, 50), (2, 100)):
        harness.clock.wall -= HOUR
        harness.look()
        harness.until(harness.clock.wall + 50 * MINUTE + 10)
        assert len(harness.ran()) == len(set(harness.ran())) == 180 + minutes, steps


def test_interval_on_a_host_that_boots_with_an_early_clock(make_schedules: Make) -> None:
    """An interval continues at once after a boot with a clock that is behind, and is not shifted when it is set."""
    harness = make_schedules('every = "1m"')
    harness.until(START + 3 * HOUR)
    harness.clock.wall -= HOUR
    harness.dies(first=True)
    harness.until(START + 2 * HOUR + 10 * MINUTE + 10)
    assert len(harness.ran()) == 190
    harness.clock.wall += HOUR
    harness.look()
    harness.until(START + 3 * HOUR + 20 * MINUTE + 10)
    assert len(harness.ran()) == 200


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("keys", "step"), [('every = "1m"', HOUR), ('cron = "* * * * *"', 400 * DAY)])
def test_retries_after_the_clock_was_set_back(make_schedules: Make, keys: str, step: int, restart: bool) -> None:
    """Failed runs are retried after the clock was set back, although a run with a later time has succeeded before."""
    harness = make_schedules(f'{keys}\nretry_attempts = 1\nretry_delay = "1h"\nretry_superseded = false')
    harness.clock.wall += step
    harness.look()
    harness.until(harness.clock.wall + 150_000)
    first, *others = list(harness.units["t"].active.values())
    for run in others:
        harness.started(run.id)
        harness.exited(run.id)
    harness.store.work_all()
    harness.clock.wall -= step
    harness.look()
    if restart:
        harness.dies()
    harness.until(harness.clock.wall + 150_000)
    run = next(run for run in harness.units["t"].active.values() if run is not first)
    harness.started(run.id)
    harness.exited(run.id, status=1 << 8)
    harness.store.work_all()
    assert [retry.retry_of for retry in harness.units["t"].waiting.values()] == [run.id]


def test_single_time(make_schedules: Make) -> None:
    """A single time runs once across restarts; a daemon that was down catches up."""
    at = START + HOUR
    harness = make_schedules('at = "2026-06-01T03:00:30+02:00"')
    assert next_run(harness) == at
    harness.clock.advance_ms(2 * HOUR)
    harness.dies(first=True)
    assert harness.ran() == [at]
    harness.dies(first=True)
    harness.until(START + DAY)
    assert harness.rows() == [("run", at, None)]
    assert next_run(harness) is None


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("resumed", [True, False])
def test_single_time_during_a_pause(make_schedules: Make, *, resumed: bool, restart: bool) -> None:
    """A single time that passes while its task is paused is recorded as skipped, once; one after the pause runs."""
    harness = make_schedules("at = 2026-06-01T01:00:30Z")
    act(harness, "task_pause")
    assert next_run(harness) is None
    if restart:
        harness.dies(first=True)
    if resumed:
        act(harness, "task_resume")
    if restart:
        harness.clock.advance_ms(2 * HOUR)
        harness.dies(first=True)
    harness.until(START + 3 * HOUR)
    assert next_run(harness) is None
    assert harness.rows() == [("run" if resumed else "skipped", START + HOUR, None)]
    if not resumed:
        act(harness, "task_resume")
        stored_by, cause = harness.store.database.rows("SELECT stopped_by, cause FROM runs")[0]
        assert (stored_by.startswith("paused: "), cause) == (True, "paused")
    harness.dies(first=True)
    harness.until(START + DAY)
    assert len(harness.rows()) == 1


def test_single_time_in_the_past(make_schedules: Make) -> None:
    """A single time in the past does not run; one missed run records it."""
    harness = make_schedules("at = 2026-05-31T23:59:00Z")
    assert harness.rows() == [("missed", START - 90_000, 1)]
    harness.dies(first=True)
    harness.store.database.execute("DELETE FROM runs", [])
    harness.dies(first=True)
    assert harness.rows() == []
    harness.rewrite(task("at = 2026-05-30T12:00:00Z"))
    harness.dies(first=True)
    assert [row[0] for row in harness.rows()] == ["missed"]


def test_jitter(make_schedules: Make) -> None:
    """Jitter delays each start by the same offset; the run still counts for its instant."""
    harness = make_schedules('cron = "0 * * * *"\njitter = "30m"')
    offset = harness.units["t"].schedule.offset_ms
    assert 0 < offset < 30 * MINUTE
    first = START - 30_000 + HOUR
    assert next_run(harness) == first + offset
    harness.until(first + offset - 1)
    assert harness.rows() == []
    harness.dies()
    harness.until(first + offset)
    assert harness.ran() == [first]
    assert next_run(harness) == first + HOUR + offset


@pytest.mark.parametrize("gap", ["restart", "suspend", "clock step"])
def test_jitter_after_a_gap(make_schedules: Make, gap: str) -> None:
    """A caught-up run starts when its jitter has passed after the gap; a brief absence does not delay a run."""
    harness = make_schedules('cron = "0 * * * *"\njitter = "50m"')
    offset = harness.units["t"].schedule.offset_ms
    if gap == "restart":
        harness.clock.advance_ms(5 * HOUR)
        harness.dies(first=True)
    elif gap == "suspend":
        harness.clock.suspend(5 * 3600)
        harness.look()
    else:
        harness.clock.wall += 5 * HOUR
        harness.look()
    assert harness.rows() == []
    assert next_run(harness) == START + 5 * HOUR + offset
    harness.until(START + 5 * HOUR + offset)
    assert harness.rows() == [("missed", START - 30_000 + 4 * HOUR, 4), ("run", START - 30_000 + 5 * HOUR, None)]
    harness.clock.advance_ms(HOUR - 30_000 + 20_000)
    harness.dies()
    assert harness.ran()[1:] == [START - 30_000 + 6 * HOUR]


@pytest.mark.parametrize("first", [True, False])
def test_further_gaps_do_not_prolong_the_jitter(make_schedules: Make, *, first: bool) -> None:
    """A daemon that is down again and again starts caught-up runs at the time that its first start has chosen."""
    harness = make_schedules('cron = "0 * * * *"\njitter = "50m"')
    offset = harness.units["t"].schedule.offset_ms
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=first)
    starts_at = next_run(harness)
    assert starts_at == START + 5 * HOUR + offset
    for _ in range(3):
        harness.clock.advance_ms(offset // 4)
        harness.dies(first=first)
        assert next_run(harness) == starts_at
    assert harness.rows() == []
    harness.clock.advance_ms(offset)
    harness.dies(first=first)
    assert harness.ran() == [START - 30_000 + 5 * HOUR]


def test_jitter_after_a_gap_and_a_clock_set_back(make_schedules: Make) -> None:
    """A clock that is set back does not prolong the jitter of a caught-up run."""
    harness = make_schedules('cron = "0 0 * * *"\njitter = "50m"')
    offset = harness.units["t"].schedule.offset_ms
    harness.clock.advance_ms(30 * HOUR)
    harness.dies(first=True)
    harness.clock.wall -= 3 * HOUR
    harness.look()
    assert next_run(harness) == harness.clock.wall + offset


def test_pause_during_the_jitter_of_caught_up_runs(make_schedules: Make) -> None:
    """A pause before caught-up runs have started leaves one record of them, and they do not start."""
    harness = make_schedules('cron = "0 * * * *"\njitter = "50m"')
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=True)
    act(harness, "task_pause")
    assert harness.rows() == [("skipped", START - 30_000 + 4 * HOUR, 4)]
    assert next_run(harness) is None
    act(harness, "task_resume")
    harness.until(START + 6 * HOUR)
    assert harness.ran() == [START - 30_000 + 5 * HOUR]


def test_instant_skipped_by_dst(make_schedules: Make) -> None:
    """An instant that daylight saving time skips is recorded, and the next real instant is announced."""
    harness = make_schedules('cron = "30 2 * * *"\ntimezone = "Europe/Prague"\ndst_gap = "skip"')
    harness.until(ms("2026-10-25T12:00Z"))
    assert harness.rows()[-2:] == [
        ("run", ms("2026-10-25T02:30+02:00"), None),
        ("dst_skipped", ms("2026-10-25T02:30+01:00"), None),
    ]
    harness.until(ms("2027-03-28T00:30Z"))
    assert next_run(harness) == ms("2027-03-29T02:30+02:00")
    harness.until(ms("2027-03-28T12:00Z"))
    assert harness.rows()[-1] == ("dst_skipped", ms("2027-03-28T03:00+02:00"), None)


def test_coalescing(make_schedules: Make) -> None:
    """While a scheduled run waits, later instants are skipped; runs on request still wait."""
    harness = make_schedules('cron = "0 * * * *"\nmax_concurrent = 1')
    harness.until(START + 4 * HOUR)
    assert [reason for reason, _, _ in harness.rows()] == ["run", "run", "skipped", "skipped"]
    waiting = harness.units["t"].queue
    harness.trigger("t")
    harness.store.work_all()
    assert len(waiting) == 2
    harness.engine.release(waiting[0])
    harness.until(START + 5 * HOUR)
    assert [run.scheduled_at is None for run in waiting] == [True, False]


def test_without_coalescing(make_schedules: Make) -> None:
    """Without coalescing, up to queue_max scheduled runs wait."""
    harness = make_schedules('cron = "0 * * * *"\nmax_concurrent = 1\ncoalesce = false\nqueue_max = 2')
    harness.until(START + 4 * HOUR)
    assert [reason for reason, _, _ in harness.rows()] == ["run", "run", "run", "queue_full"]


def test_caught_up_runs_wait(make_schedules: Make) -> None:
    """With catch_up above 1, several runs wait."""
    harness = make_schedules('cron = "0 * * * *"\nmax_concurrent = 1\ncatch_up = 3')
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=True)
    assert [reason for reason, _, _ in harness.rows()] == ["missed", "run", "run", "run"]


KILLED_AT_ANY_MOMENT = (
    'cron = "*/7 * * * *"',
    'cron = ["3,40 * * * *", "*/20 2 * * *"]',
    'every = "11m"',
    'cron = "*/7 * * * *"\njitter = "20m"',
    'every = "11m"\njitter = "20m"',
)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keys", KILLED_AT_ANY_MOMENT)
def test_killed_at_any_moment(make_schedules: Make, seed: int, keys: str) -> None:
    """Each instant is processed exactly once, however often the scheduler dies before or after storing it."""
    choose = random.Random(f"{seed} {keys}")
    harness = make_schedules(keys)
    end = START + 12 * HOUR
    coming = harness.units["t"].schedule.occurrences(START)
    expected = [instant.at for instant in takewhile(lambda instant: instant.at <= end, coming)]
    while harness.clock.wall < end:
        harness.clock.advance_ms(min(choose.choice((1000, 60_000, 400_000, 3_000_000)), end - harness.clock.wall))
        harness.loop.round(0)
        for _ in range(choose.randrange(3)):
            if harness.store.jobs:
                harness.store.work()
        if choose.random() < 0.4:
            harness.dies(first=choose.random() < 0.5)
    harness.dies()
    harness.until(end + harness.units["t"].schedule.offset_ms)
    rows = [row for row in harness.rows() if row[1] <= end]
    assert {at for _, at, _ in rows} <= set(expected)
    assert len(rows) == len({at for _, at, _ in rows})
    assert sum(count or 1 for _, _, count in rows) == len(expected)
    assert rows[-1][:2] == ("run", expected[-1])


def test_tasks_waiting_for_the_clock(make_schedules: Make) -> None:
    """Tasks that a backward step silences for long are listed with their next run, except paused and interval tasks."""
    harness = make_schedules(
        '[tasks.minutely]\nrun = "true"\ncron = "* * * * *"\n'
        '[tasks.hourly]\nrun = "true"\ncron = "0 * * * *"\n'
        '[tasks.rests]\nrun = "true"\ncron = "* * * * *"\n'
        '[tasks.interval]\nrun = "true"\nevery = "1m"\n'
    )
    harness.until(START + 4 * 3_600_000)
    harness.units["rests"].paused = True
    harness.clock.wall -= 300_000
    harness.look()
    assert harness.scheduled_starts.waiting_for_clock(harness.units.values()) == []
    harness.clock.wall -= 3 * 3_600_000
    harness.look()
    assert harness.scheduled_starts.waiting_for_clock(harness.units.values()) == [
        ("minutely", ms("2026-06-01T04:01:00Z")),
        ("hourly", ms("2026-06-01T05:00:00Z")),
    ]
    harness.until(ms("2026-06-01T04:01:00Z"))
    assert [name for name, _at in harness.scheduled_starts.waiting_for_clock(harness.units.values())] == []


def test_closed_days(make_schedules: Make) -> None:
    """The times of a closed day are one record, which counts them, is no alarm, and survives a restart."""
    harness = make_schedules('cron = "0 */6 * * *"\nskip_on = "weekend"\ntimezone = "UTC"')
    harness.until(ms("2026-06-06T13:00Z"))
    query = "SELECT state, scheduled_at, missed_count, cause, stopped_by FROM runs WHERE cause IS NOT NULL ORDER BY seq"
    assert harness.store.database.rows(query) == [
        (40, ms("2026-06-06T12:00Z"), 3, "calendar", "calendar: weekend"),
    ]
    assert next_run(harness) == ms("2026-06-08T00:00Z")
    harness.dies(first=True)
    harness.clock.advance_ms(DAY)
    harness.dies(first=True)
    harness.until(ms("2026-06-08T01:00Z"))
    assert harness.store.database.rows(query) == [
        (40, ms("2026-06-06T18:00Z"), 4, "calendar", "calendar: weekend"),
        (40, ms("2026-06-07T18:00Z"), 4, "calendar", "calendar: weekend"),
    ]
    assert harness.rows()[-1] == ("run", ms("2026-06-08T00:00Z"), None)
    assert harness.store.database.rows("SELECT count(*) FROM notifications WHERE kind = 'run.missed'") == [(0,)]
