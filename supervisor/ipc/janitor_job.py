"""Requests to the janitor, and its reports: a line of JSON each."""

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to do."""

    data_dir: str
    runtime_dir: str
    """Where the rings are: the log of a run that has one may still be written."""
    database: str = field(repr=False)
    """Where it is noted which runs were purged: a path, or a URL, which may have a password."""
    log_level: str
    look: bool
    """Whether to look at all logs; else only the files of purged runs are removed."""
    copy: bool
    """Whether to copy the database from time to time: it is a file of ours."""
    compress_after_ms: int
    """How old a log is when it is compressed."""
    max_log_bytes: int | None
    """What all logs may occupy; None: 20 % of the file system."""

    def to_line(self) -> str:
        """Return the line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Job":
        """Parse a line."""
        return cls(**json.loads(line))


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a job, and when the next one is due."""

    next_ms: int | None
    """When a log will be old enough, or a copy due, ms since the epoch; None: nothing is waiting for that."""
    rest_ms: int
    """How long to wait at least before logs are looked at again: where looking takes long, it is done rarely."""
    removed: int = 0
    """The files of all purged runs up to this number are gone."""
    kept: list[int] = field(default_factory=list)
    """Numbers of logs that cannot be removed now, or are still written."""
    damaged: bool = False
    """Damage in the database was reported, and not disproved since."""

    def to_line(self) -> str:
        """Return the line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Report":
        """Parse a line.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(**json.loads(line))
        except TypeError as err:
            raise ValueError("no report") from err
