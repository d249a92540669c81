"""The search for old runs."""

from types import SimpleNamespace
from typing import Any, cast

from store.errors import DiskFull
from supervisor.config.model import Config
from supervisor.ipc.log_line import Log
from supervisor.scheduler.control.bulk_jobs import BulkJobs, Job
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.database.janitor_client import JanitorClient
from supervisor.scheduler.database.removal_clock import RemovalClock
from supervisor.scheduler.database.retention import RetentionChecks
from supervisor.scheduler.loop.daemon_state import DaemonState
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedure, Procedures
from tests.scheduler.database.test_janitor_client import ManualLoop


class _Lines(Log):
    """Keeps logged lines."""

    def __init__(self) -> None:
        super().__init__("test")
        self.lines: list[bytes] = []

    def emit(self, line: bytes) -> None:
        self.lines.append(line)


class _FullDisk:
    """Always finds runs to remove, and always fails to remove them."""

    retention: Any

    def carry_out(self, _job: Job) -> Procedure[int]:
        self.retention._next_deletion = 0
        yield lambda waiter: waiter.refuse(DiskFull())
        return 0


def test_failed_removal() -> None:
    """If old runs cannot be removed, the attempts and their log lines stay rare, however many runs end."""
    loop, log, bulk = ManualLoop(), _Lines(), _FullDisk()
    config = SimpleNamespace(
        tasks={}, services={}, keep_runs=1, keep_for_ms=1, keep_refused=1, storage=SimpleNamespace(undo_window_ms=0)
    )
    bulk.retention = RetentionChecks(
        Core(
            cast(Loop, loop), cast(DaemonState, SimpleNamespace(ending=False)), cast(Committer, None), log, Procedures()
        ),
        cast(BulkJobs, bulk),
        cast(JanitorClient, SimpleNamespace()),
        cast(Config, config),
        cast(RemovalClock, SimpleNamespace(earliest_ms=loop.now_ms)),
    )
    for _ in range(3600):
        bulk.retention.ended()
        loop.advance(1000)
    assert 50 <= len(log.lines) <= 60
