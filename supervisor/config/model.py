"""The configuration as the daemon uses it, and the declarations of all keys. Durations are in ms, sizes in bytes.

:func:`supervisor.config.keys.key` declares a field that is a key of the file. It has the type of the value, the
default, the text for documentation and JSON Schema, and the effect of a change. A ClassVar is a key that only the
loader reads. :mod:`supervisor.config.schema` collects the keys.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from supervisor.config.client_keys import DATA_DIR, SOCKET
from supervisor.config.database import DatabaseUrl
from supervisor.config.keys import REQUIRED, Effect, Key, key
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
from supervisor.config.value_types import hooks, process
from supervisor.config.value_types.dependencies import DependencyEntry
from supervisor.config.value_types.exports import FACILITIES, OF_TYPE, STREAMS, HeaderText, SyslogAddress
from supervisor.config.value_types.exposure import BasePath, HostName, Network, Url
from supervisor.config.value_types.identity import IdentityTable
from supervisor.config.value_types.launchers import LOCAL, ArgumentList, HostOrImageName
from supervisor.config.value_types.listen import Listen
from supervisor.config.value_types.notify_targets import MatchTable, NotifierUrl, PingUrl, QuietRange, notifiers
from supervisor.config.value_types.params import Params
from supervisor.config.value_types.permissions import Permission
from supervisor.config.value_types.presets import PRESETS
from supervisor.config.value_types.probes import LIVE, READY, LinePattern
from supervisor.config.value_types.process import Limits, Stdin, Umask, User
from supervisor.config.value_types.slots import PLACES, SlotUses
from supervisor.config.value_types.timing import Attempts, OnStart, RetryCause, Timestamp
from supervisor.config.value_types.values import (
    Choice,
    CommandLine,
    CronExpression,
    Duration,
    Environment,
    FileGlob,
    FilePath,
    Flag,
    Integer,
    ListOf,
    Name,
    Secrets,
    Size,
    Text,
    TimeZone,
    VariableName,
    choice,
)
from supervisor.schedule.clock_changes import DstGap, DstOverlap

_KB, _MB, _TB = 1 << 10, 1 << 20, 1 << 40
_NAMES = ListOf(Text(limit=100, empty=False), 100, single=True)
_BACKOFF = choice("constant", "linear", "exponential")

NEXT_RUN, NEXT_START, SCHEDULE, RESTART = Effect.NEXT_RUN, Effect.NEXT_START, Effect.SCHEDULE, Effect.RESTART
INSTANCES, API, SCHEDULER, DAEMON = Effect.INSTANCES, Effect.API, Effect.SCHEDULER, Effect.DAEMON
PROCESS = (NEXT_RUN, RESTART)
"""The effects of a change of a key that affects processes: the next run of a task has it, and a service restarts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Daemon:
    """``[daemon]``."""

    data_dir: str | None = key(DATA_DIR, None, "directory for state and logs; --data overrides it", DAEMON)
    """Absolute path; None if it is not set."""
    timezone: str = key(TimeZone(), None, "time zone of schedules that name none; default: the host's")
    """A name or rule that :mod:`supervisor.host.zones` knows; the host's time zone if it is not set."""
    shutdown_timeout_ms: int = key(
        Duration(), "8s", "time that runs have to end at a shutdown", name="shutdown_timeout"
    )
    log_level: LogLevel = key(choice("debug", "info", "warning", "error"), "info", "level of the daemon's own log", API)
    cgroups: bool = key(Choice({"auto": True, "off": False}), "auto", "off: runs have no cgroup of their own")
    """Whether runs get cgroups if the host allows it."""
    max_running: int | None = key(
        Integer(1, 100_000), None, "number of runs of tasks at the same time; default: no limit"
    )
    """Maximum number of active runs of tasks; None: no limit."""
    heartbeat: str | None = key(
        PingUrl(), None, "URL that the daemon requests every minute while it is healthy", shown=False
    )
    """URL that is requested every minute while the daemon works."""
    include: ClassVar[object] = key(ListOf(Text(empty=False), 100), [], "globs of files with more tasks and services")


