"""Reports of an exporter: it logs failures, and sends its status to the scheduler and saves it to a file."""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import replace

from supervisor.helpers.exporter.log_records import LogGap, Piece
from supervisor.host.files import DAMAGED, read_json, replace_file
from supervisor.ipc.helper_messages import from_fields
from supervisor.ipc.log_jobs import ExportJob, ExportReport, ExportStatus, status_path
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import without_defaults

_INTERVAL_S = 1.0


class StatusReporter:
    """The status of one export, whose counters continue after restarts."""

    def __init__(self, job: ExportJob, log: Log, send: Callable[[ExportReport], None]) -> None:
        self._path = status_path(job.data_dir, job.name)
        self._log = log
        self._send = send
        self._name = job.name
        self._status = self._sent = _stored(self._path)
        self._failures: dict[str, str] = {}
        """Reasons of the present failures, by subject."""
        self._next_s = 0.0

    def failed(self, subject: str, reason: str) -> None:
        """Note that an attempt failed, and log the reason unless it is that of the last attempt."""
        if self._failures.get(subject) != reason:
            self._log.warning(f"exports.{self._name}: {reason}")
        self._failures[subject] = reason
        if self._status.failing_since is None:
            self._status.failing_since = _now_ms()

    def succeeded(self, subject: str) -> None:
        """Note that an attempt succeeded, and log that if it ends the last failure."""
        if self._failures.pop(subject, None) is not None and not self._failures:
            self._log.info(f"exports.{self._name}: works again")

    def count(self, piece: Piece, *, rejected: bool) -> None:
        """Count delivered lines, missing lines and lines that the receiver rejected."""
        if isinstance(piece.content, LogGap):
            self._status.skipped += piece.content.skipped
        elif rejected:
            self._status.skipped += piece.content.lines
        else:
            self._status.delivered += piece.content.lines
            self._status.delivered_at = _now_ms()

    def rejected(self, lines: int) -> None:
        """Correct the counts: the receiver rejected some of the lines that are counted as delivered."""
        self._status.delivered -= lines
        self._status.skipped += lines

    def lost_runs(self, count: int) -> None:
        """Count and log runs that were removed before the exporter could read any of their lines."""
        if count:
            self._status.lost_runs += count
            which = "1 run was" if count == 1 else f"{count} runs were"
            self._log.warning(
                f"exports.{self._name}: {which} removed by retention or deleted before this export could read the log;"
                " the number includes runs that the export does not select"
            )

    def is_due(self) -> bool:
        """Return whether the last report is at least a second old."""
        return time.monotonic() >= self._next_s

    def send(self, behind_lines: int, behind_runs: int) -> None:
        """Send and save the status if it has changed."""
        self._next_s = time.monotonic() + _INTERVAL_S
        status = self._status
        status.behind_lines, status.behind_runs = behind_lines, behind_runs
        status.error = next(iter(self._failures.values()), None)
        if status.error is None:
            status.failing_since = None
        if status == self._sent and self._sent is not status:
            return
        self._sent = replace(status)
        self._send(ExportReport(status))
        with contextlib.suppress(OSError):  # the cursors report a full disk
            replace_file(self._path, json.dumps(without_defaults(status)))


def _stored(path: str) -> ExportStatus:
    """Return the saved status of the previous exporter; a new one if it cannot be read."""
    try:
        return from_fields(ExportStatus, read_json(path))
    except (OSError, *DAMAGED):
        return ExportStatus()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
