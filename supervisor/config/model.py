"""The configuration as the daemon uses it: defaults applied, durations in milliseconds, sizes in bytes."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

OnOverlap = Literal["queue", "skip", "terminate"]
Backoff = Literal["constant", "linear", "exponential"]
Restart = Literal["always", "on_failure", "never"]
Durability = Literal["crash", "power"]
LogLevel = Literal["debug", "info", "warning", "error"]

Command = str | tuple[str, ...]
"""A string goes to ``shell -e -c``; a tuple is executed as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Daemon:
    """``[daemon]``."""

    data_dir: str | None
    """Absolute; None when the file does not say."""
    timezone: str
    """IANA name; the host's when the file does not say."""
    shutdown_timeout_ms: int
    log_level: LogLevel


@dataclass(frozen=True, kw_only=True, slots=True)
class Http:
    """``[http]``."""

    listen: tuple[tuple[str, int], ...]
    """Loopback addresses as numbers, and ports; empty: only the Unix socket."""
    socket: str | None
    """Absolute path of the Unix socket; None: in the data directory."""
    workers: int
    password_file: str | None
    """Absolute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """``[storage]``."""

    durability: Durability


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """``[tasks.NAME]``: runs to its exit, on a schedule or on demand."""

    kind: ClassVar[Literal["task"]] = "task"
    name: str
    run: Command
    shell: str
    working_dir: str | None
    """Absolute; None: the daemon's."""
    env: dict[str, str]
    description: str | None
    group: str | None
    tags: tuple[str, ...]
    crons: tuple[str, ...]
    timezone: str
    run_on_start: bool
    max_concurrent: int
    on_overlap: OnOverlap
    queue_max: int
    timeout_ms: int | None
    stop_signal: int
    grace_ms: int
    retry_attempts: int
    retry_delay_ms: int
    retry_backoff: Backoff
    retry_max_delay_ms: int
    exit_codes: tuple[int, ...]
    """Which exit statuses are success."""
    merge_stderr: bool
    log_max_bytes: int
    api_trigger: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """``[services.NAME]``: kept running."""

    kind: ClassVar[Literal["service"]] = "service"
    name: str
    run: Command
    shell: str
    working_dir: str | None
    """Absolute; None: the daemon's."""
    env: dict[str, str]
    description: str | None
    group: str | None
    tags: tuple[str, ...]
    instances: int
    restart: Restart
    restart_delay_ms: int
    restart_backoff: Backoff
    restart_max_delay_ms: int
    restart_attempts: int
    """More quick failures in a row than this make the service fatal."""
    healthy_after_ms: int
    stop_signal: int
    grace_ms: int
    exit_codes: tuple[int, ...]
    merge_stderr: bool
    log_max_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """One configuration, valid as a whole."""

    path: str
    """Absolute path of the main file."""
    files: tuple[str, ...]
    """Absolute paths of every file that was read, the main file first."""
    daemon: Daemon
    http: Http
    storage: Storage
    tasks: dict[str, Task] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
