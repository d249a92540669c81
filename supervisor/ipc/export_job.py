"""Messages between the scheduler and an exporter process, over a socketpair.

Scheduler -> exporter
    ``export``  {job}: an :class:`ExportJob`, once

Exporter -> scheduler
    ``status``  {status}: an :class:`ExportStatus`, after each change, at most once per second
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from supervisor.ipc.messages import Frame


@dataclass(frozen=True, kw_only=True)
class ExportJob:
    """The lines to deliver, and their receiver."""

    name: str
    type: str
    data_dir: str
    runtime_dir: str
    database: str = field(repr=False)
    """A path, or a URL, which may have a password."""
    root_bell: str
    scheduler_bell: str
    token: str = field(repr=False)
    """For the doorbells."""
    log_level: str
    host: str
    """Name of this host, for the records."""
    units: list[str] = field(default_factory=list)
    """Names of the selected tasks and services of the configuration."""
    globs: list[str] = field(default_factory=list)
    """Globs that also select units that are configured no more."""
    begin_at: int = field(default=0, compare=False)
    """A new export begins with the runs that were active then, or were created later; ms since the epoch."""
    streams: list[int] = field(default_factory=list)
    """Numbers of the streams to deliver."""
    path: str = ""
    """Of ``file``."""
    max_size_bytes: int = 0
    max_age_ms: int = 0
    """0: no limit."""
    keep: int = 0
    address: str = ""
    """Of ``syslog``: ``unix:PATH``, or ``udp``, ``tcp`` or ``tls`` with ``://HOST:PORT``."""
    facility: str = "daemon"
    url: str = ""
    """Of ``loki`` and ``otlp``."""
    spans: bool = True
    """Of ``otlp``: whether to deliver a span for each run."""
    tenant: str = ""
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    """Paths of secrets, which only the exporter reads."""
    tls_ca: str = ""
    """Path of certificates to trust; empty: the host's certificates."""

    def to_frame(self) -> Frame:
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
    """Lines that were gone before they could be delivered."""
    lost_runs: int = 0
    """Runs of all units that were purged before the export could read their logs."""
    delivered_at: int | None = None
    """Time of the last delivery, ms since the epoch."""
    error: str | None = None
    """Reason of the current failure, without secrets; None: the last attempt succeeded."""
    failing_since: int | None = None
    """Time of the first attempt that failed for the current failure, ms since the epoch."""

    def to_frame(self) -> Frame:
        """Return the message for the socket."""
        return {"op": "status", "status": self.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, since a scheduler of an earlier release may read them."""
        return {name: value for name, value in asdict(self).items() if value != getattr(type(self), name)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ExportStatus":
        """Parse a status; fields of a later release are ignored."""
        return cls(**{one.name: data[one.name] for one in fields(cls) if one.name in data})


def status_path(data_dir: str, name: str) -> str:
    """Return the file in which an exporter keeps its last status as JSON, over restarts and for ``ringward doctor``."""
    return f"{data_dir}/exports/{name}.status"
