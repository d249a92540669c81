"""Exports of logs: one helper process each, their status, and notifications about exports that fail for long.

A changed export gets a new process, after the present one has finished its batch and exited. The processes keep their
positions on disk, so nothing is delivered twice.
"""

import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from logring.layout import STREAM_NAMES
from supervisor.config.cross_checks import selects
from supervisor.config.daemon_tables import Export
from supervisor.config.model import Config, Service, Task
from supervisor.ipc.log_jobs import ExportJob, ExportReport, ExportRequest, ExportStatus
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.notifications.notifications import Notifications


def job_of(export: Export, settings: DaemonSettings, config: Config, host: str, begin_at: int) -> ExportJob:
    """Return the job for an exporter process; `begin_at`: time in ms before which a new export ignores lines."""
    units: Mapping[str, Task | Service] = {**config.tasks, **config.services}
    selected = {name for name, unit in units.items() if selects(export, unit)}
    narrowed = bool(export.groups or export.tags)
    return ExportJob(
        name=export.name,
        type=export.type,
        data_dir=settings.data_dir,
        runtime_dir=settings.runtime_dir,
        database=settings.database,
        root_bell=settings.root_bell,
        scheduler_bell=settings.scheduler_bell,
        token=settings.token,
        log_level=config.daemon.log_level,
        host=host,
        units=sorted(selected),
        excluded=sorted(units.keys() - selected),
        globs=[] if narrowed else list(export.tasks or ("*",)),
        begin_at=begin_at,
        streams=sorted(STREAM_NAMES.index(stream) for stream in export.streams),
        path=export.path or "",
        max_size_bytes=export.max_size_bytes,
        max_age_ms=export.max_age_ms,
        keep=export.keep,
        address=export.address or "",
        facility=export.facility,
        format=export.format or "",
        url=export.url or "",
        spans=export.spans,
        tenant=export.tenant or "",
        username=export.username or "",
        password_file=export.password_file or "",
        token_file=export.token_file or "",
        tls_ca=export.tls_ca or "",
    )


class _RunningExport(HelperClient):
    """One export with its process."""

    answers = (ExportReport,)

    def __init__(self, loop: Loop, log: Log, export: Export, job: ExportJob, reports: "Exports") -> None:
        self.export = export
        self.status = ExportStatus()
        self.alert: Timer | None = None
        """Timer of the notification, from the first failure until the export works again."""
        self.process = HelperProcess(loop, log, "exporter", self, title=f"exporter of {export.name}")
        self.job = job
        self._reports = reports
        self.send_job()

    def send_job(self) -> None:
        """Send the job to this process and its successors."""
        self.process.request("job", ExportRequest(self.job))

    def helper_sent(self, message: ExportReport) -> None:
        self._reports.reported(self, message.status)

    def helper_failed(self, reason: str) -> None:
        self._reports.process_failed(self, reason)


class Exports:
    """Starts, replaces and ends the exporter processes."""

    def __init__(
        self,
        loop: Loop,
        settings: DaemonSettings,
        committer: Committer,
        notifications: Notifications,
        info: Mapping[str, Any],
        log: Log,
    ) -> None:
        """`info`: facts about the active configuration; shared, not copied."""
        self._loop = loop
        self._settings = settings
        self._committer = committer
        self._notifications = notifications
        self._info = info
        self._log = log
        self._host = socket.gethostname()
        self._running: dict[str, _RunningExport] = {}

    def configure(self, config: Config) -> None:
        """Apply a configuration: start new exports, replace changed ones, end removed ones."""
        for name in [name for name in self._running if name not in config.exports]:
            gone = self._running.pop(name)
            self._end_alert(gone)
            gone.process.close()
        for name, export in config.exports.items():
            job = job_of(export, self._settings, config, self._host, self._info["config_loaded_at"])
            running = self._running.get(name)
            if running is None:
                self._running[name] = _RunningExport(self._loop, self._log, export, job, self)
                continue
            changed, running.export, running.job = job != running.job, export, job
            if changed:
                running.process.replace()
                running.send_job()

    def report(self) -> list[dict[str, object]]:
        """Return the state of all exports for the ``info`` operation."""
        return [
            {"name": running.export.name, "type": running.export.type, **asdict(running.status)}
            for running in self._running.values()
        ]

    def reported(self, running: _RunningExport, status: ExportStatus) -> None:
        """Record the status that an exporter reported."""
        before, running.status = running.status, status
        if status.failing_since is not None:
            self._raise_alert(running)
            return
        self._end_alert(running)
        since = before.failing_since
        if since is not None and self._loop.now_ms() - since >= running.export.alert_after_ms:
            with self._committer.changing() as change:
                self._notifications.export_recovered(running.export.name, since, change)

    def process_failed(self, running: _RunningExport, reason: str) -> None:
        """Record that an exporter process could not be started, or exited unexpectedly."""
        running.status.error = reason
        running.status.failing_since = running.status.failing_since or self._loop.now_ms()
        self._raise_alert(running)

    def _raise_alert(self, running: _RunningExport) -> None:
        since = running.status.failing_since
        if running.alert is None and since is not None:
            left_ms = since + running.export.alert_after_ms - self._loop.now_ms()
            running.alert = self._loop.after(max(0, left_ms), self._report_failing, running)

    @staticmethod
    def _end_alert(running: _RunningExport) -> None:
        if running.alert is not None:
            running.alert.cancel()
            running.alert = None

    def _report_failing(self, running: _RunningExport) -> None:
        with self._committer.changing() as change:
            self._notifications.export_failing(
                running.export.name, running.status.error or "", running.status.behind_lines, change
            )

    def close(self) -> None:
        """Close the connections, which makes the exporters finish their batches and exit."""
        for running in self._running.values():
            running.process.close()
