"""Messages between the scheduler and an exporter process, over a socketpair.

Scheduler -> exporter
    ``export``  {job}: an :class:`ExportJob`, once

Exporter -> scheduler
    ``status``  {status}: an :class:`ExportStatus`, after each change, at most once per second
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from supervisor.ipc.messages import Message


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

    def to_message(self) -> Message:
        """Return the message for the socket."""
        return {"op": "export", "job": asdict(self)}


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

    def to_message(self) -> Message:
        """Return the message for the socket."""
        return {"op": "status", "status": self.to_dict()}

    def to_dict(self) -> dict[str, object]:
        """Return the fields that differ from their defaults. An earlier release of the scheduler may read them."""
        return {name: value for name, value in asdict(self).items() if value != getattr(type(self), name)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ExportStatus":
        """Parse a status and ignore fields of later releases."""
        return cls(**{attribute.name: data[attribute.name] for attribute in fields(cls) if attribute.name in data})


def status_path(data_dir: str, name: str) -> str:
    """Return the path of the JSON file in which an exporter stores its last status.

    The exporter continues from it after a restart, and ``ringward doctor`` reads it.
    """
    return f"{data_dir}/exports/{name}.status"
