"""Samples of runs, with real processes and a clock that the test moves."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

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
    """A loop whose time the test advances."""

    def __init__(self, ms: int) -> None:
        self.ms = ms
        self.timers: list[tuple[int, Timer]] = []

    def now_ms(self) -> int:
        return self.ms

    def now_s(self) -> float:
        return self.ms / 1000

    def after(self, delay_ms: int, function: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(partial(function, *arguments))
        self.timers.append((self.ms + delay_ms, timer))
        return timer

    def forward(self, ms: int) -> None:
        """Advance the time and call due timers."""
        end = self.ms + ms
        while due := sorted((at, timer) for at, timer in self.timers if at <= end and not timer.cancelled):
            self.ms, timer = due[0]
            self.timers.remove(due[0])
            timer.function()
        self.ms = end


class SamplerBench:
    """A sampler and its store."""

    def __init__(
        self, harness: Bench, running: dict[str, int], usages: dict[str, Usage] | None = None, ms: int = T0
    ) -> None:
        self.one = harness
        self.clock = Clock(ms)
        by_run_id = {run_id: {"pid": pid} for run_id, pid in running.items()}
        self.sampler = RunSampler(
            cast(Loop, self.clock), harness.committer.commit, os.getpid(), by_run_id, usages or {}
        )

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
        """Return the times of the samples in intervals since the start."""
        usage = self.usage(run_id)
        return [] if usage is None else [(point.at - T0) // STEP_MS + 1 for point in usage.points]

    def rows(self, table: str) -> int:
        return len(self.one.store.database.rows(f"SELECT * FROM {table}"))


@contextmanager
def sleeping() -> Iterator[int]:
    """Start a sleeping process and yield its id."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        yield child.pid
        child.kill()


@pytest.fixture
def pid() -> Iterator[int]:
    with sleeping() as sleeper:
        yield sleeper


def test_one_row_per_interval(bench: Make, pid: int) -> None:
    """All running runs are sampled every five seconds by the clock, in one row; ended runs are not sampled."""
    with sleeping() as other:
        harness = SamplerBench(bench(""), {A: pid, B: other})
        harness.forward(4)
        assert harness.times(A) == harness.times(B) == [2, 3, 4]
        assert (harness.rows("run_passes"), harness.rows("run_samples")) == (3, 0)
        usage = harness.usage(A)
        assert usage is not None
        assert usage.peak_rss_bytes > 0
        assert {(point.at % STEP_MS, point.processes) for point in usage.points} == {(0, 1)}
        harness.end(A)
        harness.forward(2)
    stored = run_samples.of_ended(harness.one.store.database, A)
    assert stored is not None
    assert stored.points == usage.points
    assert harness.times(B) == [2, 3, 4, 5, 6]


def test_short_runs_cost_nothing(bench: Make, pid: int) -> None:
    """A run shorter than an interval is not sampled and stores nothing; without runs there is no timer."""
    harness = SamplerBench(bench(""), {})
    assert harness.clock.timers == []
    harness.sampler.started(A, pid)
    harness.forward(1)
    assert (harness.usage(A), harness.rows("run_passes")) == (None, 0)
    harness.end(A)
    harness.forward(1)
    assert (harness.rows("run_passes"), harness.rows("run_samples"), harness.clock.timers) == (0, 0, [])


def test_long_runs(bench: Make, pid: int) -> None:
    """Samples of a long run move into its own row, and none is lost, repeated or left behind."""
    harness = SamplerBench(bench(""), {A: pid})
    harness.forward(RECENT - 5)
    with sleeping() as other:
        harness.sampler.started(B, other)
        harness.forward(20)
        assert harness.times(A) == list(range(2, RECENT + 16))
        assert harness.rows("run_passes") < 25
        harness.end(A)
        harness.end(B)
    assert harness.times(A) == list(range(2, RECENT + 16))
    assert harness.times(B) == list(range(RECENT - 3, RECENT + 16))
    harness.sampler.started(A, pid)
    harness.forward(2 * MOST)
    assert len(harness.times(A)) <= MOST
    assert harness.rows("run_passes") <= RECENT


def test_scheduler_restart(bench: Make, pid: int) -> None:
    """Samples that a killed scheduler had not moved into the run's row are kept, and totals continue."""
    before = SamplerBench(bench(""), {A: pid})
    before.forward(4)
    database = before.one.store.database
    usages = run_samples.of_running(database, [A])
    usages[A] = usages[A]._replace(user_ms=70_000, read_bytes=5_000_000_000)
    after = SamplerBench(before.one, {A: pid}, usages, before.clock.ms)
    run_samples.store_passes(database, [A])
    after.forward(2)
    assert after.times(A) == [2, 3, 4, 6]
    usage = after.usage(A)
    assert usage is not None
    assert (usage.user_ms, usage.read_bytes) == (70_000, 5_000_000_000)


def test_failed_samples(bench: Make, pid: int) -> None:
    """Samples that cannot be stored delay nothing, and are stored in the run's row at its end."""
    harness = SamplerBench(bench(""), {A: pid})
    for _ in range(10):
        harness.clock.forward(STEP_MS)
        while harness.one.store.jobs:
            harness.one.store.fail(DiskFull("full"))
    assert harness.one.committer.idle
    assert harness.usage(A) is None
    harness.end(A)
    assert harness.times(A) == list(range(2, 11))


def test_unstored_samples_are_bounded(bench: Make, pid: int) -> None:
    """The memory for unstored samples is bounded, and the newest samples are kept."""
    harness = SamplerBench(bench(""), {A: pid})
    for _ in range(3 * MOST):
        harness.clock.forward(STEP_MS)
        while harness.one.store.jobs:
            harness.one.store.fail(DiskFull("full"))
    harness.end(A)
    times = harness.times(A)
    assert RECENT < len(times) <= MOST
    assert times[-10:] == list(range(3 * MOST - 9, 3 * MOST + 1))


def test_ended_process(bench: Make) -> None:
    """A run whose process has ended has no further sample, even before its end is reported."""
    with sleeping() as pid:
        harness = SamplerBench(bench(""), {A: pid})
        harness.forward(2)
    harness.forward(2)
    assert harness.times(A) == [2]
