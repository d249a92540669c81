"""A sample of the host every five seconds, for the store; and what of the roll-ups is too old goes, or is rolled up."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from store import idempotency, metrics, usage_counts
from store.database import Database
from store.meta import set_meta
from store.metrics import FINE_MS, Sample
from store.runs import daily_outcomes
from supervisor.host.host_usage import Host
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.database.removal_clock import STATE, RemovalClock
from supervisor.scheduler.loop.loop import Loop, Timer


class Sampler:
    """Measures while the scheduler lives.

    Args:
        clock: by which old roll-ups go; its state is stored every hour.
        data_dir: whose file system is watched.
        running: number of runs that are running.
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
        sample = Sample(now_ms, **asdict(self._host.read()), running=self._running(), lag=lag_ms)
        # Nobody waits for a sample: one that cannot be stored is not worth keeping.
        change = Change(now_ms, lambda _error: True)
        earliest_ms, latest_ms = self._clock.earliest_ms(), self._clock.latest_ms()
        change.write(lambda db: self._store(db, sample, earliest_ms, latest_ms))
        if now_ms // daily_outcomes.DAY_MS != self._day:
            self._day = now_ms // daily_outcomes.DAY_MS
            change.write(lambda db: daily_outcomes.prune(db, earliest_ms))
        if now_ms // usage_counts.HOUR_MS != self._hour:
            self._hour = now_ms // usage_counts.HOUR_MS
            state = self._clock.state()
            change.write(lambda db: usage_counts.roll(db, earliest_ms))
            change.write(lambda db: idempotency.prune(db, earliest_ms))
            change.write(lambda db: set_meta(db, STATE, state))
        self._commit(change)
        self._wait()

    def _store(self, db: Database, sample: Sample, earliest_ms: int, latest_ms: int) -> None:
        """In the store's thread: a file system that hangs holds up the store in any case, but never the loop."""
        used = None
        with suppress(OSError):
            found = os.statvfs(self._data_dir)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
        metrics.add(db, sample._replace(disk_used=used), earliest_ms, latest_ms)

    def close(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._host.close()
