"""Samples of the host, and the cleanup that happens with them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store import metrics, sessions
from store.errors import DiskFull
from store.runs.daily_outcomes import KEPT_DAYS
from supervisor.scheduler.database.removal_clock import HOLD_S, RemovalClock
from supervisor.scheduler.database.samplers import HostSampler
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock
from tests.scheduler.runs.schedules import START
from tests.support.waiting import until

Make = Callable[[str], Bench]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Bench]:
    """A scheduler whose clock moves on while its loop waits."""
    made = Bench(tmp_path, "", FakeClock(START))
    yield made
    made.close()


def sampled(harness: Bench) -> HostSampler:
    """Return a sampler whose first sample waits for the store."""
    made = HostSampler(harness.loop, RemovalClock(harness.loop, "", None), "/", lambda: 3, harness.committer.commit)

    def has_sample() -> bool:
        harness.loop.round(harness.loop.now_s() + 5.0)
        return bool(harness.store.jobs)

    # The sampler waits for the next multiple of five seconds of the wall clock.
    until(has_sample, "a sample")
    return made


def test_sample(harness: Bench) -> None:
    """A sample has the number of runs, memory, disk usage and the lag of the loop.

    Old statistics are removed with it.
    """
    harness.store.database.execute("INSERT INTO task_days VALUES ('a', ?, 55, 1, 0, 0, NULL)", [20_000 - KEPT_DAYS])
    harness.store.database.execute("INSERT INTO task_usage VALUES ('a', 300000, 0, 1, 0, 0, NULL, NULL, NULL)")
    sampler = sampled(harness)
    harness.store.work_all()
    row = metrics.newest(harness.store.database)
    assert row is not None
    assert row.at % metrics.FINE_MS == 0
    assert row.running == 3
    assert (row.memory_used or 0) > 0
    assert (row.disk_used or 0) > 0
    assert row.lag is not None
    assert harness.store.database.rows("SELECT * FROM task_days") == []
    assert harness.store.database.rows("SELECT * FROM task_usage") == []
    sampler.close()


def test_failed_sample_is_dropped(harness: Bench) -> None:
    """A sample that cannot be stored is dropped and delays nothing."""
    sampler = sampled(harness)
    harness.store.fail(DiskFull("full"))
    assert harness.committer.idle
    assert metrics.newest(harness.store.database) is None
    sampler.close()


DAY_MS = 86_400_000


class SamplerBench:
    """A sampler with clocks that the test moves."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock(START)
        self.bench = Bench(directory, "", self.clock)
        loop = self.bench.loop
        self.sampler = HostSampler(loop, RemovalClock(loop, "", None), "/", lambda: 0, self.bench.committer.commit)

    def passes(self, by_ms: int) -> list[str]:
        """Let time pass and return the remaining sessions."""
        self.clock.advance(by_ms / 1000)
        self.bench.loop.round(0)
        self.bench.store.work_all()
        return [row[0] for row in self.bench.store.database.rows("SELECT hash FROM sessions ORDER BY hash")]


@pytest.fixture
def hourly(tmp_path: Path) -> Iterator[SamplerBench]:
    harness = SamplerBench(tmp_path)
    yield harness
    harness.sampler.close()
    harness.bench.close()


def test_sessions_expire(hourly: SamplerBench) -> None:
    """Sessions are removed within an hour after they ended."""
    sessions.create(hourly.bench.store.database, "old", "tag", START - sessions.MAX_IDLE_MS)
    sessions.create(hourly.bench.store.database, "new", "tag", START - sessions.MAX_IDLE_MS + 2 * 3_600_000)
    assert hourly.passes(3_600_000) == ["new"]
    assert hourly.passes(3 * 3_600_000) == []


def test_sessions_survive_a_clock_jump(hourly: SamplerBench) -> None:
    """A clock that is 400 days ahead removes no session until it has held for an hour."""
    sessions.create(hourly.bench.store.database, "one", "tag", START)
    hourly.clock.wall += 400 * DAY_MS
    assert hourly.passes(8000) == ["one"]
    hourly.clock.wall -= 400 * DAY_MS
    assert hourly.passes(3_600_000) == ["one"]
    hourly.clock.wall += 400 * DAY_MS
    assert hourly.passes(8000) == ["one"]
    assert hourly.passes(round(HOLD_S * 1000)) == []
