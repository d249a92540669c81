"""What is to be done by ``finish_by``, on a clock that the test sets, through restarts."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from store.tasks import PromiseState, decode_promises, get_task
from supervisor.config.diff import diff
from supervisor.ipc.messages import Exited
from supervisor.scheduler.notifications.task_promises import TaskPromises
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest
from supervisor.scheduler.runs.scheduled_starts import InstantListener
from tests.scheduler.runs.schedules import DAY, HOUR, MINUTE, START, ms, task
from tests.scheduler.runs.test_pauses import Pausable

DAILY = 'cron = "0 2 * * *"\nfinish_by = "06:00"'
DAILY_RUN, DEADLINE = ms("2026-06-01T02:00:00Z"), ms("2026-06-01T06:00:00Z")
"""The first instant of `DAILY`, and its deadline."""


class Promising(Pausable):
    """Schedules with promises, whose runs a test starts and ends."""

    def make_listener(self) -> InstantListener:
        self.promises = TaskPromises(self.core, self.notifications, self.engine.obstacles)
        self.engine.observers = [self.promises]
        return self.promises

    def begin(self, *, first: bool = True) -> None:
        super().begin(first=first)
        self.promises.start(self.units.values())
        self.look()

    def look(self) -> None:
        super().look()
        for run_id in self.root.take("spawn"):
            self.started(run_id)
            self.store.work_all()

    def live(self) -> LiveRun:
        """Return the only active run."""
        (run,) = self.units["t"].active.values()
        return run

    def end(self, *, status: int = 0, run: LiveRun | None = None) -> None:
        self.exited((run or self.live()).id, status=status)
        self.store.work_all()
        self.look()

    kept: Sequence[LiveRun] = ()
    exits: Sequence[Exited] = ()

    def survive(self, run: LiveRun, *, first: bool = False) -> LiveRun:
        """Start another scheduler, which takes over an active run before its schedules start."""
        self.kept = [run]
        self.dies(first=first)
        self.kept = ()
        return self.live()

    def recall_pauses(self) -> None:
        super().recall_pauses()
        self.reconcile(self.kept, self.exits)

    def trigger_by_hand(self) -> None:
        self.trigger("t")
        self.look()

    def told(self) -> list[tuple[str, int, str]]:
        query = "SELECT kind, times, body FROM notifications WHERE kind LIKE 'task.%' ORDER BY id"
        rows = self.store.database.rows(query)
        return [(kind, times, body) for kind, times, body in rows]

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.told()]

    def stored(self) -> PromiseState:
        row = get_task(self.store.database, "t")
        assert row is not None
        return decode_promises(row.promises)


Make = Callable[..., Promising]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Promising] = []

    def make(keys: str, tables: str = "") -> Promising:
        made.append(Promising(tmp_path, tables + task(keys)))
        return made[-1]

    yield make
    for made_bench in made:
        made_bench.close()


def test_kept(make: Make) -> None:
    """A success at the deadline keeps the promise, and nothing is reported."""
    harness = make(DAILY)
    harness.until(DAILY_RUN)
    assert [(one.deadline, one.instant) for one in harness.stored().due] == [(DEADLINE, DAILY_RUN)]
    harness.clock.advance_ms(DEADLINE - harness.clock.wall)
    harness.end()
    harness.until(DEADLINE + HOUR)
    assert (harness.told(), harness.stored()) == ([], PromiseState())


def test_broken_once(make: Make) -> None:
    """A broken promise is reported once, with the run that is not done; its success is reported too."""
    harness = make(DAILY)
    harness.until(DEADLINE)
    text = f"It was to be done by 2026-06-01T06:00:00+00:00. Run {harness.live().id} is active."
    assert harness.told() == [("task.late", 1, text)]
    run = harness.live()
    for first in (False, True):
        run = harness.survive(run, first=first)
    harness.until(DEADLINE + 90 * MINUTE)
    assert harness.told() == [("task.late", 1, text)]
    harness.end()
    assert harness.told()[1:] == [
        ("task.on_time", 1, f"Run {run.id} succeeded, 1h30m after 2026-06-01T06:00:00+00:00.")
    ]
    assert harness.stored() == PromiseState()


@pytest.mark.parametrize("down_ms", [HOUR, 1])
@pytest.mark.parametrize("first", [False, True])
def test_deadline_passes_while_nothing_runs(make: Make, down_ms: int, *, first: bool) -> None:
    """A deadline that passes while no scheduler runs is reported once, at the next start, which says so."""
    harness = make(DAILY)
    harness.until(DAILY_RUN)
    run = harness.live()
    harness.clock.advance_ms(DEADLINE + down_ms - harness.clock.wall)
    harness.survive(run, first=first)
    down = "The daemon was not running then, or the host slept."
    text = f"It was to be done by 2026-06-01T06:00:00+00:00. {down} Run {run.id} is active."
    assert harness.told() == [("task.late", 1, text)]
    harness.survive(run, first=True)
    assert harness.told() == [("task.late", 1, text)]


def test_daemon_is_down_for_days(make: Make) -> None:
    """Times and deadlines during days without the daemon are one report, about the newest; its run ends it."""
    harness = make(DAILY)
    harness.clock.advance_ms(3 * DAY + 12 * HOUR)
    harness.dies(first=True)
    harness.look()
    (late,) = harness.told()
    assert late[:2] == ("task.late", 1)
    assert "by 2026-06-04T06:00:00+00:00. The daemon was not running then" in late[2]
    harness.end()
    assert harness.kinds() == ["task.late", "task.on_time"]


def test_failed_run_is_late(make: Make) -> None:
    """A time whose run failed is late too, with what the task waits for and its usual duration."""
    harness = make(DAILY + '\nexpected_duration = "4m"\nretry_attempts = 1\nretry_delay = "9h"')
    harness.until(DAILY_RUN)
    harness.end(status=1 << 8)
    (retry,) = harness.units["t"].waiting.values()
    harness.until(DEADLINE)
    (late,) = harness.told()
    waits = f"Run {retry.id} waits until 2026-06-01T11:00:00.000Z (retry). Usually it takes 4m."
    assert late == ("task.late", 1, f"It was to be done by 2026-06-01T06:00:00+00:00. {waits}")
    harness.stop(retry)
    harness.until(DEADLINE + DAY)
    assert harness.told()[1][2].startswith("It was to be done by 2026-06-02T06:00:00+00:00. Run ")


@pytest.mark.parametrize("restart", [False, True])
def test_closed_day(make: Make, *, restart: bool) -> None:
    """A day that a calendar closes promises nothing, even if the daemon is down."""
    closed = '[calendars.c]\ndates = ["2026-06-01"]\n'
    harness = make(DAILY + '\nskip_on = ["c"]', closed)
    if restart:
        harness.clock.advance_ms(12 * HOUR)
        harness.dies(first=True)
    harness.until(START + DAY)
    assert (harness.told(), harness.stored()) == ([], PromiseState())
    harness.until(DEADLINE + DAY)
    assert harness.kinds() == ["task.late"]


@pytest.mark.parametrize("operation", ["task_pause", "daemon_pause"])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("until", [None, DEADLINE + HOUR])
def test_paused(make: Make, operation: str, *, restart: bool, until: int | None) -> None:
    """A deadline during a pause is not reported, also if the pause ends while the daemon is down."""
    harness = make(DAILY)
    harness.until(DAILY_RUN)
    harness.act(operation, until=until)
    if restart:
        harness.clock.advance_ms(12 * HOUR)
        harness.dies(first=True)
    harness.until(START + 23 * HOUR)
    assert (harness.told(), harness.stored().due) == ([], ())


def test_pause_before_the_deadline(make: Make) -> None:
    """A pause that ended before the deadline does not cancel the promise."""
    harness = make(DAILY)
    harness.until(DAILY_RUN)
    harness.act("task_pause", until=DEADLINE - HOUR)
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=True)
    assert harness.kinds() == ["task.late"]


def test_one_promise_for_several_times(make: Make) -> None:
    """Times with the same deadline are one promise, which only the newest one's success keeps."""
    harness = make('cron = "0 2-4 * * *"\nfinish_by = "06:00"\nmax_concurrent = 3')
    harness.until(ms("2026-06-01T04:00:00Z"))
    second, third, fourth = harness.units["t"].active.values()
    for run in (second, third):
        harness.end(run=run)
    assert len(harness.stored().due) == 1
    harness.until(DEADLINE)
    assert harness.kinds() == ["task.late"]
    harness.end(run=fourth)
    assert harness.kinds() == ["task.late", "task.on_time"]