@dataclass(frozen=True, kw_only=True, slots=True)
class Http:
    """``[http]``."""

    listen: tuple[tuple[str, int], ...] = key(
        ListOf(Listen(), 16),
        ["127.0.0.1:7464"],
        "addresses of the API; all except loopback need tls_cert or behind_proxy",
        DAEMON,
    )
    """Numeric addresses and ports, checked to be safe; empty: only the Unix socket."""
    socket: str | None = key(SOCKET, None, "Unix socket; default: ringward.sock in data_dir", DAEMON)
    """Absolute path of the Unix socket; None: in the data directory."""
    socket_group: str | None = key(
        Text(limit=100, empty=False), None, "group that may connect to socket and proxy_socket", DAEMON
    )
    """Group that may also connect to `socket` and `proxy_socket`."""
    proxy_socket: str | None = key(SOCKET, None, "Unix socket for proxies; trusts no peer", DAEMON)
    """Absolute path of a Unix socket for proxies, whose peers are not trusted; None: no socket."""
    user: str | None = key(
        Text(limit=100, empty=False),
        None,
        "user of the API workers of a daemon that runs as root; default: ringward, if it exists",
        DAEMON,
    )
    """The user of API workers if the daemon runs as root; None: the usual one, if it exists."""
    workers: int = key(Integer(1, 64), 1, "API worker processes", API)
    password_file: str | None = key(FilePath(), None, "file with the password; RINGWARD_PASSWORD overrides it", API)
    """Absolute."""
    tls_cert: str | None = key(FilePath(), None, "certificate chain, PEM; with it all TCP addresses speak TLS", API)
    """Absolute path; None: no TLS."""
    tls_key: str | None = key(FilePath(), None, "its private key, PEM, without a passphrase", API)
    """Absolute path; set if and only if `tls_cert` is."""
    behind_proxy: tuple[str, ...] = key(
        ListOf(Network(), 64), [], "networks of proxies whose forwarding headers are accepted", API
    )
    """Networks of trusted proxies."""
    identity: ProxyIdentity | None = key(
        IdentityTable(), None, "headers of a proxy that authenticates people, and their roles", API
    )
    """The headers in which a trusted proxy names the user of a request; None: proxies do not name users."""
    hosts: tuple[str, ...] = key(ListOf(HostName(), 64), [], "additional host names of the API", API)
    """Names in lower case; some begin with ``*.``."""
    external_url: str | None = key(Url(), None, "address under which clients reach the API, for links", API)
    """URL without a slash at the end."""
    base_path: str = key(BasePath(), "", "prefix below which the site is reachable, too", API)
    """Empty, or a path with a slash at the beginning and none at the end."""
    metrics_open: bool = key(
        Choice({"open": True, "private": False}),
        "private",
        "open: /metrics needs no authentication",
        API,
        name="metrics",
    )
    """Whether ``/metrics`` needs no authentication."""
    public: tuple[str, ...] = key(
        ListOf(Name("the name of a task or service"), 100),
        [],
        "tasks and services with a public state at /status and /badge/NAME.svg",
        API,
    )
    """Names of the tasks and services whose state is visible without authentication."""
    trigger_rate: int = key(Integer(0, 100_000), 0, "runs that one credential may trigger per minute; 0: no limit")
    """Number of runs that a credential may trigger per minute; 0: no limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """``[storage]``."""

    database: DatabaseServer | None = key(
        DatabaseUrl(), "sqlite", "sqlite, or a database of a PostgreSQL server", DAEMON
    )
    """The PostgreSQL server; None: SQLite in the data directory."""
    durability: Durability = key(
        choice("crash", "power"), "crash", "what committed state survives: a crash, or also a power loss", SCHEDULER
    )
    min_free_bytes: int | None = key(
        Size(0, _TB),
        None,
        "logs stop growing when less disk space is free; default: 256mb, or 5 % of the file system if that is less",
        name="min_free_space",
    )
    """Free space below which log files do not grow; None: the smaller of 256 MiB and 5 % of the file system."""
    compress_after_ms: int = key(
        Duration(), "1h", "time from the end of a run to the compression of its log", name="compress_after"
    )
    max_log_bytes: int | None = key(
        Size(0, 1024 * _TB),
        None,
        "disk space for all logs; the logs of the runs that ended first are removed; default: 20 % of the file system",
    )
    """Maximum total size of all logs; None: 20 % of the file system."""
    undo_window_ms: int = key(Duration(), "1h", "time in which deleted runs can be restored", name="undo_window")


@dataclass(frozen=True, kw_only=True, slots=True)
class Notify:
    """``[notify]``."""

    coalesce_window_ms: int = key(
        Duration(), "1h", "repetitions of a notification within this time only raise its count", name="coalesce_window"
    )
    """Time after a notification within which repeats only increment its count."""
    history_keep: int = key(Integer(1, 100_000), 1000, "number of notifications to keep")
    """Number of notifications to keep."""
    digest_ms: int = key(Duration(), "0s", "time that a message waits to be sent together with others", name="digest")
    """Time that a message waits for others to the same notifier, to be sent together; 0: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notifier:
    """``[notifiers.NAME]``: a channel for messages to people."""

    name: str
    url: str = key(NotifierUrl(), REQUIRED, "Apprise URL of the channel", shown=False)
    """A URL for Apprise, which may contain a password."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """``[[routes]]``: the notifiers of a set of events."""

    match: Match = key(MatchTable(), {}, "which notifications match: kinds, least severity, tasks (a glob)")
    notify: tuple[str, ...] = key(notifiers(empty=False), REQUIRED, "names of notifiers")
    after: int = key(Integer(1, 10_000), 1, "number of consecutive failures of a task before the first message")
    """Number of consecutive failures that cause the first message."""
    final_attempt_only: bool = key(Flag(), True, "false: failures with a retry to come match, too")
    """Whether to ignore failures after which a retry follows."""
    recovery: bool = key(Flag(), True, "notifiers of a failure also get its recovery")
    """Whether a recipient of a failure also receives its recovery."""
    quiet: QuietHours | None = key(QuietRange(), None, "hours in which messages wait")
    """Quiet hours, in which messages wait."""


LAUNCHER = (
    Key("preset", choice(*PRESETS), None, "a known engine"),
    Key("client", ArgumentList(program=True), None, "program that the preset calls, with options for all commands"),
    Key("options", ArgumentList(), [], "more arguments for the preset's start"),
    Key("host", HostOrImageName("deploy@web1"), None, "destination of ssh"),
    Key("image", HostOrImageName("alpine:3"), None, "image of the containers"),
    Key("start", ArgumentList(program=True), None, "the client; it must live as long as the job"),
    Key("stop", ArgumentList(), None, "command that ends the job of a run"),
    Key("probe", ArgumentList(), None, "command that prints the engine's name for the job, or nothing"),
)
"""``[launchers.NAME]``, which becomes a :class:`supervisor.config.records.Launcher`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """``[hooks.NAME]``: an address to which another program sends requests that start a task."""

    name: str
    task: str = key(Name("the name of a task"), REQUIRED, "the task that runs")
    kind: Literal["github", "gitlab", "generic"] = key(
        choice(*hooks.KINDS), REQUIRED, "the sender, and thereby how it proves that it has the secret"
    )
    secret: str = key(FilePath(), REQUIRED, "file with the secret that the sender has", shown=False, name="secret_file")
    """The content of `secret_file`."""
    events: tuple[str, ...] = key(
        ListOf(Text(limit=110, empty=False), 100),
        [],
        "events that start a run, as the sender names them; required for github and gitlab",
    )
    """The events that start a run; empty for a sender that does not name events."""
    when: tuple[tuple[JsonPath, tuple[str, ...]], ...] = key(
        hooks.Conditions(), {}, "values that the body must have; others start no run"
    )
    """Conditions for a request that starts a run: paths in the body, each with the accepted values."""
    params: dict[str, JsonPath] = key(
        hooks.ParamPaths(), {}, "parameters of the task, and where their values stand in the body"
    )
    """Paths in the body of values for the task's parameters, by parameter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """``[exports.NAME]``: delivers log lines to another program. Keys of other types have their defaults."""

    name: str
    type: Literal["file", "syslog", "journald", "loki", "otlp"] = key(choice(*OF_TYPE), REQUIRED, "kind of receiver")
    tasks: tuple[str, ...] = key(_NAMES, [], "globs for names of units")
    """Globs for names of tasks and services; empty: all."""
    groups: tuple[str, ...] = key(_NAMES, [], "groups of units")
    """Groups to export; empty: all units, also those without a group."""
    tags: tuple[str, ...] = key(_NAMES, [], "tags; a unit needs one of them")
    """Tags, of which a unit must have one; empty: all units, also those without tags."""
    streams: tuple[str, ...] = key(
        ListOf(choice(*STREAMS), len(STREAMS), empty=False, single=True),
        list(STREAMS),
        "streams to export; system has the daemon's remarks on a run",
    )
    alert_after_ms: int = key(
        Duration(low_ms=1000), "5m", "time after which failing deliveries raise export.failing", name="alert_after"
    )
    """How long deliveries must fail before a notification."""
    path: str | None = key(FilePath(), None, "file to append to")
    """Absolute."""
    max_size_bytes: int = key(Size(_MB, _TB), "100mb", "size at which the file is rotated", name="max_size")
    max_age_ms: int = key(Duration(), "0s", "age at which the file is rotated; 0: no limit", name="max_age")
    keep: int = key(Integer(0, 1000), 5, "number of rotated files to keep")
    address: str | None = key(SyslogAddress(), None, "address of the syslog server")
    """``unix:PATH``, ``udp://HOST:PORT``, ``tcp://HOST:PORT`` or ``tls://HOST:PORT``."""
    facility: str = key(choice(*FACILITIES), "daemon", "facility of the messages")
    url: str | None = key(Url(), None, "address of Loki or of an OpenTelemetry collector")
    spans: bool = key(Flag(), True, "whether each run is exported as a span")
    tenant: str | None = key(HeaderText(), None, "tenant, for a receiver with several")
    username: str | None = key(HeaderText(), None, "user name for basic authentication")
    password_file: str | None = key(FilePath(), None, "file with the password of username")
    """Absolute."""
    token_file: str | None = key(FilePath(), None, "file with a bearer token")
    """Absolute."""
    tls_ca: str | None = key(FilePath(), None, "certificates to trust, PEM; default: the host's")
    """Absolute path of certificates to trust; None: the host's certificates."""


