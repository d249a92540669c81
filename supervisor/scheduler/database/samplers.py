"""Samples of the host and of active runs, every five seconds.

A pass over all active runs is stored as one row. Runs shorter than one interval are not sampled. A pass works in
portions, because hundreds of processes would block the loop.

The readings of a run also stay in memory. They move to the row of the run when there are enough, or when it ends. If
the scheduler is killed before, the rows of its passes still have them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from store import idempotency, metrics, service_uptime, sessions
from store.daemon_values import set_meta
from store.database import Database
from store.metrics import FINE_MS, MetricSample
from store.runs import daily_outcomes, definitions, usage_counts
from store.runs import samples as run_samples
from store.runs.samples import RECENT, STEP_MS, Reading, Usage
from supervisor.host import cgroup_usage
from supervisor.host.host_usage import Host
from supervisor.host.process_usage import Processes, boot_ticks
from supervisor.host.run_usage import TotalUsage
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.database.removal_clock import STATE, RemovalClock
from supervisor.scheduler.loop.loop import Loop, Timer


class HostSampler:
    """Samples the host. Every hour or day it also removes old roll-ups, idempotency keys and sessions.

    Args:
        clock: decides about age; its state is stored every hour.
        data_dir: directory whose file system is measured.
        running: returns the number of active runs.
        commit: stores a change.
    """

    def __init__(
        self,
        loop: Loop,
        clock: RemovalClock,
        data_dir: str,
        running: Callable[[], int],
        commit: Callable[[Change], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._data_dir = data_dir
        self._running = running
        self._commit = commit
        self._host = Host()
        self._day = self._hour = -1
        self._due_s = 0.0
        self._timer: Timer | None = None
        self._wait()

    def _wait(self) -> None:
        delay_ms = FINE_MS - self._loop.now_ms() % FINE_MS
        self._due_s = self._loop.now_s() + delay_ms / 1000
        self._timer = self._loop.after(delay_ms, self._take)

    def _take(self) -> None:
        lag_ms = max(0.0, (self._loop.now_s() - self._due_s) * 1000)
        now_ms = self._loop.now_ms()
        sample = MetricSample(now_ms, **asdict(self._host.read()), running=self._running(), lag=lag_ms)
        # The change is not retried: a sample that cannot be stored is dropped.
        change = Change(now_ms, lambda _error: None)
        earliest_ms, latest_ms = self._clock.earliest_ms(), self._clock.latest_ms()
        change.write(self._store, sample, earliest_ms, latest_ms)
        if now_ms // daily_outcomes.DAY_MS != self._day:
            self._day = now_ms // daily_outcomes.DAY_MS
            change.write(daily_outcomes.prune, earliest_ms)
            change.write(service_uptime.prune, earliest_ms)
            change.write(definitions.prune)
        if now_ms // usage_counts.HOUR_MS != self._hour:
            self._hour = now_ms // usage_counts.HOUR_MS
            state = self._clock.state()
            change.write(usage_counts.roll, earliest_ms)
            change.write(idempotency.prune, earliest_ms)
            change.write(sessions.delete_expired, earliest_ms)
            change.write(set_meta, STATE, state)
        self._commit(change)
        self._wait()

    def _store(self, db: Database, sample: MetricSample, earliest_ms: int, latest_ms: int) -> None:
        """Add the disk usage to a sample and store it.

        This runs in the store thread, because statvfs(2) may block. A hung file system blocks that thread anyway.
        """
        used = None
        with suppress(OSError):
            filesystem = os.statvfs(self._data_dir)
            used = (filesystem.f_blocks - filesystem.f_bfree) * filesystem.f_frsize
        metrics.add(db, sample._replace(disk_used=used), earliest_ms, latest_ms)

    def close(self) -> None:
        """Stop sampling the host."""
        if self._timer is not None:
            self._timer.cancel()


_ROWS_PER_PASS = 20
"""Maximum number of rows that a pass rewrites; more would delay other writes."""
_MOST_WAITING = 4 * RECENT
"""Maximum number of a run's readings in memory while the database cannot be written."""
_PORTION = 20
"""Number of cgroups to read in one turn of the loop."""


@dataclass(slots=True)
class _Run:
    """A sampled run."""

    pid: int
    since_s: float
    cgroup: str | None = None
    found_out: bool = False
    """Whether its cgroup was looked up."""
    readings: list[tuple[int, Reading]] = field(default_factory=list)
    """Readings that are not in the row of the run yet, with their pass numbers."""


