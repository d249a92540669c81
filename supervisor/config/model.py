"""The configuration as the daemon uses it: defaults applied, durations in milliseconds, sizes in bytes."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from supervisor.config.problems import Problem
from supervisor.config.records import (
    Backoff,
    Command,
    DatabaseServer,
    Dependency,
    Durability,
    JsonPath,
    Launcher,
    LogLevel,
    LogOnFull,
    Match,
    OnOverlap,
    Param,
    Probe,
    ProxyIdentity,
    QuietHours,
    Restart,
    Stamp,
    StopSignal,
    StopTarget,
)
from supervisor.schedule.clock_changes import DstGap, DstOverlap


@dataclass(frozen=True, kw_only=True, slots=True)
class Daemon:
    """``[daemon]``."""

    data_dir: str | None
    """Absolute; None when the file does not say."""
    timezone: str
    """As :mod:`supervisor.host.zones` knows it; the host's when the file does not say."""
    shutdown_timeout_ms: int
    log_level: LogLevel
    cgroups: bool
    """Runs have cgroups where there are some to be had."""
    max_running: int | None
    """Number of runs of tasks at the same time; None: no limit."""
    heartbeat: str | None = field(repr=False)
    """URL that is asked for every minute while all is well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Http:
    """``[http]``."""

    listen: tuple[tuple[str, int], ...]
    """Numeric addresses and ports, safe to listen on; empty: only the Unix socket."""
    socket: str | None
    """Absolute path of the Unix socket; None: in the data directory."""
    socket_group: str | None
    """Group that may connect to it and to `proxy_socket`, too."""
    proxy_socket: str | None
    """Absolute path of a Unix socket for proxies, none of which is trusted; None: no socket."""
    user: str | None
    """As whom API workers run when the daemon is root's; None: the usual one, if there is one."""
    workers: int
    password_file: str | None
    """Absolute."""
    tls_cert: str | None
    """Absolute; None: no TLS."""
    tls_key: str | None
    """Absolute; set when `tls_cert` is."""
    behind_proxy: tuple[str, ...]
    """Networks of trusted proxies."""
    identity: ProxyIdentity | None
    """Headers with which such a proxy names the person of a request; None: no proxy does."""
    hosts: tuple[str, ...]
    """Names in lower case, some with a ``*.`` in front."""
    external_url: str | None
    """Without a slash at the end."""
    base_path: str
    """Empty, or with a slash in front and none at the end."""
    metrics_open: bool
    """``/metrics`` needs no authentication."""
    public: tuple[str, ...]
    """Names of the tasks and services whose state needs no authentication."""
    trigger_rate: int
    """Runs that one credential may trigger within a minute; 0: as many as it likes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """``[storage]``."""

    database: DatabaseServer | None
    """None: SQLite, in the data directory."""
    durability: Durability
    min_free_bytes: int | None
    """Log files do not grow while less is free; None: the smaller of 256 MiB and 5 % of the file system."""
    compress_after_ms: int
    max_log_bytes: int | None
    """Space that all logs may occupy; None: 20 % of the file system."""
    undo_window_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Notify:
    """``[notify]``."""

    coalesce_window_ms: int
    """Repeats within this time after a notification was made only raise its count."""
    history_keep: int
    """How many notifications are kept."""
    digest_ms: int
    """Messages to one notifier wait so long for others, and are sent together; 0: each goes at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notifier:
    """``[notifiers.NAME]``: a way to notify people."""

    name: str
    url: str = field(repr=False)
    """As Apprise understands it; may have a password."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """``[exports.NAME]``: delivers the lines of logs to another program. Keys of other types have their defaults."""

    name: str
    type: Literal["file", "syslog", "journald", "loki", "otlp"]
    tasks: tuple[str, ...]
    """Globs for names of tasks and services; empty: all."""
    groups: tuple[str, ...]
    """Empty: also units without a group."""
    tags: tuple[str, ...]
    """A unit has one of these; empty: also units without tags."""
    streams: tuple[str, ...]
    alert_after_ms: int
    """A notification is sent when deliveries have failed for so long."""
    path: str | None
    """Absolute."""
    max_size_bytes: int
    max_age_ms: int
    """0: no limit."""
    keep: int
    """Number of rotated files."""
    address: str | None
    """``unix:PATH``, or ``udp``, ``tcp`` or ``tls`` with ``://HOST:PORT``."""
    facility: str
    url: str | None
    spans: bool
    """Whether each run is a span."""
    tenant: str | None
    username: str | None
    password_file: str | None
    """Absolute."""
    token_file: str | None
    """Absolute."""
    tls_ca: str | None
    """Absolute path of certificates to trust; None: those of the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """``[[routes]]``: the notifiers of a set of events."""

    match: Match
    notify: tuple[str, ...]
    """Names of notifiers."""
    after: int
    """How many failures in a row it takes."""
    final_attempt_only: bool
    """Not of attempts that are tried again."""
    recovery: bool
    """A recipient of a failure is also notified of its recovery."""
    quiet: QuietHours | None
    """Quiet hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """``[hooks.NAME]``: an address at which another program starts a task."""

    name: str
    task: str
    kind: Literal["github", "gitlab", "generic"]
    secret: str = field(repr=False)
    """The content of `secret_file`."""
    events: tuple[str, ...]
    """The only ones that start a run; empty for a sender that names no event."""
    when: tuple[tuple[JsonPath, tuple[str, ...]], ...]
    """Values in the body of a request that starts a run: the place of each, and the accepted ones."""
    params: dict[str, JsonPath]
    """Places of the values of the task's parameters in the body."""


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
    clean_env: bool
    """Without the daemon's environment."""
    env_public: tuple[str, ...]
    """Variables of `env` whose values may be shown."""
    secrets: dict[str, str]
    """Variables whose values are masked in the output."""
    user: str | None
    """``name``, or ``name:group``; None: the daemon's."""
    umask: int | None
    limits: dict[str, float]
    """Sizes in bytes, times in seconds; -1: unlimited."""
    stdin: str
    """``null`` (empty), ``open`` (a pipe that never ends), or the absolute path of a file."""
    may: tuple[str, ...]
    """Requests that its runs may make to the daemon: a verb, a colon, and a glob of names
    (:mod:`supervisor.ipc.run_token`).
    """
    launcher: Launcher | None
    """None: it runs on this host, as a process of ours."""
    description: str | None
    group: str | None
    tags: tuple[str, ...]
    crons: tuple[str, ...]
    every_ms: int | None
    at_ms: int | None
    """Milliseconds since the epoch. Of `crons`, `every_ms` and `at_ms` one is set at most."""
    on_change: tuple[str, ...]
    """Absolute paths, with wildcards in the last component, of the files whose changes start a run."""
    settle_ms: int
    """Time without a change after which a run starts for all files that changed."""
    timezone: str
    dst_gap: DstGap
    dst_overlap: DstOverlap
    jitter_ms: int
    """Runs start within this time after their instant."""
    catch_up: int
    catch_up_window_ms: int
    run_on_start: bool | Literal["boot"]
    max_concurrent: int
    on_overlap: OnOverlap
    queue_max: int
    queue_priority: int
    """Rank of a waiting run; each minute of waiting adds a point."""
    coalesce: bool
    """At most one scheduled instant waits."""
    uses: dict[str, int]
    """Places that a run holds, by slot."""
    timeout_ms: int | None
    stop_signal: StopSignal
    stop_target: StopTarget
    grace_ms: int
    """How long SIGKILL follows after a `stop_signal` that is one number."""
    leave_leftovers: bool
    """Processes that outlive the main process are left alone."""
    retry_attempts: int
    retry_delay_ms: int
    retry_backoff: Backoff
    retry_max_delay_ms: int
    retry_on: tuple[str | int, ...]
    """End reasons, and exit codes, after which it is tried again."""
    retry_superseded: bool | None
    """A retry runs even after a newer instant has succeeded; None: where several instants run side by side."""
    exit_codes: tuple[int, ...]
    """Which exit statuses are success."""
    failure_output: str | None
    """A line of output that matches this makes a success a failure."""
    tty: bool
    merge_stderr: bool
    redraw: bool
    log_max_bytes: int
    log_on_full: LogOnFull
    keep_runs: int
    keep_for_ms: int
    keep_refused: int
    """How many runs that never ran are kept; the others do not count among these."""
    api_trigger: bool
    params: tuple[Param, ...]
    notify_on_failure: tuple[str, ...]
    """Names of notifiers."""
    notify_on_success: tuple[str, ...]
    notify_on_missed: tuple[str, ...]
    max_duration_alert_ms: int | None
    """A notification is sent when a run takes longer; the run continues."""
    silence_alert_ms: int | None
    """A notification is sent when a run has printed nothing for so long."""
    heartbeat: str | None = field(repr=False)
    """URL that is asked for at the start and the end of runs."""


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
    clean_env: bool
    """Without the daemon's environment."""
    env_public: tuple[str, ...]
    """Variables of `env` whose values may be shown."""
    secrets: dict[str, str]
    """Variables whose values are masked in the output."""
    user: str | None
    """``name``, or ``name:group``; None: the daemon's."""
    umask: int | None
    limits: dict[str, float]
    """Sizes in bytes, times in seconds; -1: unlimited."""
    stdin: str
    """``null`` (empty), ``open`` (a pipe that never ends), or the absolute path of a file."""
    may: tuple[str, ...]
    """Requests that its runs may make to the daemon: a verb, a colon, and a glob of names
    (:mod:`supervisor.ipc.run_token`).
    """
    launcher: Launcher | None
    """None: it runs on this host, as a process of ours."""
    description: str | None
    group: str | None
    tags: tuple[str, ...]
    instances: int
    restart: Restart
    restart_delay_ms: int
    restart_backoff: Backoff
    restart_max_delay_ms: int
    restart_attempts: float
    """More quick failures in a row than this make the service fatal; infinity: never."""
    healthy_after_ms: int
    fatal_retry_ms: int | None
    """Time after which a failed instance is tried again; None: never."""
    flap_restarts: float
    """An instance that fails more often than this within `flap_window_ms` is flapping; infinity: never."""
    flap_window_ms: int
    ready: Probe | None
    """The readiness probe of an instance; None: it is ready when it has a process."""
    live: Probe | None
    """The liveness probe of a ready instance; None: it is alive while it has a process."""
    depends_on: tuple[Dependency, ...]
    autostart: bool
    priority: int
    """Lower ones start earlier and stop later."""
    uses: dict[str, int]
    """Places that a run holds, by slot."""
    timeout_ms: int | None
    stop_signal: StopSignal
    stop_target: StopTarget
    grace_ms: int
    """How long SIGKILL follows after a `stop_signal` that is one number."""
    leave_leftovers: bool
    """Processes that outlive the main process are left alone."""
    exit_codes: tuple[int, ...]
    failure_output: str | None
    """A line of output that matches this makes a success a failure."""
    tty: bool
    merge_stderr: bool
    redraw: bool
    log_max_bytes: int
    log_on_full: LogOnFull
    keep_runs: int
    keep_for_ms: int
    keep_refused: int
    """How many runs that never ran are kept; the others do not count among these."""
    notify_on_failure: tuple[str, ...]
    """Names of notifiers."""
    notify_on_success: tuple[str, ...]
    notify_on_missed: tuple[str, ...]
    """Of no use, since a service has no schedule: so that both kinds have the same keys."""
    max_duration_alert_ms: int | None
    """A notification is sent when a run takes longer; the run continues."""
    silence_alert_ms: int | None
    """A notification is sent when a run has printed nothing for so long."""


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
    keep_refused: int
    """The same."""
    include: tuple[str, ...] = ()
    """Globs of the included files."""
    host_zone: str | None = None
    """The host's time zone, where it is the daemon's because the file names none."""
    read: dict[str, Stamp] = field(default_factory=dict)
    """All source files, including files whose content was substituted, in their state when they were read."""
    tasks: dict[str, Task] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    notifiers: dict[str, Notifier] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    hooks: dict[str, Hook] = field(default_factory=dict)
    exports: dict[str, Export] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    """Sizes of the slots by name."""
    warnings: tuple[Problem, ...] = ()
    """Valid settings that are probably not intended."""
