"""The configuration as the daemon uses it: defaults applied, durations in milliseconds, sizes in bytes."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

OnOverlap = Literal["queue", "skip", "terminate"]
Backoff = Literal["constant", "linear", "exponential"]
Restart = Literal["always", "on_failure", "never"]
LogOnFull = Literal["drop_old", "drop_new", "kill"]
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
    """Numeric addresses and ports, safe to listen on; empty: only the Unix socket."""
    socket: str | None
    """Absolute path of the Unix socket; None: in the data directory."""
    socket_group: str | None
    """Group that may connect to it, too."""
    workers: int
    password_file: str | None
    """Absolute."""
    tls_cert: str | None
    """Absolute; None: no TLS."""
    tls_key: str | None
    """Absolute; set when `tls_cert` is."""
    behind_proxy: tuple[str, ...]
    """Networks of trusted proxies."""
    hosts: tuple[str, ...]
    """Names in lower case, some with a ``*.`` in front."""
    external_url: str | None
    """Without a slash at the end."""
    base_path: str
    """Empty, or with a slash in front and none at the end."""
    metrics_open: bool
    """``/metrics`` needs no authentication."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """``[storage]``."""

    durability: Durability
    min_free_bytes: int | None
    """Log files do not grow while less is free; None: the smaller of 256 MiB and 5 % of the file system."""
    compress_after_ms: int
    max_log_bytes: int | None
    """What all logs may occupy; None: 20 % of the file system."""
    undo_window_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Notify:
    """``[notify]``."""

    coalesce_window_ms: int
    """Repeats within this time after a notification was made only raise its count."""
    history_keep: int
    """How many notifications are kept."""


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
    secrets: dict[str, str]
    """Variables whose values are masked in the output."""
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
    tty: bool
    merge_stderr: bool
    redraw: bool
    log_max_bytes: int
    log_on_full: LogOnFull
    keep_runs: int
    keep_for_ms: int
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
    secrets: dict[str, str]
    """Variables whose values are masked in the output."""
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
    tty: bool
    merge_stderr: bool
    redraw: bool
    log_max_bytes: int
    log_on_full: LogOnFull
    keep_runs: int
    keep_for_ms: int


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
    notify: Notify
    keep_runs: int
    """Of tasks and services that have runs and are configured no more."""
    keep_for_ms: int
    """The same."""
    tasks: dict[str, Task] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