SLOT = (Key("size", PLACES, REQUIRED, "places that runs share"),)
"""The keys of ``[slots.NAME]``; the model only has the sizes."""


@dataclass(frozen=True, kw_only=True)
class _StartKeys:
    """Keys of tasks and services: the command, and how its processes start."""

    __slots__ = ()

    run: Command = key(
        CommandLine(),
        REQUIRED,
        "the command: a string runs as shell -e -c STRING, a list runs without a shell",
        PROCESS,
    )
    shell: str = key(Text(empty=False), "/bin/sh", "the shell for a run that is a string", PROCESS)
    working_dir: str | None = key(FilePath(), None, "working directory; default: the daemon's", PROCESS)
    """Absolute path; None: the daemon's working directory."""
    env: dict[str, str] = key(
        Environment(), {}, "environment variables, added to the daemon's and to env of [defaults]", PROCESS
    )
    env_file: ClassVar[object] = key(
        ListOf(FilePath(), 16, single=True), [], "files with environment variables; env overrides them"
    )
    clean_env: bool = key(
        Choice({"inherit": False, "clean": True}),
        "inherit",
        "clean: without the daemon's environment",
        PROCESS,
        name="env_base",
    )
    env_public: tuple[str, ...] = key(ListOf(VariableName(), 1000), [], "variables of env whose values are shown")
    """Names of variables in `env` whose values are not secret."""
    secrets: dict[str, str] = key(Secrets(), {}, "environment variables whose values are masked in the output", PROCESS)
    secrets_file: ClassVar[object] = key(
        ListOf(FilePath(), 16, single=True), [], "files with secrets; secrets overrides them"
    )
    user: str | None = key(User(), None, "user, or user and group, of the run; default: the daemon's user", PROCESS)
    """``user`` or ``user:group``; None: the daemon's user."""
    umask: int | None = key(
        Umask(), None, "permissions that new files do not get; default: the daemon's umask", PROCESS
    )
    limits: dict[str, float] = key(Limits(), {}, "resource limits", PROCESS)
    """Sizes in bytes, times in seconds; -1: unlimited."""
    launcher: Launcher | None = key(
        Name('the name of a launcher, or "local"'),
        LOCAL,
        "where it runs: on this host, or through another engine",
        PROCESS,
        resolved=True,
    )
    """The launcher of its runs; None: they run on this host."""
    stdin: str = key(Stdin(), "null", "standard input: empty, a pipe that never ends (open), or a file", PROCESS)
    """``null`` (empty), ``open`` (a pipe that never ends), or the absolute path of a file."""
    may: tuple[str, ...] = key(
        ListOf(Permission(), 100),
        [],
        "operations that a run may request from the daemon, such as restart:web; names may be globs",
        PROCESS,
    )
    """Requests that its runs may send to the daemon: a verb, a colon, and a glob for names.

    :mod:`supervisor.ipc.run_token` checks them.
    """
    description: str | None = key(Text(), None, "text for display")
    group: str | None = key(Text(limit=100), None, "group for display")
    tags: tuple[str, ...] = key(ListOf(Text(limit=100, empty=False), 64), [], "tags for display")


