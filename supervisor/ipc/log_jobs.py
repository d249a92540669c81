"""Messages between the scheduler and the helpers that process logs, over a socketpair each.

Scheduler -> janitor
    ``job``     {job}: a :class:`JanitorRequest`, once

Janitor -> scheduler
    ``report``  {report}: a :class:`JanitorAnswer`, once

Scheduler -> exporter
    ``export``  {job}: an :class:`ExportRequest`, once

Exporter -> scheduler
    ``status``  {status}: an :class:`ExportReport`, after each change, at most once per second
"""

from dataclasses import dataclass, field

from supervisor.ipc.helper_messages import HelperMessage


@dataclass(frozen=True, kw_only=True)
class JanitorJob:
    """One pass of the janitor over the logs and the database."""

    data_dir: str
    runtime_dir: str
    """The directory with the rings. If a run still has a ring, its log may still be written."""
    database: str = field(repr=False)
    """The path or URL of the database, which lists the purged runs. A URL may contain a password."""
    log_level: str
    look: bool
    """Whether to examine all logs; otherwise only the files of purged runs are removed."""
    copy: bool
    """Whether to copy the database from time to time, which is possible only for SQLite."""
    compress_after_ms: int
    """The age at which a log is compressed."""
    max_log_bytes: int | None
    """The total size to which the logs are limited; None: 20 % of the file system."""


@dataclass(frozen=True, kw_only=True)
class JanitorReport:
    """The result of a job, and when the next one is due."""

    next_ms: int | None
    """When the next log is due for compression or the next copy is due, ms since the epoch; None: nothing is due."""
    rest_ms: int
    """The minimum pause before the logs are examined again, which is longer where that takes long."""
    removed: int = 0
    """The files of all purged runs up to this number have been removed."""
    kept: list[int] = field(default_factory=list)
    """The numbers of logs that are still written or cannot be removed now."""
    damaged: bool = False
    """Whether the database was reported as damaged and no later check has found it intact."""


@dataclass(frozen=True)
class JanitorRequest(HelperMessage, op="job"):
    """The request for one pass."""

    job: JanitorJob


@dataclass(frozen=True)
class JanitorAnswer(HelperMessage, op="report"):
    """The answer to a request."""

    report: JanitorReport


@dataclass(frozen=True, kw_only=True)
class ExportJob:
    """The lines to deliver and where to deliver them."""

    name: str
    type: str
    data_dir: str
    runtime_dir: str
    database: str = field(repr=False)
    """A path, or a URL, which may have a password."""
    root_bell: str
    scheduler_bell: str
    token: str = field(repr=False)
    """The token for both doorbells."""
    log_level: str
    host: str
    """Name of this host, for the records."""
    units: list[str] = field(default_factory=list)
    """Names of the selected tasks and services of the configuration."""
    globs: list[str] = field(default_factory=list)
    """Globs of names, which also select units that are no longer configured."""
    excluded: list[str] = field(default_factory=list)
    """Names of all other tasks and services of the configuration; their runs may have been selected earlier."""
    begin_at: int = field(default=0, compare=False)
    """Where a new export begins, ms since the epoch: with the runs that were active then or were created later."""
    streams: list[int] = field(default_factory=list)
    """Numbers of the streams to deliver."""
    path: str = ""
    """The path of a ``file`` export."""
    max_size_bytes: int = 0
    max_age_ms: int = 0
    """0: no limit."""
    keep: int = 0
    address: str = ""
    """The address of a ``syslog`` export: ``unix:PATH``, or ``udp``, ``tcp`` or ``tls`` with ``://HOST:PORT``."""
    facility: str = "daemon"
    format: str = ""
    """``rfc3164`` or ``rfc5424``; empty: the former for a Unix socket, otherwise the latter."""
    url: str = ""
    """The URL of a ``loki`` or ``otlp`` export."""
    spans: bool = True
    """Whether an ``otlp`` export delivers a span for each run."""
    tenant: str = ""
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    """Paths of secrets, which only the exporter reads."""
    tls_ca: str = ""
    """Path of certificates to trust; empty: the host's certificates."""


@dataclass(frozen=True)
class ExportRequest(HelperMessage, op="export"):
    """The request to carry out a job."""

    job: ExportJob


@dataclass(kw_only=True)
class ExportStatus:
    """How far an export has come."""

    behind_lines: int = 0
    """Lines that are not delivered yet."""
    behind_runs: int = 0
    """Runs with such lines."""
    delivered: int = 0
    """Lines delivered so far."""
    skipped: int = 0
    """Lines that are missing from the log or that the receiver rejected."""
    lost_runs: int = 0
    """Runs of all units that were purged before the export could read their logs."""
    delivered_at: int | None = None
    """Time of the last delivery, ms since the epoch."""
    error: str | None = None
    """Why the last attempt failed, without secrets; None: it succeeded."""
    failing_since: int | None = None
    """Time of the first failed attempt since the last success, ms since the epoch."""


@dataclass(frozen=True)
class ExportReport(HelperMessage, op="status"):
    """The report of an exporter."""

    status: ExportStatus


def status_path(data_dir: str, name: str) -> str:
    """Return the path of the JSON file in which an exporter stores its last status.

    The exporter continues from it after a restart, and ``ringward doctor`` reads it.
    """
    return f"{data_dir}/exports/{name}.status"
