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
from supervisor.ipc.plural import counted
from supervisor.scheduler.control.bulk_jobs import BulkJobs, Job
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.janitor_client import JanitorClient
from supervisor.scheduler.database.removal_clock import RemovalClock
from supervisor.scheduler.loop.paced_work import PacedWork
from supervisor.scheduler.loop.procedures import Procedure

_START_MS = 10_000
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


class RetentionChecks:
    """Decides when to check, and removes the runs that a check finds."""

    def __init__(self, core: Core, bulk: BulkJobs, janitor: JanitorClient, config: Config, clock: RemovalClock) -> None:
        self._daemon = core.daemon
        self._procedures = core.procedures
        self._log = core.log
        self._clock = clock
        self._bulk = bulk
        self._janitor = janitor
        self._rules, self._default_rule = rules_of(config)
        self.undo_window_ms = config.storage.undo_window_ms
        """How long a deleted run can be restored."""
        self._checks = PacedWork(core.loop, self._check)
        self._took_ms = 0.0
        self._next_deletion: int | None = None
        self._checks.request(_START_MS)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._rules, self._default_rule = rules_of(config)
        self.undo_window_ms = config.storage.undo_window_ms
        self._checks.request()

    def ended(self) -> None:
        """Request a check after a run ended."""
        self._checks.request()

    def deleted(self) -> None:
        """Request a check for the end of the undo window of runs that were just deleted."""
        self._checks.request(min(self.undo_window_ms, _SELDOM_MS))

    def _check(self) -> None:
        if not self._daemon.ending:
            self._procedures.start(self._remove(self._clock.earliest_ms()), self._failed)

    def _remove(self, now_ms: int) -> Procedure[None]:
        removed = yield from self._bulk.carry_out(
            Job(
                command="",
                find=lambda db: self._find(db, now_ms),
                work=lambda db, rows, _at_ms: purge(db, rows),
                event=None,
            )
        )
        if removed:
            self._log.info(f"removed {counted(removed, 'run')} for good")
            self._janitor.purge()
        self._plan_next()

    def _find(self, db: Database, now_ms: int) -> list[str]:
        """Return the ids of the runs to remove, in slices; runs in the reading thread."""
        start_s = time.thread_time()
        expired = now_ms - self.undo_window_ms
        slices = find_expired(db, expired) + find_excess(db, self._rules, self._default_rule, now_ms)
        self._next_deletion = first_deletion(db, expired)
        self._took_ms = (time.thread_time() - start_s) * 1000
        return slices

    def _failed(self, error: BaseException) -> None:
        self._log.warning(f"cannot remove old runs: {error}")
        self._plan_next(_FAILED_REST_MS)

    def _plan_next(self, least_ms: float = _LEAST_REST_MS) -> None:
        self._checks.done(max(least_ms, self._took_ms * _REST_FACTOR))
        if self._next_deletion is not None:
            due_ms = self._next_deletion + self.undo_window_ms - self._clock.earliest_ms()
            self._checks.request(max(0, due_ms))
        self._checks.request(_SELDOM_MS)