@dataclass(frozen=True, kw_only=True)
class _ScheduleKeys:
    """Keys of tasks: when they run, and how many runs are allowed."""

    __slots__ = ()

    crons: tuple[str, ...] = key(
        ListOf(CronExpression(), 100, single=True),
        [],
        "cron expressions: five fields, six with seconds first, or a macro",
        SCHEDULE,
        name="cron",
    )
    every_ms: int | None = key(
        Duration(low_ms=1000), None, "fixed interval, independent of the wall clock", SCHEDULE, name="every"
    )
    at_ms: int | None = key(Timestamp(), None, "runs once, at this time", SCHEDULE, name="at")
    """Milliseconds since the epoch. At most one of `crons`, `every_ms` and `at_ms` is set."""
    on_change: tuple[str, ...] = key(
        ListOf(FileGlob(), 20, single=True),
        [],
        "files whose changes start a run, with wildcards in the last part of the path",
    )
    """Absolute paths, with wildcards in the last component, of the files whose changes start a run."""
    settle_ms: int = key(
        Duration(high_ms=3_600_000),
        "1s",
        "the run of on_change starts after this time without a further change",
        name="settle",
    )
    """How long the files must be unchanged before a run starts for all that had changed."""
    timezone: str = key(TimeZone(), None, "time zone of the schedule; default: the daemon's", SCHEDULE)
    dst_gap: DstGap = key(
        choice("run", "skip"), "run", "effect of a local time that does not exist; run: at the end of the gap", SCHEDULE
    )
    dst_overlap: DstOverlap = key(
        choice("first", "both", "second"), "first", "which occurrences run when a local time comes twice", SCHEDULE
    )
    jitter_ms: int = key(
        Duration(),
        "0s",
        "runs start within this time after their scheduled time; the offset of a task is constant",
        name="jitter",
    )
    """Maximum delay of a run after its instant; each task has its own fixed part of it."""
    catch_up: int = key(Integer(0, 1000), 1, "number of the newest missed times that run")
    catch_up_window_ms: int = key(Duration(), "1d", "maximum age of a missed time that runs", name="catch_up_window")
    run_on_start: bool | Literal["boot"] = key(
        OnStart(), False, "true: run at every start of the daemon; boot: once per boot of the host", NEXT_START
    )
    max_concurrent: int = key(Integer(1, 10_000), 1, "number of runs at the same time")
    on_overlap: OnOverlap = key(
        choice("queue", "skip", "terminate"), "queue", "effect on a new run while max_concurrent runs are active"
    )
    queue_max: int = key(Integer(0, 100_000), 100, "maximum number of waiting runs")
    queue_priority: int = key(Integer(-100, 100), 0, "rank of a waiting run; each minute of waiting adds a point")
    coalesce: bool = key(Flag(), True, "at most one scheduled run waits")
    """Whether at most one scheduled run waits; others are skipped."""


