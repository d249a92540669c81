"""All keys of the configuration: their values, meanings and defaults.

The loader, its messages and the JSON Schema are made from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from supervisor.config.database import DatabaseUrl
from supervisor.config.value_types import hooks
from supervisor.config.value_types.dependencies import Depends
from supervisor.config.value_types.exports import FACILITIES, OF_TYPE, STREAMS, HeaderText, SyslogAddress
from supervisor.config.value_types.exposure import BasePath, HostName, Network, Url
from supervisor.config.value_types.identity import IdentityTable
from supervisor.config.value_types.launchers import LOCAL, Place, Words
from supervisor.config.value_types.listen import Listen
from supervisor.config.value_types.notifying import MatchTable, NotifierUrl, PingUrl, Quiet, notifiers
from supervisor.config.value_types.params import Params
from supervisor.config.value_types.permissions import Permission
from supervisor.config.value_types.presets import PRESETS
from supervisor.config.value_types.probes import LIVE, READY, LinePattern
from supervisor.config.value_types.process import Limits, Stdin, StopSignal, Umask, User
from supervisor.config.value_types.slots import PLACES, Uses
from supervisor.config.value_types.timing import Attempts, Moment, OnStart, RetryCause
from supervisor.config.value_types.values import (
    NAME,
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
    ValueType,
    VariableName,
    choice,
)

REQUIRED: Final = object()
"""Stands for the default of a key that the file must set."""

MAX_UNITS = 10_000
_MAX_SOCKET_PATH_BYTES = 107
"""sun_path of unix(7), less the closing NUL."""
_KB, _MB, _TB = 1 << 10, 1 << 20, 1 << 40

UNIT_NAME = NAME
"""Names of tasks and services. Names of dots alone are rejected because names are path components."""

TASK = frozenset({"task"})
SERVICE = frozenset({"service"})
BOTH = TASK | SERVICE
DAEMON = frozenset({"daemon"})
HTTP = frozenset({"http"})
STORAGE = frozenset({"storage"})
NOTIFY = frozenset({"notify"})
NOTIFIER = frozenset({"notifier"})
ROUTE = frozenset({"route"})
LAUNCHER = frozenset({"launcher"})
HOOK = frozenset({"hook"})
EXPORT = frozenset({"export"})
SLOT = frozenset({"slot"})


@dataclass(frozen=True)
class Key:
    """A key of the configuration."""

    name: str
    places: frozenset[str]
    """Tables that have it, in the singular: daemon, http, notifier, task and so on."""
    type: ValueType
    default: Any
    """The value as the file would have it. None: not set. REQUIRED: the file must set it."""
    doc: str
    field: str = ""
    """The name of the key in the model, if it differs."""

    @property
    def attribute(self) -> str:
        """Return the name of the key in the model."""
        return self.field or self.name


KEYS: Final = (
    # [daemon]
    Key("data_dir", DAEMON, FilePath(), None, "directory for state and logs; --data overrides it"),
    Key("timezone", DAEMON, TimeZone(), None, "time zone of schedules that name none; default: the host's"),
    Key(
        "shutdown_timeout", DAEMON, Duration(), "8s", "time that runs have to end at a shutdown", "shutdown_timeout_ms"
    ),
    Key("log_level", DAEMON, choice("debug", "info", "warning", "error"), "info", "level of the daemon's own log"),
    Key("cgroups", DAEMON, Choice({"auto": True, "off": False}), "auto", "off: runs have no cgroup of their own"),
    Key(
        "max_running", DAEMON, Integer(1, 100_000), None, "number of runs of tasks at the same time; default: no limit"
    ),
    Key("heartbeat", DAEMON, PingUrl(), None, "URL that the daemon requests every minute while it is healthy"),
    Key("include", DAEMON, ListOf(Text(empty=False), 100), [], "globs of files with more tasks and services"),
    # [http]
    Key(
        "listen",
        HTTP,
        ListOf(Listen(), 16),
        ["127.0.0.1:7464"],
        "addresses of the API; all except loopback need tls_cert or behind_proxy",
    ),
    Key("socket", HTTP, FilePath(_MAX_SOCKET_PATH_BYTES), None, "Unix socket; default: ringward.sock in data_dir"),
    Key("socket_group", HTTP, Text(limit=100, empty=False), None, "group that may connect to socket and proxy_socket"),
    Key("proxy_socket", HTTP, FilePath(_MAX_SOCKET_PATH_BYTES), None, "Unix socket for proxies; trusts no peer"),
    Key(
        "user",
        HTTP,
        Text(limit=100, empty=False),
        None,
        "user of the API workers of a daemon that runs as root; default: ringward, if it exists",
    ),
    Key("workers", HTTP, Integer(1, 64), 1, "API worker processes"),
    Key("password_file", HTTP, FilePath(), None, "file with the password; RINGWARD_PASSWORD overrides it"),
    Key("tls_cert", HTTP, FilePath(), None, "certificate chain, PEM; with it all TCP addresses speak TLS"),
    Key("tls_key", HTTP, FilePath(), None, "its private key, PEM, without a passphrase"),
    Key("behind_proxy", HTTP, ListOf(Network(), 64), [], "networks of proxies whose forwarding headers are accepted"),
    Key("identity", HTTP, IdentityTable(), None, "headers of a proxy that authenticates people, and their roles"),
    Key("hosts", HTTP, ListOf(HostName(), 64), [], "more names under which clients may reach the API"),
    Key("external_url", HTTP, Url(), None, "address under which clients reach the API, for links"),
    Key("base_path", HTTP, BasePath(), "", "prefix below which the site is reachable, too"),
    Key(
        "metrics",
        HTTP,
        Choice({"open": True, "private": False}),
        "private",
        "open: /metrics needs no authentication",
        "metrics_open",
    ),
    Key(
        "public",
        HTTP,
        ListOf(Name("the name of a task or service"), 100),
        [],
        "tasks and services whose state anybody may see at /status and /badge/NAME.svg",
    ),
    Key(
        "trigger_rate",
        HTTP,
        Integer(0, 100_000),
        0,
        "runs that one credential may trigger per minute; 0: no limit",
    ),
    # [storage]
    Key("database", STORAGE, DatabaseUrl(), "sqlite", "sqlite, or a database of a PostgreSQL server"),
    Key(
        "durability",
        STORAGE,
        choice("crash", "power"),
        "crash",
        "what committed state survives: a crash, or also a power loss",
    ),
    Key(
        "min_free_space",
        STORAGE,
        Size(0, _TB),
        None,
        "logs stop growing when less disk space is free; default: 256mb, or 5 % of the file system if that is less",
        "min_free_bytes",
    ),
    Key(
        "compress_after",
        STORAGE,
        Duration(),
        "1h",
        "time from the end of a run to the compression of its log",
        "compress_after_ms",
    ),
    Key(
        "max_log_bytes",
        STORAGE,
        Size(0, 1024 * _TB),
        None,
        "disk space for all logs; the logs of the runs that ended first are removed; default: 20 % of the file system",
    ),
    Key("undo_window", STORAGE, Duration(), "1h", "time in which deleted runs can be restored", "undo_window_ms"),
    # [notify]
    Key(
        "coalesce_window",
        NOTIFY,
        Duration(),
        "1h",
        "repetitions of a notification within this time only raise its count",
        "coalesce_window_ms",
    ),
    Key("history_keep", NOTIFY, Integer(1, 100_000), 1000, "number of notifications to keep"),
    Key("digest", NOTIFY, Duration(), "0s", "time that a message waits to be sent together with others", "digest_ms"),
    # [notifiers.NAME]
    Key("url", NOTIFIER, NotifierUrl(), REQUIRED, "Apprise URL of the channel"),
    # [[routes]]
    Key("match", ROUTE, MatchTable(), {}, "which notifications match: kinds, least severity, tasks (a glob)"),
    Key("notify", ROUTE, notifiers(empty=False), REQUIRED, "names of notifiers"),
    Key("after", ROUTE, Integer(1, 10_000), 1, "number of consecutive failures of a task before the first message"),
    Key("final_attempt_only", ROUTE, Flag(), True, "false: failures with a retry to come match, too"),
    Key("recovery", ROUTE, Flag(), True, "notifiers of a failure also get its recovery"),
    Key("quiet", ROUTE, Quiet(), None, "hours in which messages wait"),
    # [launchers.NAME]
    Key("preset", LAUNCHER, choice(*PRESETS), None, "a known engine"),
    Key("client", LAUNCHER, Words(program=True), None, "program that the preset calls, with options for all commands"),
    Key("options", LAUNCHER, Words(), [], "more arguments for the preset's start"),
    Key("host", LAUNCHER, Place("deploy@web1"), None, "destination of ssh"),
    Key("image", LAUNCHER, Place("alpine:3"), None, "image of the containers"),
    Key("start", LAUNCHER, Words(program=True), None, "the client; it must live as long as the job"),
    Key("stop", LAUNCHER, Words(), None, "command that ends the job of a run"),
    Key("probe", LAUNCHER, Words(), None, "command that prints the engine's name for the job, or nothing"),
    # [hooks.NAME]
    Key("task", HOOK, Name("the name of a task"), REQUIRED, "the task that runs"),
    Key("kind", HOOK, choice(*hooks.KINDS), REQUIRED, "the sender, and thereby how it proves that it has the secret"),
    Key("secret_file", HOOK, FilePath(), REQUIRED, "file with the secret that the sender has", "secret"),
    Key(
        "events",
        HOOK,
        ListOf(Text(limit=110, empty=False), 100),
        [],
        "events that start a run, as the sender names them; required for github and gitlab",
    ),
    Key("when", HOOK, hooks.Conditions(), {}, "values that the body must have; others start no run"),
    Key("params", HOOK, hooks.ParamPaths(), {}, "parameters of the task, and where their values stand in the body"),
    # [exports.NAME]
    Key("type", EXPORT, choice(*OF_TYPE), REQUIRED, "kind of receiver"),
    Key("tasks", EXPORT, ListOf(Text(limit=100, empty=False), 100, single=True), [], "globs for names of units"),
    Key("groups", EXPORT, ListOf(Text(limit=100, empty=False), 100, single=True), [], "groups of units"),
    Key("tags", EXPORT, ListOf(Text(limit=100, empty=False), 100, single=True), [], "tags; a unit needs one of them"),
    Key(
        "streams",
        EXPORT,
        ListOf(choice(*STREAMS), len(STREAMS), empty=False, single=True),
        list(STREAMS),
        "streams to export; system has the daemon's remarks on a run",
    ),
    Key(
        "alert_after",
        EXPORT,
        Duration(low_ms=1000),
        "5m",
        "time after which failing deliveries raise export.failing",
        "alert_after_ms",
    ),
    Key("path", EXPORT, FilePath(), None, "file to append to"),
    Key("max_size", EXPORT, Size(_MB, _TB), "100mb", "size at which the file is rotated", "max_size_bytes"),
    Key("max_age", EXPORT, Duration(), "0s", "age at which the file is rotated; 0: no limit", "max_age_ms"),
    Key("keep", EXPORT, Integer(0, 1000), 5, "number of rotated files to keep"),
    Key("address", EXPORT, SyslogAddress(), None, "address of the syslog server"),
    Key("facility", EXPORT, choice(*FACILITIES), "daemon", "facility of the messages"),
    Key("url", EXPORT, Url(), None, "address of Loki or of an OpenTelemetry collector"),
    Key("spans", EXPORT, Flag(), True, "whether each run is exported as a span"),
    Key("tenant", EXPORT, HeaderText(), None, "tenant, for a receiver with several"),
    Key("username", EXPORT, HeaderText(), None, "user name for basic authentication"),
    Key("password_file", EXPORT, FilePath(), None, "file with the password of username"),
    Key("token_file", EXPORT, FilePath(), None, "file with a bearer token"),
    Key("tls_ca", EXPORT, FilePath(), None, "certificates to trust, PEM; default: those of the host"),
    # [slots.NAME]
    Key("size", SLOT, PLACES, REQUIRED, "places that runs share"),
    # tasks and services
    Key(
        "run",
        BOTH,
        CommandLine(),
        REQUIRED,
        "the command: a string runs as shell -e -c STRING, a list runs without a shell",
    ),
    Key("shell", BOTH, Text(empty=False), "/bin/sh", "the shell for a run that is a string"),
    Key("working_dir", BOTH, FilePath(), None, "working directory; default: the daemon's"),
    Key("env", BOTH, Environment(), {}, "environment variables, added to the daemon's and to those of [defaults]"),
    Key(
        "env_file",
        BOTH,
        ListOf(FilePath(), 16, single=True),
        [],
        "files with environment variables; env overrides them",
    ),
    Key(
        "env_base",
        BOTH,
        Choice({"inherit": False, "clean": True}),
        "inherit",
        "clean: without the daemon's environment",
        "clean_env",
    ),
    Key("env_public", BOTH, ListOf(VariableName(), 1000), [], "variables of env whose values are shown"),
    Key("secrets", BOTH, Secrets(), {}, "environment variables whose values are masked in the output"),
    Key("secrets_file", BOTH, ListOf(FilePath(), 16, single=True), [], "files with secrets; secrets overrides them"),
    Key("user", BOTH, User(), None, "user, or user and group, of the run; default: the daemon's user"),
    Key("umask", BOTH, Umask(), None, "permissions that new files do not get; default: the daemon's umask"),
    Key("limits", BOTH, Limits(), {}, "resource limits"),
    Key(
        "launcher",
        BOTH,
        Name('the name of a launcher, or "local"'),
        LOCAL,
        "where it runs: on this host, or through another engine",
    ),
    Key("stdin", BOTH, Stdin(), "null", "standard input: empty, a pipe that never ends (open), or a file"),
    Key(
        "may",
        BOTH,
        ListOf(Permission(), 100),
        [],
        "operations that a run may request from the daemon, such as restart:web; names may be globs",
    ),
    Key("description", BOTH, Text(), None, "text for display"),
    Key("group", BOTH, Text(limit=100), None, "group for display"),
    Key("tags", BOTH, ListOf(Text(limit=100, empty=False), 64), [], "tags for display"),
    Key(
        "cron",
        TASK,
        ListOf(CronExpression(), 100, single=True),
        [],
        "cron expressions: five fields, six with seconds first, or a macro",
        "crons",
    ),
    Key("every", TASK, Duration(low_ms=1000), None, "fixed interval, independent of the wall clock", "every_ms"),
    Key("at", TASK, Moment(), None, "runs once, at this time", "at_ms"),
    Key(
        "on_change",
        TASK,
        ListOf(FileGlob(), 20, single=True),
        [],
        "files whose changes start a run, with wildcards in the last part of the path",
    ),
    Key(
        "settle",
        TASK,
        Duration(high_ms=3_600_000),
        "1s",
        "time without a further change after which the run of on_change starts",
        "settle_ms",
    ),
    Key("timezone", TASK, TimeZone(), None, "time zone of the schedule; default: the daemon's"),
    Key(
        "dst_gap",
        TASK,
        choice("run", "skip"),
        "run",
        "effect of a local time that does not exist; run: at the end of the gap",
    ),
    Key(
        "dst_overlap",
        TASK,
        choice("first", "both", "second"),
        "first",
        "which occurrences run when a local time comes twice",
    ),
    Key(
        "jitter",
        TASK,
        Duration(),
        "0s",
        "runs start within this time after their scheduled time; the offset of a task is constant",
        "jitter_ms",
    ),
    Key("catch_up", TASK, Integer(0, 1000), 1, "number of the newest missed times that run"),
    Key("catch_up_window", TASK, Duration(), "1d", "maximum age of a missed time that runs", "catch_up_window_ms"),
    Key(
        "run_on_start",
        TASK,
        OnStart(),
        False,
        "true: run at every start of the daemon; boot: once per boot of the host",
    ),
    Key("max_concurrent", TASK, Integer(1, 10_000), 1, "number of runs at the same time"),
    Key(
        "on_overlap",
        TASK,
        choice("queue", "skip", "terminate"),
        "queue",
        "effect on a new run while max_concurrent runs are active",
    ),
    Key("queue_max", TASK, Integer(0, 100_000), 100, "maximum number of waiting runs"),
    Key("queue_priority", TASK, Integer(-100, 100), 0, "rank of a waiting run; each minute of waiting adds a point"),
    Key("coalesce", TASK, Flag(), True, "at most one scheduled run waits"),
    Key("uses", BOTH, Uses(), {}, "slots that a run holds while it runs, and the number of places in each"),
    Key("timeout", BOTH, Duration(low_ms=1), None, "maximum duration of a run", "timeout_ms"),
    Key("retry_attempts", TASK, Integer(0, 10_000), 0, "number of retries after a failure"),
    Key("retry_delay", TASK, Duration(), "5s", "delay before the first retry", "retry_delay_ms"),
    Key("retry_backoff", TASK, choice("constant", "linear", "exponential"), "exponential", "growth of the delay"),
    Key("retry_max_delay", TASK, Duration(), "5m", "maximum delay", "retry_max_delay_ms"),
    Key(
        "retry_on",
        TASK,
        ListOf(RetryCause(), 300, empty=False),
        ["failed", "timeout", "crashed", "start_failed", "log_overflow"],
        "end reasons and exit codes that lead to a retry",
    ),
    Key(
        "retry_superseded",
        TASK,
        Flag(),
        None,
        "whether a retry still runs after a newer scheduled time has succeeded; default: only if catch_up or"
        " max_concurrent is more than 1, or coalesce is false",
    ),
    Key("api_trigger", TASK, Flag(), True, "false: only the schedule starts runs"),
    Key("params", TASK, Params(), [], "parameters that a caller may set for a run"),
    Key("instances", SERVICE, Integer(1, 64), 1, "number of instances"),
    Key(
        "restart",
        SERVICE,
        choice("always", "on_failure", "never"),
        "always",
        "when the daemon restarts an instance that ended",
    ),
    Key("restart_delay", SERVICE, Duration(), "1s", "delay before the first restart", "restart_delay_ms"),
    Key("restart_backoff", SERVICE, choice("constant", "linear", "exponential"), "exponential", "growth of the delay"),
    Key("restart_max_delay", SERVICE, Duration(), "60s", "maximum delay", "restart_max_delay_ms"),
    Key(
        "restart_attempts",
        SERVICE,
        Attempts(),
        3,
        "quick failures in a row that lead to a restart; after one more it is fatal; unlimited: never fatal",
    ),
    Key(
        "healthy_after",
        SERVICE,
        Duration(),
        "10s",
        "an end later than this after readiness is not a quick failure",
        "healthy_after_ms",
    ),
    Key(
        "fatal_retry",
        SERVICE,
        Duration(low_ms=1),
        None,
        "time after which a fatal instance is tried again, once",
        "fatal_retry_ms",
    ),
    Key(
        "flap_restarts",
        SERVICE,
        Attempts(),
        5,
        "an instance that fails more often than this within flap_window is flapping; unlimited: never",
    ),
    Key("flap_window", SERVICE, Duration(low_ms=1000), "10m", "the time of flap_restarts", "flap_window_ms"),
    Key("ready", SERVICE, READY, None, "readiness probe: notify, http, tcp, exec or log"),
    Key(
        "live", SERVICE, LIVE, None, "liveness probe: notify, http, tcp or exec; an instance that fails it is restarted"
    ),
    Key("depends_on", SERVICE, ListOf(Depends(), 100), [], "services and tasks that it waits for before it starts"),
    Key("autostart", SERVICE, Flag(), True, "false: it is stopped at the start of the daemon"),
    Key("priority", SERVICE, Integer(0, 1000), 100, "services with a lower number start earlier and stop later"),
    Key(
        "stop_signal",
        BOTH,
        StopSignal(),
        "SIGTERM",
        "signal that asks a run to end; or several signals, each with its time",
    ),
    Key(
        "stop_target",
        BOTH,
        choice("tree", "main"),
        "tree",
        "receivers of stop_signal: all processes, or only the main process; SIGKILL goes to all",
    ),
    Key("graceful_stop", BOTH, Duration(), "5s", "time from stop_signal to SIGKILL", "grace_ms"),
    Key(
        "leftovers",
        BOTH,
        Choice({"kill": False, "leave": True}),
        "kill",
        "treatment of processes that outlive the main process",
        "leave_leftovers",
    ),
    Key("exit_codes", BOTH, ListOf(Integer(0, 255), 256, empty=False), [0], "exit codes that mean success"),
    Key("failure_output", BOTH, LinePattern(), None, "a line of output that makes a run fail"),
    Key("tty", BOTH, Flag(), False, "run under a pseudo-terminal, with colours and progress bars"),
    Key(
        "stderr",
        BOTH,
        Choice({"separate": False, "merge": True}),
        "separate",
        "merge: one pipe for standard output and standard error, in exact order",
        "merge_stderr",
    ),
    Key(
        "redraw",
        BOTH,
        Choice({"auto": True, "off": False}),
        "auto",
        "auto: a progress bar is one line with its history; off: keep every byte",
    ),
    Key("log_max_size", BOTH, Size(512 * _KB, _TB), "100mb", "maximum size of a run's log", "log_max_bytes"),
    Key(
        "log_on_full",
        BOTH,
        choice("drop_old", "drop_new", "kill"),
        "drop_old",
        "effect of log_max_size: drop the oldest lines, drop new lines, or stop the run",
    ),
    Key("keep_runs", BOTH, Integer(0, 1_000_000_000), 1000, "number of ended runs to keep"),
    Key("keep_for", BOTH, Duration(), "30d", "time to keep a run after its end", "keep_for_ms"),
    Key(
        "keep_refused",
        BOTH,
        Integer(0, 1_000_000_000),
        100,
        "number of runs to keep that never ran: queue_full, skipped, missed and dst_skipped",
    ),
    Key("notify_on_failure", BOTH, notifiers(), [], "notifiers for failures and recoveries"),
    Key("notify_on_success", BOTH, notifiers(), [], "notifiers for each success"),
    Key("notify_on_missed", BOTH, notifiers(), [], "notifiers for scheduled times without a run"),
    Key(
        "max_duration_alert",
        BOTH,
        Duration(low_ms=1),
        None,
        "sends run.slow when a run takes longer; the run continues",
        "max_duration_alert_ms",
    ),
    Key(
        "silence_alert",
        BOTH,
        Duration(low_ms=1000),
        None,
        "sends run.silent when a run prints nothing for this time; the run continues",
        "silence_alert_ms",
    ),
    Key("heartbeat", TASK, PingUrl(), None, "URL that the daemon requests at the start and the end of runs"),
)


@cache
def keys_of(*places: str) -> Mapping[str, Key]:
    """Return the keys of the tables `places`, by name."""
    return {key.name: key for key in KEYS if not key.places.isdisjoint(places)}


@cache
def defaults_of(place: str) -> Mapping[str, Any]:
    """Return the default of each key of a table, by its name in the model."""
    return {
        key.attribute: key.type.parse(key.default, "/") if key.default not in (None, REQUIRED) else None
        for key in keys_of(place).values()
    }
