"""Samples of runs, as the scheduler takes them: of real processes, on a clock of the test's own."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from store.errors import DiskFull
from store.runs import samples as run_samples
from store.runs.samples import MOST, RECENT, STEP_MS, Usage
from supervisor.scheduler.database.samplers import RunSampler
from supervisor.scheduler.loop.loop import Loop, Timer
from tests.scheduler.bench import Bench

Make = Callable[[str], Bench]
A, B = "A" * 26, "B" * 26
T0 = 1_780_000_000_000 // STEP_MS * STEP_MS + 1234


class Clock:
    """A loop whose time passes when the test says so."""

    def __init__(self, ms: int) -> None:
        self.ms = ms
        self.timers: list[tuple[int, Timer]] = []

    def now_ms(self) -> int:
        return self.ms

    def now_s(self) -> float:
        return self.ms / 1000

    def after(self, delay_ms: int, function: Callable[[], None]) -> Timer:
        timer = Timer(function)
        self.timers.append((self.ms + delay_ms, timer))
        return timer

    def forward(self, ms: int) -> None:
        """Advance time, and call everything due."""
        end = self.ms + ms
        while due := sorted((at, timer) for at, timer in self.timers if at <= end and not timer.cancelled):
            self.ms, timer = due[0]
            self.timers.remove(due[0])
            timer.function()
        self.ms = end


class Sampled:
    """A sampler and its store."""

    def __init__(
        self, one: Bench, running: dict[str, int], usages: dict[str, Usage] | None = None, ms: int = T0
    ) -> None:
        self.one = one
        self.clock = Clock(ms)
        known = {run_id: {"pid": pid} for run_id, pid in running.items()}
        self.sampler = RunSampler(cast(Loop, self.clock), one.committer.commit, os.getpid(), known, usages or {})

    def forward(self, passes: int) -> None:
        for _ in range(passes):
            self.clock.forward(STEP_MS)
            self.one.store.work_all()

    def end(self, run_id: str) -> None:
        change = self.one.committer.change()
        self.sampler.ended(run_id, change)
        self.one.committer.commit(change)
        self.one.store.work_all()

    def usage(self, run_id: str) -> Usage | None:
        return run_samples.of_running(self.one.store.database, [run_id]).get(run_id)

    def times(self, run_id: str) -> list[int]:
        """In intervals since the beginning."""
        usage = self.usage(run_id)
        return [] if usage is None else [(point.at - T0) // STEP_MS + 1 for point in usage.points]

    def rows(self, table: str) -> int:
        return len(self.one.store.database.rows(f"SELECT * FROM {table}"))


@contextmanager
def sleeping() -> Iterator[int]:
    """The id of a process that sleeps."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        yield child.pid
        child.kill()


@pytest.fixture
def pid() -> Iterator[int]:
    with sleeping() as found:
        yield found


def test_every_interval(bench: Make, pid: int) -> None:
    """All running runs are sampled every five seconds by the clock, in one row; ended runs are not."""
    with sleeping() as other:
        one = Sampled(bench(""), {A: pid, B: other})
        one.forward(4)
        assert one.times(A) == one.times(B) == [2, 3, 4]
        assert (one.rows("run_passes"), one.rows("run_samples")) == (3, 0)
        usage = one.usage(A)
        assert usage is not None
        assert usage.peak_rss_bytes > 0
        assert {(point.at % STEP_MS, point.processes) for point in usage.points} == {(0, 1)}
        one.end(A)
        one.forward(2)
    stored = run_samples.of_ended(one.one.store.database, A)
    assert stored is not None
    assert stored.points == usage.points
    assert one.times(B) == [2, 3, 4, 5, 6]


def test_short_runs_cost_nothing(bench: Make, pid: int) -> None:
    """A run younger than an interval is not looked at, and its end stores nothing; without runs there is no timer."""
    one = Sampled(bench(""), {})
    assert one.clock.timers == []
    one.sampler.started(A, pid)
    one.forward(1)
    assert (one.usage(A), one.rows("run_passes")) == (None, 0)
    one.end(A)
    one.forward(1)
    assert (one.rows("run_passes"), one.rows("run_samples"), one.clock.timers) == (0, 0, [])


def test_long_runs(bench: Make, pid: int) -> None:
    """However long it takes: passes move into the row of the run, and nothing is lost, told twice or left behind."""
    one = Sampled(bench(""), {A: pid})
    one.forward(RECENT - 5)
    with sleeping() as other:
        one.sampler.started(B, other)
        one.forward(20)
        assert one.times(A) == list(range(2, RECENT + 16))
        assert one.rows("run_passes") < 25
        one.end(A)
        one.end(B)
    assert one.times(A) == list(range(2, RECENT + 16))
    assert one.times(B) == list(range(RECENT - 3, RECENT + 16))
    one.sampler.started(A, pid)
    one.forward(2 * MOST)
    assert len(one.times(A)) <= MOST
    assert one.rows("run_passes") <= RECENT


def test_the_next_scheduler_goes_on(bench: Make, pid: int) -> None:
    """Samples that a killed scheduler had not moved into the run's row are kept, and sums continue."""
    before = Sampled(bench(""), {A: pid})
    before.forward(4)
    database = before.one.store.database
    usages = run_samples.of_running(database, [A])
    usages[A] = usages[A]._replace(user_ms=70_000, read_bytes=5_000_000_000)
    after = Sampled(before.one, {A: pid}, usages, before.clock.ms)
    run_samples.settle_passes(database, [A])
    after.forward(2)
    assert after.times(A) == [2, 3, 4, 6]
    found = after.usage(A)
    assert found is not None
    assert (found.user_ms, found.read_bytes) == (70_000, 5_000_000_000)


def test_a_sample_that_cannot_be_stored(bench: Make, pid: int) -> None:
    """It holds up nothing, and is in the run's row when that can be stored again."""
    one = Sampled(bench(""), {A: pid})
    for _ in range(10):
        one.clock.forward(STEP_MS)
        while one.one.store.jobs:
            one.one.store.fail(DiskFull("full"))
    assert one.one.committer.idle
    assert one.usage(A) is None
    one.end(A)
    assert one.times(A) == list(range(2, 11))


def test_never_stored_for_long(bench: Make, pid: int) -> None:
    """What waits in memory is bounded, too."""
    one = Sampled(bench(""), {A: pid})
    for _ in range(3 * MOST):
        one.clock.forward(STEP_MS)
        while one.one.store.jobs:
            one.one.store.fail(DiskFull("full"))
    one.end(A)
    times = one.times(A)
    assert RECENT < len(times) <= MOST
    assert times[-10:] == list(range(3 * MOST - 9, 3 * MOST + 1))


def test_a_process_that_is_gone(bench: Make) -> None:
    """A run whose end is not reported yet has no sample."""
    with sleeping() as pid:
        one = Sampled(bench(""), {A: pid})
        one.forward(2)
    one.forward(2)
    assert one.times(A) == [2]