@dataclass(frozen=True, kw_only=True)
class _AdmissionKeys:
    """Keys of tasks and services: the slots that a run takes, and its time limit."""

    __slots__ = ()

    uses: dict[str, int] = key(
        SlotUses(), {}, "slots that a run holds while it runs, and the number of places in each", NEXT_RUN
    )
    """Number of places that a run takes, by slot."""
    timeout_ms: int | None = key(Duration(low_ms=1), None, "maximum duration of a run", PROCESS, name="timeout")


@dataclass(frozen=True, kw_only=True)
class _RetryKeys:
    """Keys of tasks: retries, and runs on request."""

    __slots__ = ()

    retry_attempts: int = key(Integer(0, 10_000), 0, "number of retries after a failure", NEXT_RUN)
    retry_delay_ms: int = key(Duration(), "5s", "delay before the first retry", NEXT_RUN, name="retry_delay")
    retry_backoff: Backoff = key(_BACKOFF, "exponential", "growth of the delay", NEXT_RUN)
    retry_max_delay_ms: int = key(Duration(), "5m", "maximum delay", NEXT_RUN, name="retry_max_delay")
    retry_on: tuple[str | int, ...] = key(
        ListOf(RetryCause(), 300, empty=False),
        ["failed", "timeout", "crashed", "start_failed", "log_overflow"],
        "end reasons and exit codes that lead to a retry",
        NEXT_RUN,
    )
    """End reasons and exit codes after which a retry follows."""
    retry_superseded: bool | None = key(
        Flag(),
        None,
        "whether a retry still runs after a newer scheduled time has succeeded; default: only if catch_up or"
        " max_concurrent is more than 1, or coalesce is false",
    )
    """Whether a retry runs although a newer instant succeeded; None: if `catch_up` and others make instants matter."""
    api_trigger: bool = key(Flag(), True, "false: only the schedule starts runs")
    params: tuple[Param, ...] = key(Params(), [], "parameters that a caller may set for a run", NEXT_RUN)