def test_time_that_was_skipped_for_a_waiting_run(make: Make) -> None:
    """A time that was skipped because an earlier one waits is kept by that run."""
    harness = make('cron = "0 2-4 * * *"\nfinish_by = "06:00"\nmax_concurrent = 1')
    harness.until(ms("2026-06-01T04:00:00Z"))
    assert [reason for reason, _, _ in harness.rows()] == ["run", "run", "skipped"]
    harness.end()
    assert len(harness.stored().due) == 1
    harness.end()
    harness.until(DEADLINE)
    assert (harness.told(), harness.stored().due) == ([], ())


def test_waiting_run_at_the_deadline(make: Make) -> None:
    """The report says what the run waits for."""
    slots = "[slots.db]\nsize = 1\n[tasks.u]\nrun = 'true'\nuses = [\"db\"]\n"
    harness = make(DAILY + '\nuses = ["db"]', slots)
    harness.trigger("u")
    harness.until(DEADLINE)
    assert harness.told()[0][2].endswith("waits for the slot db.")


def test_other_runs_count(make: Make) -> None:
    """A retry, and a manual run that was requested after the time, keep the promise; an earlier run does not."""
    harness = make(DAILY + "\nmax_concurrent = 2\nretry_attempts = 1")
    harness.trigger_by_hand()
    harness.until(DAILY_RUN)
    by_hand, scheduled = harness.units["t"].active.values()
    harness.end(run=by_hand)
    assert len(harness.stored().due) == 1
    harness.end(run=scheduled, status=1 << 8)
    harness.until(DAILY_RUN + MINUTE)
    harness.end()
    assert harness.stored().due == ()
    harness.until(DAILY_RUN + DAY)
    harness.trigger_by_hand()
    _, by_hand = harness.units["t"].active.values()
    harness.end(run=by_hand)
    harness.until(DEADLINE + DAY)
    assert harness.told() == []


