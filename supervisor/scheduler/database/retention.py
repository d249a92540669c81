"""Retention: removes deleted runs after the undo window, and runs beyond the limits of their task.

Rows are removed first, in slices. The same transaction records that their files must be removed; the janitor does so
and reports it. So every visible run has its log, and no file is forgotten even after a crash. Schedules are not
affected: a task's ``last_instant`` does not depend on its runs.

:mod:`supervisor.scheduler.database.removal_clock` decides about age. A check takes place shortly after a run ends, when
an undo window passes, and every ten minutes; less often if checks are slow.
"""

import time
from collections.abc import Mapping

from store.database import Database
from store.runs.bulk import Retention as Rule
from store.runs.bulk import find_excess, find_expired, first_deletion, purge
from supervisor.config.model import Config, Service, Task
from supervisor.ipc.log_line import Log
from supervisor.ipc.plural import counted
from supervisor.scheduler.control.bulk_jobs import BulkJobs, Job
from supervisor.scheduler.database.janitor_client import JanitorClient
from supervisor.scheduler.database.removal_clock import RemovalClock
from supervisor.scheduler.loop.loop import Loop, Timer

_START_MS = 10_000
_SOON_MS = 1000
_SELDOM_MS = 600_000
_LEAST_REST_MS = 5000
_FAILED_REST_MS = 60_000
_REST_FACTOR = 50
"""The pause after a check is this many times its processor time, so checks take at most 2 % of a core."""


def rules_of(config: Config) -> tuple[Mapping[str, Rule], Rule]:
    """Return the limits of each task and service, and the default limits, which apply to removed units."""
    units: list[Task | Service] = [*config.tasks.values(), *config.services.values()]
    rules = {unit.name: Rule(unit.keep_runs, unit.keep_for_ms, unit.keep_refused) for unit in units}
    return rules, Rule(config.keep_runs, config.keep_for_ms, config.keep_refused)


class Retention:
    """Decides when to check, and removes the runs that a check finds."""

    def __init__(
        self,
        loop: Loop,
        bulk: BulkJobs,
        janitor: JanitorClient,
        config: Config,
        clock: RemovalClock,
        log: Log,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._bulk = bulk
        self._janitor = janitor
        self._log = log
        self._rules, self._default_rule = rules_of(config)
        self.undo_window_ms = config.storage.undo_window_ms
        """How long a deleted run can be restored."""
        self._timer: Timer | None = None
        self._at_s = 0.0
        self._earliest_s = 0.0
        self._checking = False
        self._check_again = False
        """Whether a check was requested while another one was in progress."""
        self._took_ms = 0.0
        self._next_deletion: int | None = None
        self._schedule(_START_MS)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._rules, self._default_rule = rules_of(config)
        self.undo_window_ms = config.storage.undo_window_ms
        self._schedule(_SOON_MS)

    def ended(self) -> None:
        """Request a check after a run ended."""
        self._schedule(_SOON_MS)

    def deleted(self) -> None:
        """Request a check for the end of the undo window of runs that were just deleted."""
        self._schedule(self.undo_window_ms)

    def _schedule(self, delay_ms: float) -> None:
        if self._checking:
            self._check_again = True
            return
        now_s = self._loop.now_s()
        at_s = max(now_s + min(delay_ms, _SELDOM_MS) / 1000, self._earliest_s)
        if self._timer is not None:
            if self._at_s <= at_s:
                return
            self._timer.cancel()
        self._at_s = at_s
        self._timer = self._loop.after((at_s - now_s) * 1000, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._bulk.ending:
            return
        self._checking = True
        now_ms = self._clock.earliest_ms()
        self._bulk.submit(
            Job(
                command="",
                find=lambda db: self._find(db, now_ms),
                work=lambda db, rows, _at_ms: purge(db, rows),
                event=None,
                done=self._on_removed,
                failed=self._failed,
            )
        )

    def _find(self, db: Database, now_ms: int) -> list[str]:
        """Return the ids of the runs to remove, in slices; runs in the reading thread."""
        start_s = time.thread_time()
        expired = now_ms - self.undo_window_ms
        slices = find_expired(db, expired) + find_excess(db, self._rules, self._default_rule, now_ms)
        self._next_deletion = first_deletion(db, expired)
        self._took_ms = (time.thread_time() - start_s) * 1000
        return slices

    def _on_removed(self, removed: int) -> None:
        if removed:
            self._log.info(f"removed {counted(removed, 'run')} for good")
            self._janitor.purge()
        self._plan_next()

    def _failed(self, error: BaseException) -> None:
        self._log.warning(f"cannot remove old runs: {error}")
        self._plan_next(_FAILED_REST_MS)

    def _plan_next(self, least_ms: float = _LEAST_REST_MS) -> None:
        self._checking = False
        self._earliest_s = self._loop.now_s() + max(least_ms, self._took_ms * _REST_FACTOR) / 1000
        if self._check_again:
            self._check_again = False
            self._schedule(_SOON_MS)
        if self._next_deletion is not None:
            self._schedule(max(0, self._next_deletion + self.undo_window_ms - self._clock.earliest_ms()))
        self._schedule(_SELDOM_MS)
