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

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from supervisor.config.daemon_tables import Storage
from supervisor.config.model import Config
from supervisor.ipc.child_process import RINGWARD
from supervisor.ipc.janitor_job import Job, Report
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.loop.helper_process import start_tracked
from supervisor.scheduler.loop.loop import Loop, Timer

_SOON_MS = 1000
_START_MS = 60_000
_GROWING_MS = 600_000
_KEPT_MS = 5000
_KEPT_MOST_MS = 600_000
_FAILED = Report(next_ms=0, rest_ms=600_000)
_MAX_REPORT = 65536


class JanitorListener(Protocol):
    """Receives the results of the janitor."""

    def logs_may_grow(self) -> bool:
        """Return whether logs may grow because runs are active."""

    def files_removed(self, last: int, kept_files: list[int]) -> None:
        """Note that the files of purged runs up to number `last`, except `kept_files`, are removed."""

    def database_damaged(self) -> None:
        """Handle damage in the database that the janitor found."""


class JanitorClient:
    """Starts the janitor and handles its reports."""

    def __init__(self, loop: Loop, boot: DaemonSettings, storage: Storage, log: Log, listener: JanitorListener) -> None:
        self._loop = loop
        self._log = log
        self._listener = listener
        self._job = Job(
            data_dir=boot.data_dir,
            runtime_dir=boot.runtime_dir,
            database=boot.database,
            log_level=boot.log_level,
            look=True,
            copy=boot.database_url is None,
            compress_after_ms=storage.compress_after_ms,
            max_log_bytes=storage.max_log_bytes,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._timer: Timer | None = None
        self._at_s = 0.0
        self._rested_s = 0.0
        self._missed = False
        """Whether a scan was requested while a janitor ran."""
        self._purged = False
        """Whether runs were purged while a janitor ran."""
        self._again = Timer(self.purge)
        """Timer of the next attempt to remove files of purged runs."""
        self._kept_files: list[int] = []
        """Numbers of the files that the last attempt could not remove."""
        self._again_ms = _KEPT_MS
        """Delay before the next attempt."""
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

    def request(self, delay_ms: float = _SOON_MS) -> None:
        """Request a scan in `delay_ms` milliseconds, but not before the pause ends."""
        if self._process is not None:
            self._missed = True
            return
        now_s = self._loop.now_s()
        at_s = max(now_s + delay_ms / 1000, self._rested_s)
        if self._timer is not None and self._at_s <= at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at_s = at_s
        self._timer = self._loop.after((at_s - now_s) * 1000, self._due)

    def purge(self) -> None:
        """Remove the files of purged runs now, or when the running janitor exits."""
        if self._process is not None:
            self._purged = True
        else:
            self._start(look=False)

    def _due(self) -> None:
        self._timer = None
        if self._process is not None:
            self._missed = True
        else:
            self._start(look=True)

    def _start(self, *, look: bool) -> None:
        self._scans = look
        try:
            process, self._pidfd = start_tracked(
                [sys.executable, *RINGWARD, "janitor"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as err:
            self._log.warning(f"cannot start the janitor: {err.strerror}")
            self._plan_next(_FAILED)
            return
        self._process = process
        self._loop.watch(self._pidfd, lambda _mask: self._ended(process))
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                os.write(process.stdin.fileno(), replace(self._job, look=look).to_line().encode())

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        self._process = None
        status = process.wait()
        output = b"" if process.stdout is None else os.read(process.stdout.fileno(), _MAX_REPORT)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            report = Report.from_line(output.decode())
        except ValueError:
            self._log.warning(f"the janitor failed with status {status}")
            report = _FAILED
        if report.removed:
            self._listener.files_removed(report.removed, report.kept)
        if report.damaged:
            self._listener.database_damaged()
        self._plan_next(report)
        if self._purged and self._process is None:
            self._purged = False
            self.purge()

    def _plan_next(self, report: Report) -> None:
        if self._scans:
            self._rested_s = self._loop.now_s() + report.rest_ms / 1000
        if self._missed:
            self._missed = False
            self.request()
        if report.next_ms is not None:
            self.request(max(0, report.next_ms - self._loop.now_ms()))
        if report.kept:
            self._again_ms = min(_KEPT_MOST_MS, 2 * self._again_ms) if report.kept == self._kept_files else _KEPT_MS
            self._again.cancel()
            self._again = self._loop.after(self._again_ms, self.purge)
        self._kept_files = report.kept
        if self._listener.logs_may_grow():
            self.request(_GROWING_MS)

    def close(self) -> None:
        """Kill the janitor without waiting for it, because a hung disk may delay its exit. A kill is always safe."""
        if self._process is not None:
            self._process.kill()
