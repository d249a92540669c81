"""Samples, as the scheduler takes them."""

from collections.abc import Callable

from store import metrics
from store.errors import DiskFull
from store.runs.daily_outcomes import KEPT_DAYS
from supervisor.scheduler.database.removal_clock import RemovalClock
from supervisor.scheduler.database.samplers import HostSampler
from tests.scheduler.bench import Bench
from tests.support.waiting import until

Make = Callable[[str], Bench]


def sampled(one: Bench) -> HostSampler:
    """A sampler that has taken a sample, which waits for the store."""
    made = HostSampler(one.loop, RemovalClock(one.loop, "", None), "/", lambda: 3, one.engine.commit)

    def taken() -> bool:
        one.loop.round(0.05)
        return bool(one.store.jobs)

    # The next multiple of five seconds on the clock is what it waits for.
    until(taken, "a sample")
    return made


def test_a_sample(bench: Make) -> None:
    """It says how many runs there are, how the host does, and how late the loop was; old days go with it."""
    one = bench("")
    one.store.database.execute("INSERT INTO task_days VALUES ('a', ?, 55, 1, 0, 0, NULL)", [20_000 - KEPT_DAYS])
    one.store.database.execute("INSERT INTO task_usage VALUES ('a', 300000, 0, 1, 0, 0, NULL, NULL, NULL)")
    sampler = sampled(one)
    one.store.work_all()
    found = metrics.newest(one.store.database)
    assert found is not None
    assert found.at % metrics.FINE_MS == 0
    assert found.running == 3
    assert (found.memory_used or 0) > 0
    assert (found.disk_used or 0) > 0
    assert (found.lag or 0) >= 0
    assert one.store.database.rows("SELECT * FROM task_days") == []
    assert one.store.database.rows("SELECT * FROM task_usage") == []
    sampler.close()


def test_one_that_cannot_be_stored(bench: Make) -> None:
    """It is given up, and holds up nothing."""
    one = bench("")
    sampler = sampled(one)
    one.store.fail(DiskFull("full"))
    assert one.committer.idle
    assert metrics.newest(one.store.database) is None
    sampler.close()
