"""Jobs for the janitor, and its reports."""

from dataclasses import dataclass, field


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
