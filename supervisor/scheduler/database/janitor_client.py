"""The client of the janitor process, which scans, compresses and removes logs.

The janitor starts for a scan:

* a minute after the scheduler starts;
* shortly after a run with a log ends;
* when a log becomes old enough for compression, as the previous janitor reported;
* every ten minutes while runs are active, because their logs grow.

At most one janitor runs at a time, and each reports the pause before the next scan. Files of purged runs are removed at
once, without a scan or a pause. If some cannot be removed, the next attempt follows after a delay that doubles: a disk
may be full for a moment, or stay read-only.
"""

from dataclasses import replace
from typing import Protocol

from supervisor.config.daemon_tables import Storage
from supervisor.config.model import Config
from supervisor.ipc.backoff import backoff
from supervisor.ipc.log_jobs import JanitorAnswer, JanitorJob, JanitorReport, JanitorRequest
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.paced_work import SOON_MS, PacedWork

_START_MS = 60_000
_GROWING_MS = 600_000
_KEPT_MS = (5000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000)
_FAILED = JanitorReport(next_ms=0, rest_ms=600_000)


class JanitorListener(Protocol):
    """Receives the results of the janitor."""

    def logs_may_grow(self) -> bool:
        """Return whether logs may grow because runs are active."""

    def files_removed(self, last: int, kept_files: list[int]) -> None:
        """Note that the files of purged runs up to number `last`, except `kept_files`, are removed."""

    def database_damaged(self) -> None:
        """Handle damage in the database that the janitor found."""


class JanitorClient(HelperClient):
    """Starts the janitor and handles its reports."""

    answers = (JanitorAnswer,)

    def __init__(
        self, loop: Loop, settings: DaemonSettings, storage: Storage, log: Log, listener: JanitorListener
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._job = JanitorJob(
            data_dir=settings.data_dir,
            runtime_dir=settings.runtime_dir,
            database=settings.database,
            log_level=settings.log_level,
            look=True,
            copy=settings.database_url is None,
            compress_after_ms=storage.compress_after_ms,
            max_log_bytes=storage.max_log_bytes,
        )
        self._process = HelperProcess(loop, log, "janitor", self)
        self._scanning = PacedWork(loop, lambda: self._start(look=True))
        self._purged = False
        """Whether runs were purged while a janitor ran."""
        self._again = Timer(self.purge)
        """Timer of the next attempt to remove files of purged runs."""
        self._kept_files: list[int] = []
        """Numbers of the files that the last attempt could not remove."""
        self._kept_times = 0
        """How many earlier attempts kept them."""
        self._scans = False
        """Whether the running janitor scans all logs."""
        self.request(_START_MS)

    def configure(self, config: Config) -> None:
        """Apply a new configuration; if it changes the janitor's job, request a scan."""
        changed = replace(
            self._job,
            log_level=config.daemon.log_level,
            compress_after_ms=config.storage.compress_after_ms,
            max_log_bytes=config.storage.max_log_bytes,
        )
        if changed != self._job:
            self._job = changed
            self.request()

    def request(self, delay_ms: float = SOON_MS) -> None:
        """Request a scan in `delay_ms` milliseconds, but not before the pause ends."""
        self._scanning.request(delay_ms)

    def purge(self) -> None:
        """Remove the files of purged runs now, or when the running janitor exits."""
        if self._scanning.busy:
            self._purged = True
        else:
            self._start(look=False)

    def _start(self, *, look: bool) -> None:
        self._scanning.busy, self._scans = True, look
        self._process.request("job", JanitorRequest(replace(self._job, look=look)))

    def helper_sent(self, message: JanitorAnswer) -> None:
        """Handle the report of a janitor."""
        report = message.report
        if report.removed:
            self._listener.files_removed(report.removed, report.kept)
        if report.damaged:
            self._listener.database_damaged()
        self._plan_next(report)

    def helper_failed(self, reason: str) -> None:  # noqa: ARG002 - logged already
        """Wait before the next job."""
        self._plan_next(_FAILED)

    def _plan_next(self, report: JanitorReport) -> None:
        self._process.close()
        self._scanning.done(report.rest_ms if self._scans else 0)
        if report.next_ms is not None:
            self.request(max(0, report.next_ms - self._loop.now_ms()))
        if report.kept:
            self._kept_times = self._kept_times + 1 if report.kept == self._kept_files else 0
            self._again.cancel()
            self._again = self._loop.after(backoff(_KEPT_MS, self._kept_times), self.purge)
        self._kept_files = report.kept
        if self._listener.logs_may_grow():
            self.request(_GROWING_MS)
        if self._purged:
            self._purged = False
            self.purge()

    def close(self) -> None:
        """Close the connection, which makes the janitor exit."""
        self._process.close()
