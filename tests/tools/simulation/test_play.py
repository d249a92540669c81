"""A simulation says what happens: held against a walk over every minute, and against the scheduler's own engine."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from supervisor.config.load import load
from supervisor.config.model import Task
from supervisor.tools.simulation.report import Arrival, SimulatedTask
from tests.schedule.oracle import Oracle, expression
from tests.scheduler.runs.test_scheduled_starts import DAY, START, Schedules, task

YEAR_MS = 365 * DAY
FIRST_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000


def configured(directory: Path, keys: str) -> Task:
    path = directory / "one.toml"
    path.write_text(task(keys))
    path.chmod(0o600)
    return load(str(path)).tasks["t"]


def test_a_year_in_time_zones(tmp_path: Path) -> None:
    """The instants of a year, and the ones that run, match a walk over every minute."""
    choose = random.Random()
    for zone in ("Europe/Prague", "Australia/Lord_Howe", "America/Santiago"):
        oracle = Oracle(ZoneInfo(zone), FIRST_MS // 60_000, (FIRST_MS + YEAR_MS) // 60_000)
        for gap, overlap in (("run", "first"), ("skip", "second"), ("run", "both")):
            text = expression(choose)
            keys = f'cron = "{text}"\ntimezone = "{zone}"\ndst_gap = "{gap}"\ndst_overlap = "{overlap}"'
            play = SimulatedTask(configured(tmp_path, keys), FIRST_MS + 1, 0)
            found = [(one.at, one.outcome == "run", one.note) for one in play.until(FIRST_MS + YEAR_MS + 1)]
            expected = [tuple(one) for one in oracle.walk(text, gap, overlap, 1_000_000)]
            assert found == expected, (zone, text, gap, overlap)


class _Played(Schedules):
    """The engine of the scheduler on a virtual clock, with runs that all take equally long."""

    def play(self, end_ms: int, duration_ms: int) -> None:
        ends: list[tuple[int, str]] = []
        while True:
            due_s = self.loop._wall.next_s()
            due_ms = end_ms if due_s is None else round(due_s * 1000)
            at = min(due_ms, ends[0][0] if ends else end_ms, end_ms)
            if at >= end_ms:
                return
            self.hand.passes(at - self.hand.wall)
            while ends and ends[0][0] <= at:
                run_id = heappop(ends)[1]
                if run_id in self.engine.live:
                    self.exited(run_id, ran_ms=duration_ms)
                    self.store.work_all()
                self._starts(ends, at + duration_ms)
            self.look()
            self._starts(ends, at + duration_ms)

    def _starts(self, ends: list[tuple[int, str]], end_ms: int) -> None:
        for run_id in self.root.take("stop"):
            self.exited(run_id, status=15, cause="stop")
            self.store.work_all()
        for run_id in self.root.take("spawn"):
            self.started(run_id)
            heappush(ends, (end_ms, run_id))
        self.store.work_all()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[_Played]:
    made = _Played(tmp_path, task('cron = "0 0 1 1 *"'))
    yield made
    made.close()


@pytest.mark.parametrize(
    "keys",
    [
        'on_overlap = "skip"',
        'on_overlap = "queue"',
        'on_overlap = "queue"\ncoalesce = false\nqueue_max = 2',
        'on_overlap = "queue"\ncoalesce = false\nqueue_max = 1\nmax_concurrent = 2',
        'on_overlap = "terminate"',
        'on_overlap = "terminate"\nmax_concurrent = 2',
    ],
)
@pytest.mark.parametrize("minutes", [7, 25])
def test_the_engine_does_the_same(engine: _Played, tmp_path: Path, keys: str, minutes: int) -> None:
    """A run for a run, a skipped one for a skipped one, a full queue for a full queue, at the same instants."""
    limit = "" if "max_concurrent" in keys else "max_concurrent = 1\n"
    text = f'cron = ["*/10 * * * *", "3 */5 * * *"]\n{limit}{keys}'
    duration_ms = minutes * 60_000
    engine.rewrite(task(text))
    engine.dies(first=True)
    start_ms = engine.hand.wall
    engine.play(start_ms + DAY, duration_ms)
    play = SimulatedTask(configured(tmp_path, text), start_ms + 1, duration_ms)
    shown = {"queued": "run", "terminates": "run"}
    expected = [(shown.get(one.outcome, one.outcome), one.at) for one in play.until(start_ms + DAY)]
    assert [(reason, at) for reason, at, _ in engine.rows()] == expected
    assert len(expected) > 100


def outcomes(play: SimulatedTask, until_ms: int) -> list[str]:
    return [one.outcome for one in play.until(until_ms)]


def test_the_first_moment_counts(tmp_path: Path) -> None:
    """A time at the very beginning is one, a time at the end is not."""
    play = SimulatedTask(configured(tmp_path, 'cron = "0 0 * * *"'), FIRST_MS, 0)
    assert [one.at for one in play.until(FIRST_MS + DAY)] == [FIRST_MS]


def test_an_interval_goes_on(tmp_path: Path) -> None:
    """It is counted from a time that the daemon has accounted for, be it before the beginning or after it."""
    definition = configured(tmp_path, 'every = "45m"')
    for mark in (FIRST_MS - 50 * 60_000, FIRST_MS + 40 * 60_000):
        play = SimulatedTask(definition, FIRST_MS, 0, mark)
        assert [one.at - FIRST_MS for one in play.until(FIRST_MS + 2 * 3_600_000)] == [2_400_000, 5_100_000]
    play = SimulatedTask(definition, FIRST_MS, 0)
    assert next(play.until(FIRST_MS + DAY)) == Arrival(FIRST_MS + 2_700_000, "t", FIRST_MS + 2_700_000, "run", None)


def test_runs_that_wait(tmp_path: Path) -> None:
    """They begin when a place is free, and the longest wait is known; a timeout ends what takes longer."""
    play = SimulatedTask(configured(tmp_path, 'every = "10m"\nmax_concurrent = 1\ncoalesce = false'), FIRST_MS, 900_000)
    assert outcomes(play, FIRST_MS + 1_900_000) == ["run", "queued", "queued"]
    play.finish()
    assert [(began - FIRST_MS, end - FIRST_MS) for began, end in play.ran] == [
        (600_000, 1_500_000),
        (1_500_000, 2_400_000),
        (2_400_000, 3_300_000),
    ]
    assert play.longest_wait_ms == 600_000
    play = SimulatedTask(configured(tmp_path, 'every = "10m"\nmax_concurrent = 1\ntimeout = "9m"'), FIRST_MS, 900_000)
    assert set(outcomes(play, FIRST_MS + DAY)) == {"run"}


def test_jitter_moves_the_start(tmp_path: Path) -> None:
    """Not the time that a run stands for."""
    play = SimulatedTask(configured(tmp_path, 'cron = "0 * * * *"\njitter = "30m"'), START, 0)
    first = next(play.until(START + DAY))
    assert 0 < first.starts_at - first.at < 30 * 60_000
    assert first.at % 3_600_000 == 0