def test_time_after_the_instant(make: Make) -> None:
    """With a duration, each time has its own deadline, and each broken one counts."""
    harness = make('cron = "0 * * * *"\nfinish_by = "+90m"')
    harness.until(START + 3 * HOUR)
    assert [one.deadline for one in harness.stored().due] == [ms("2026-06-01T03:30:00Z"), ms("2026-06-01T04:30:00Z")]
    assert harness.kinds() == ["task.late"]
    harness.until(ms("2026-06-01T03:30:00Z"))
    assert harness.kinds() == ["task.late"] * 2


def test_many_times(make: Make) -> None:
    """The open promises of a task take a limited space, however often it is due."""
    harness = make('every = "1s"\nfinish_by = "+1h"\nqueue_max = 1\nmax_concurrent = 1')
    harness.until(START + 150_000)
    assert len(harness.stored().due) == 100


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("keys", "late"),
    [
        ('cron = "0 2 * * *"', None),
        ('cron = "0 2 * * *"\nfinish_by = "04:00"', ms("2026-06-01T04:00:00Z")),
        ('cron = "0 3 * * *"\nfinish_by = "06:00"', DEADLINE),
    ],
)
def test_changed_definition(make: Make, keys: str, late: int | None, *, restart: bool) -> None:
    """A new finish_by applies to open promises at once; without one there is no promise any more."""
    harness = make(DAILY)
    harness.until(DAILY_RUN)
    before = harness.config
    harness.rewrite(task(keys))
    if restart:
        harness.survive(harness.live())
    else:
        (changed,) = diff(before, harness.config).changed
        unit = harness.units["t"]
        with harness.committer.changing() as change:
            assert changed.new.kind == "task"
            harness.scheduled_starts.redefine(unit, changed.new, change)
            harness.engine.redefined(unit, change)
        harness.store.work_all()
    harness.until(DEADLINE - 1 if late != DEADLINE else DEADLINE)
    assert harness.kinds() == ([] if late is None else ["task.late"])


@pytest.mark.parametrize("status", [0, 1 << 8])
def test_run_ends_while_no_scheduler_runs(make: Make, status: int) -> None:
    """A success that the root reports to the next scheduler keeps the promise; a failure breaks it."""
    harness = make(DAILY)
    harness.until(DAILY_RUN)
    run = harness.live()
    harness.clock.advance_ms(5 * HOUR)
    harness.exits = [Exited(run=run.id, status=status, started_at=DAILY_RUN, ended_at=DEADLINE - HOUR)]
    harness.dies()
    assert harness.kinds() == (["task.late"] if status else [])


def test_nothing_is_active(make: Make) -> None:
    """If the run has ended without a success, the report says that none is active, and how long one usually takes."""
    harness = make(DAILY + '\nexpected_duration = "4m"')
    harness.until(DAILY_RUN)
    harness.end(status=1 << 8)
    harness.until(DEADLINE)
    nothing = "No run is active or waiting. Usually it takes 4m."
    assert harness.told() == [("task.late", 1, f"It was to be done by 2026-06-01T06:00:00+00:00. {nothing}")]


def test_caught_up_time(make: Make) -> None:
    """A time that runs late, after the daemon was down, can still keep its promise."""
    harness = make(DAILY)
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=True)
    harness.look()
    assert [(one.deadline, one.instant) for one in harness.stored().due] == [(DEADLINE, DAILY_RUN)]
    harness.end()
    harness.until(DEADLINE)
    assert harness.told() == []


def test_request(make: Make) -> None:
    """Runs that nobody scheduled promise nothing."""
    harness = make(DAILY)
    unit = harness.units["t"]
    assert unit.task is not None
    with harness.committer.changing() as change:
        harness.engine.create_task_run(unit, unit.task, change, RunRequest(trigger="cron"))
    harness.look()
    assert harness.stored() == PromiseState()