@dataclass(frozen=True, kw_only=True)
class _SupervisionKeys:
    """Keys of services: instances, restarts, probes and dependencies."""

    __slots__ = ()

    instances: int = key(Integer(1, 64), 1, "number of instances", INSTANCES)
    restart: Restart = key(
        choice("always", "on_failure", "never"), "always", "when the daemon restarts an instance that ended"
    )
    restart_delay_ms: int = key(Duration(), "1s", "delay before the first restart", name="restart_delay")
    restart_backoff: Backoff = key(_BACKOFF, "exponential", "growth of the delay")
    restart_max_delay_ms: int = key(Duration(), "60s", "maximum delay", name="restart_max_delay")
    restart_attempts: float = key(
        Attempts(),
        3,
        "quick failures in a row that lead to a restart; after one more it is fatal; unlimited: never fatal",
    )
    """Number of consecutive quick failures after which one more makes an instance fatal; infinity: never."""
    healthy_after_ms: int = key(
        Duration(), "10s", "an end later than this after readiness is not a quick failure", name="healthy_after"
    )
    fatal_retry_ms: int | None = key(
        Duration(low_ms=1), None, "time after which a fatal instance is tried again, once", name="fatal_retry"
    )
    """Time after which a fatal instance starts again; None: never."""
    flap_restarts: float = key(
        Attempts(), 5, "an instance that fails more often than this within flap_window is flapping; unlimited: never"
    )
    """Number of failures within `flap_window_ms` after which one more counts as flapping; infinity: never."""
    flap_window_ms: int = key(Duration(low_ms=1000), "10m", "the period for flap_restarts", name="flap_window")
    ready: Probe | None = key(READY, None, "readiness probe: notify, http, tcp, exec or log", RESTART)
    """The readiness probe of an instance; None: it is ready as soon as it has a process."""
    live: Probe | None = key(
        LIVE, None, "liveness probe: notify, http, tcp or exec; an instance that fails it is restarted", RESTART
    )
    """The liveness probe of a ready instance; None: it is alive while it has a process."""
    depends_on: tuple[Dependency, ...] = key(
        ListOf(DependencyEntry(), 100), [], "services and tasks that must be up before it starts"
    )
    autostart: bool = key(Flag(), True, "false: it is stopped at the start of the daemon", NEXT_START)
    priority: int = key(Integer(0, 1000), 100, "services with a lower number start earlier and stop later")
    """Services with a lower priority start earlier and stop later."""


