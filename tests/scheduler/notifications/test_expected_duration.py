"""What people can expect of the duration of a run, with a clock that the test sets, through restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.runs.run_durations import Expectation, expectation
from store.tasks import decode_promises, get_task, update_task
from supervisor.scheduler.notifications.run_alerts import RunAlerts
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, expected_of
from supervisor.scheduler.runs.run_parameters import ParameterValues
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

S, MINUTE = 1000, 60_000
KEYS = '[tasks.t]\nrun = "true"\nexpected_duration = "learned"\nmax_concurrent = 9\n'


class Durations(Bench):
    """A bench with runs that take some time."""

    def __init__(self, directory: Path, text: str = KEYS) -> None:
        self.clock = FakeClock()
        super().__init__(directory, text, self.clock)

    def take_up(self, *, first: bool) -> None:
        super().take_up(first=first)
        self.engine.observers = [RunAlerts(self.core, self.notifications)]

    def begin(self, *, trigger: str = "cron", params: ParameterValues | None = None) -> LiveRun:
        unit = self.units["t"]
        assert unit.task is not None
        with self.committer.changing() as change:
            at = change.now_ms if trigger == "cron" else None
            request = RunRequest(trigger=trigger, scheduled_at=at, params=params)
            run = self.engine.create_task_run(unit, unit.task, change, request)
        self.rest()
        self.started(run.id)
        self.rest()
        return run

    def take(self, ms: int, *, status: int = 0, trigger: str = "cron", params: ParameterValues | None = None) -> None:
        run = self.begin(trigger=trigger, params=params)
        self.clock.advance_ms(ms)
        self.exited(run.id, status=status, ran_ms=ms)
        self.rest()

    def rest(self) -> None:
        self.loop.round(0)
        self.store.work_all()
        self.loop.round(0)
        self.store.work_all()

    def pass_ms(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.rest()

    def dies(self, run: LiveRun) -> LiveRun:
        """Start another scheduler, which takes over a running run."""
        started_at = self.row(run).started_at
        assert started_at is not None
        self.take_up(first=False)
        unit = self.units["t"]
        again = LiveRun(unit, unit.definition, run.id, trigger=run.trigger, created_at=run.created_at)
        self.engine.observe(again, started_at)
        self.rest()
        return again

    def stored(self) -> tuple[int, ...] | None:
        row = get_task(self.store.database, "t")
        assert row is not None
        return decode_promises(row.promises).durations

    def slow(self) -> list[tuple[int, str]]:
        rows = self.store.database.rows("SELECT times, body FROM notifications WHERE kind = 'run.slow'")
        return [(times, body) for times, body in rows]


@pytest.fixture
def durations(tmp_path: Path) -> Iterator[Durations]:
    made = Durations(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("setting", "taken", "expected"),
    [
        (None, [S] * 50, None),
        ("learned", [S] * 9, None),
        ("learned", None, None),
        ("learned", [S] * 10, Expectation(S, S + MINUTE)),
        ("learned", [4 * MINUTE] * 50, Expectation(4 * MINUTE, 8 * MINUTE)),
        ("learned", [MINUTE, 5 * MINUTE] * 5, Expectation(3 * MINUTE, 15 * MINUTE)),
        ("learned", [2 * MINUTE] * 20 + [900 * MINUTE], Expectation(2 * MINUTE, 4 * MINUTE)),
        (5 * S, None, Expectation(5 * S, 65 * S)),
        (5 * MINUTE, [S] * 50, Expectation(5 * MINUTE, 10 * MINUTE)),
    ],
)
def test_expectation(setting: int | str | None, taken: list[int] | None, expected: Expectation | None) -> None:
    """A run is slow after max(2 x median, median + 6 MAD, median + 60 s), if ten runs or a person tell the median."""
    assert expectation(setting, taken) == expected


def test_learned_from_scheduled_runs(durations: Durations) -> None:
    """Only successes of scheduled runs with default parameters are learned from, and the last fifty count."""
    for _ in range(60):
        durations.take(4 * S)
    durations.take(99 * S, status=1 << 8)
    durations.take(99 * S, trigger="api")
    durations.take(99 * S, params=ParameterValues({"full": "true"}))
    assert durations.stored() == (4 * S,) * 50


def test_slow_run_is_reported_once(durations: Durations) -> None:
    """A run that takes much longer than usual is reported once, also if schedulers die."""
    for _ in range(10):
        durations.take(4 * MINUTE)
    run = durations.begin()
    durations.pass_ms(8 * MINUTE - 1)
    assert durations.slow() == []
    durations.pass_ms(1)
    text = f"Run {run.id}: active for more than 8m, and its task usually takes 4m. It continues."
    assert durations.slow() == [(1, text)]
    again = durations.dies(run)
    durations.pass_ms(MINUTE)
    assert durations.slow() == [(1, text)]
    assert expected_of(again) == Expectation(4 * MINUTE, 8 * MINUTE)


def test_run_becomes_slow_while_no_scheduler_runs(durations: Durations) -> None:
    """A run that becomes slow between two schedulers is reported by the second one."""
    for _ in range(10):
        durations.take(4 * MINUTE)
    run = durations.begin()
    durations.clock.advance_ms(20 * MINUTE)
    durations.dies(run)
    durations.pass_ms(0)
    assert [times for times, _ in durations.slow()] == [1]


def test_earlier_history_counts(durations: Durations) -> None:
    """The first run after the key was added already knows the durations of earlier runs, from the newest back."""
    for taken in range(1, 61):
        durations.take(taken * S)
    durations.take(S, trigger="api")
    update_task(durations.store.database, "t", promises=None)
    durations.take_up(first=True)
    run = durations.begin()
    assert durations.stored() == tuple(taken * S for taken in range(11, 61))
    assert expected_of(run) == Expectation(35_500, 35_500 + 6 * 12_500)