class RunSampler:
    """Samples active runs.

    Args:
        loop: the loop of the scheduler.
        commit: stores a change.
        supervisor: process id of the supervisor.
        running: the active runs in the supervisor's snapshot, by run id.
        usages: the stored usage of these runs, by run id.
    """

    def __init__(
        self,
        loop: Loop,
        commit: Callable[[Change], None],
        supervisor: int,
        running: Mapping[str, dict[str, Any]],
        usages: Mapping[str, Usage],
    ) -> None:
        self._loop = loop
        self._commit = commit
        self._processes = Processes(supervisor)
        self._mount = cgroup_usage.mount_of()
        self._runs: dict[str, _Run] = {}
        self._number = 0
        self._timer: Timer | None = None
        for run_id, instance in running.items():
            self.started(run_id, instance["pid"], usages.get(run_id))

    def started(self, run_id: str, pid: int, usage: Usage | None = None) -> None:
        """Begin to sample a run with process `pid`; `usage` is its stored usage after a takeover."""
        before = None
        if usage is not None:
            sums = (usage.user_ms, usage.system_ms)
            before = TotalUsage(*sums, 0, 0, usage.read_bytes, usage.written_bytes)
        self._processes.add(run_id, pid, boot_ticks(), before)
        self._runs[run_id] = _Run(pid, self._loop.now_s())
        if self._timer is None:
            self._wait()

    def ended(self, run_id: str, change: Change) -> None:
        """Stop sampling a run, and store its remaining readings together with its end."""
        self._processes.remove(run_id)
        run = self._runs.pop(run_id, None)
        if run is not None and run.readings:
            number, readings = self._number, [reading for _, reading in run.readings]
            change.write(run_samples.store_readings, number, {run_id: readings})

    def _wait(self) -> None:
        self._timer = self._loop.after(STEP_MS - self._loop.now_ms() % STEP_MS, self._sample_due)

    def _sample_due(self) -> None:
        """Begin a pass, if any run has been active for an interval."""
        if not self._runs:
            self._timer = None
            return
        oldest_s = self._loop.now_s() - STEP_MS / 1000
        runs = {run_id: run for run_id, run in self._runs.items() if run.since_s <= oldest_s}
        if not runs:
            self._wait()
            return
        usages: dict[str, TotalUsage] = {}
        self._go_on(self._portions(runs, usages), usages)

    def _portions(self, runs: Mapping[str, _Run], usages: dict[str, TotalUsage]) -> Iterator[None]:
        """Read all runs into `usages`; yield after each portion."""
        others: set[str] = set()
        for number, (run_id, run) in enumerate(runs.items(), 1):
            if not run.found_out:
                run.found_out = True
                run.cgroup = cgroup_usage.cgroup_of(run_id, run.pid, self._mount)
            if run.cgroup is None:
                others.add(run_id)
            elif (usage := cgroup_usage.read_usage(run.cgroup)) is not None:
                usages[run_id] = usage
            if number % _PORTION == 0:
                yield
        if others:
            yield from self._processes.sample(frozenset(others), usages)

    def _go_on(self, portions: Iterator[None], usages: dict[str, TotalUsage]) -> None:
        for _ in portions:
            self._timer = self._loop.after(0, self._go_on, portions, usages)
            return
        self._store({run_id: usage for run_id, usage in usages.items() if run_id in self._runs})
        self._wait()

    def _store(self, usages: Mapping[str, TotalUsage]) -> None:
        if not usages:
            return
        self._number = number = self._number + 1
        now_ms = self._loop.now_ms()
        readings = {run_id: _reading(now_ms, usage) for run_id, usage in usages.items()}
        for run_id, reading in readings.items():
            waiting = self._runs[run_id].readings
            waiting.append((number, reading))
            if len(waiting) > _MOST_WAITING:
                del waiting[: _MOST_WAITING - RECENT : 2]
        taken_out = self._taken_out()

        def not_stored(_error: BaseException) -> None:
            # The pass is not retried, but its run readings return to memory for a later pass to store.
            for run, before in taken_out.values():
                run.readings[:0] = before

        change = Change(now_ms, not_stored)
        change.write(run_samples.add_pass, number, readings)
        if taken_out:
            stored = {run_id: [reading for _, reading in before] for run_id, (_, before) in taken_out.items()}
            first = min((run.readings[0][0] for run in self._runs.values() if run.readings), default=number + 1)
            change.write(run_samples.store_readings, number, stored)
            change.write(run_samples.drop_passes, first)
        self._commit(change)

    def _taken_out(self) -> dict[str, tuple[_Run, list[tuple[int, Reading]]]]:
        """Take from memory the readings to store in rows in this pass: of few runs, which limits the write."""
        batch: dict[str, tuple[_Run, list[tuple[int, Reading]]]] = {}
        for run_id, run in self._runs.items():
            if len(run.readings) >= RECENT and len(batch) < _ROWS_PER_PASS:
                batch[run_id] = run, run.readings
                run.readings = []
        return batch

    def close(self) -> None:
        """Stop sampling."""
        if self._timer is not None:
            self._timer.cancel()


def _reading(now_ms: int, usage: TotalUsage) -> Reading:
    return Reading(
        now_ms,
        usage.user_ms,
        usage.system_ms,
        usage.rss_bytes,
        usage.processes,
        usage.read_bytes,
        usage.written_bytes,
    )