@dataclass(frozen=True, kw_only=True)
class _EndKeys:
    """Keys of tasks and services: how a run stops, when it succeeds, its log, its retention and notifications."""

    __slots__ = ()

    stop_signal: StopSignal = key(
        process.StopSignal(),
        "SIGTERM",
        "signal that asks a run to end; or several signals, each with its time",
        PROCESS,
    )
    stop_target: StopTarget = key(
        choice("tree", "main"),
        "tree",
        "receivers of stop_signal: all processes, or only the main process; SIGKILL goes to all",
        PROCESS,
    )
    grace_ms: int = key(Duration(), "5s", "time from stop_signal to SIGKILL", PROCESS, name="graceful_stop")
    """Time from `stop_signal`, if it is a single signal, to SIGKILL."""
    leave_leftovers: bool = key(
        Choice({"kill": False, "leave": True}),
        "kill",
        "treatment of processes that outlive the main process",
        PROCESS,
        name="leftovers",
    )
    """Whether processes that outlive the main process are left running."""
    exit_codes: tuple[int, ...] = key(
        ListOf(Integer(0, 255), 256, empty=False), [0], "exit codes that mean success", (NEXT_RUN, Effect.AT_ONCE)
    )
    """The exit codes that count as success."""
    failure_output: str | None = key(LinePattern(), None, "a line of output that makes a run fail", PROCESS)
    """A regular expression; a matching line of output turns a success into a failure."""
    tty: bool = key(Flag(), False, "run under a pseudo-terminal, with colours and progress bars", PROCESS)
    merge_stderr: bool = key(
        Choice({"separate": False, "merge": True}),
        "separate",
        "merge: one pipe for standard output and standard error, in exact order",
        PROCESS,
        name="stderr",
    )
    redraw: bool = key(
        Choice({"auto": True, "off": False}),
        "auto",
        "auto: a progress bar is one line with its history; off: keep every byte",
        PROCESS,
    )
    log_max_bytes: int = key(Size(512 * _KB, _TB), "100mb", "maximum size of a run's log", PROCESS, name="log_max_size")
    log_on_full: LogOnFull = key(
        choice("drop_old", "drop_new", "kill"),
        "drop_old",
        "effect of log_max_size: drop the oldest lines, drop new lines, or stop the run",
        PROCESS,
    )
    keep_runs: int = key(Integer(0, 1_000_000_000), 1000, "number of ended runs to keep")
    keep_for_ms: int = key(Duration(), "30d", "time to keep a run after its end", name="keep_for")
    keep_refused: int = key(
        Integer(0, 1_000_000_000),
        100,
        "number of runs to keep that never ran: queue_full, skipped, missed and dst_skipped",
    )
    """Number of refused runs to keep, in addition to `keep_runs`."""
    notify_on_failure: tuple[str, ...] = key(notifiers(), [], "notifiers for failures and recoveries")
    """Names of notifiers."""
    notify_on_success: tuple[str, ...] = key(notifiers(), [], "notifiers for each success")
    notify_on_missed: tuple[str, ...] = key(notifiers(), [], "notifiers for scheduled times without a run")
    max_duration_alert_ms: int | None = key(
        Duration(low_ms=1),
        None,
        "sends run.slow when a run takes longer; the run continues",
        NEXT_RUN,
        name="max_duration_alert",
    )
    """Duration of a run after which a notification is sent; the run continues."""
    silence_alert_ms: int | None = key(
        Duration(low_ms=1000),
        None,
        "sends run.silent when a run prints nothing for this time; the run continues",
        NEXT_RUN,
        name="silence_alert",
    )
    """How long a run must print nothing before a notification is sent; the run continues."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(_EndKeys, _RetryKeys, _AdmissionKeys, _ScheduleKeys, _StartKeys):
    """``[tasks.NAME]``: runs until it exits, on a schedule or on demand. The keys of the last base come first."""

    kind: ClassVar[Literal["task"]] = "task"
    name: str
    heartbeat: str | None = key(
        PingUrl(), None, "URL that the daemon requests at the start and the end of runs", shown=False
    )
    """URL that is requested when runs start and end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service(_EndKeys, _SupervisionKeys, _AdmissionKeys, _StartKeys):
    """``[services.NAME]``: instances that should always run."""

    kind: ClassVar[Literal["service"]] = "service"
    name: str


UNIT_KEYS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (_StartKeys, ("task", "service")),
    (_ScheduleKeys, ("task",)),
    (_AdmissionKeys, ("task", "service")),
    (_RetryKeys, ("task",)),
    (_SupervisionKeys, ("service",)),
    (_EndKeys, ("task", "service")),
    (Task, ("task",)),
)
"""The records with the keys of tasks and services, in the order of the documentation, and the kinds that have them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """A configuration that is valid as a whole."""

    path: str
    """Absolute path of the main file."""
    files: tuple[str, ...]
    """Absolute paths of all configuration files, the main file first."""
    daemon: Daemon
    http: Http
    storage: Storage
    notify: Notify
    keep_runs: int
    """``keep_runs`` for tasks and services that are no longer configured."""
    keep_for_ms: int
    """``keep_for`` for these."""
    keep_refused: int
    """``keep_refused`` for these."""
    include: tuple[str, ...] = ()
    """Globs for files to include."""
    host_zone: str | None = None
    """The host's time zone if schedules follow it, because the file sets no ``timezone``; else None."""
    read: dict[str, Stamp] = field(default_factory=dict)
    """The states of all files when they were read, by path, including files that values refer to."""
    tasks: dict[str, Task] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    notifiers: dict[str, Notifier] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    hooks: dict[str, Hook] = field(default_factory=dict)
    exports: dict[str, Export] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    """Sizes of the slots by name."""
    warnings: tuple[Problem, ...] = ()
    """Warnings about valid settings that are probably not intended."""
