"""Every key of the configuration, once: what it takes, what it means, what holds without it.

The loader, its messages and the documentation are made from this table.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from supervisor.config.database import DatabaseUrl
from supervisor.config.value_types.dependencies import Depends
from supervisor.config.value_types.exposure import BasePath, HostName, Network, Url
from supervisor.config.value_types.launchers import LOCAL, Place, Words
from supervisor.config.value_types.listen import Listen
from supervisor.config.value_types.notifying import MatchTable, NotifierUrl, PingUrl, Quiet, notifiers
from supervisor.config.value_types.params import Params
from supervisor.config.value_types.permissions import Permission
from supervisor.config.value_types.presets import PRESETS
from supervisor.config.value_types.probes import LIVE, READY, LinePattern
from supervisor.config.value_types.process import Limits, Stdin, StopSignal, Umask, User
from supervisor.config.value_types.timing import Attempts, Moment, OnStart, RetryCause
from supervisor.config.value_types.values import (
    NAME,
    Choice,
    CommandLine,
    CronExpression,
    Duration,
    Environment,
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
from supervisor.dataclass import dataclass

REQUIRED: Final = object()
"""The default of a key that has none."""

MAX_UNITS = 10_000
_MAX_SOCKET_PATH_BYTES = 107
"""sun_path of unix(7), less the closing NUL."""
_KB, _TB = 1 << 10, 1 << 40

UNIT_NAME = NAME
"""Names of tasks and services; of dots alone they are refused, being path components."""

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


@dataclass(frozen=True)
class Key:
    """One key."""

    name: str
    places: frozenset[str]
    """Which tables have it: daemon, http, storage, notify, notifier, route, launcher, task, service."""
    type: ValueType
    default: Any
    """As the file would say it; None: not set; REQUIRED: it has to be said."""
    doc: str
    field: str = ""
    """Its name in the model, where that differs."""

    @property
    def attribute(self) -> str:
        """Its name in the model."""
        return self.field or self.name


KEYS: Final = (
    # [daemon]
    Key("data_dir", DAEMON, FilePath(), None, "where everything is kept; --data overrides it"),
    Key("timezone", DAEMON, TimeZone(), None, "for schedules that name none; default: the host's"),
    Key("shutdown_timeout", DAEMON, Duration(), "8s", "how long a shutdown may take", "shutdown_timeout_ms"),
    Key("log_level", DAEMON, choice("debug", "info", "warning", "error"), "info", "of the daemon's own log"),
    Key("cgroups", DAEMON, Choice({"auto": True, "off": False}), "auto", "off: runs have no cgroup of their own"),
    Key("heartbeat", DAEMON, PingUrl(), None, "URL that is asked for every minute while the daemon is well"),
    Key("include", DAEMON, ListOf(Text(empty=False), 100), [], "globs of files with more tasks and services"),
    # [http]
    Key(
        "listen",
        HTTP,
        ListOf(Listen(), 16),
        ["127.0.0.1:7464"],
        "addresses; may be empty; others than loopback need tls_cert or behind_proxy",
    ),
    Key("socket", HTTP, FilePath(_MAX_SOCKET_PATH_BYTES), None, "Unix socket; default: ringward.sock in data_dir"),
    Key("socket_group", HTTP, Text(limit=100, empty=False), None, "group that may connect to socket and proxy_socket"),
    Key("proxy_socket", HTTP, FilePath(_MAX_SOCKET_PATH_BYTES), None, "Unix socket for proxies; trusts no peer"),
    Key(
        "user",
        HTTP,
        Text(limit=100, empty=False),
        None,
        "of API workers, when the daemon is root's; default: ringward, if there is such a user",
    ),
    Key("workers", HTTP, Integer(1, 64), 1, "API worker processes"),
    Key("password_file", HTTP, FilePath(), None, "file with the password; RINGWARD_PASSWORD overrides it"),
    Key("tls_cert", HTTP, FilePath(), None, "certificate chain, PEM; with it all TCP addresses speak TLS"),
    Key("tls_key", HTTP, FilePath(), None, "its private key, PEM, without a passphrase"),
    Key("behind_proxy", HTTP, ListOf(Network(), 64), [], "networks of proxies that are believed who the client is"),
    Key("hosts", HTTP, ListOf(HostName(), 64), [], "more names under which clients may reach the API"),
    Key("external_url", HTTP, Url(), None, "under which clients reach the API, for links"),
    Key("base_path", HTTP, BasePath(), "", "path below which the whole site works, too"),
    Key(
        "metrics",
        HTTP,
        Choice({"open": True, "private": False}),
        "private",
        "open: /metrics needs no authentication",
        "metrics_open",
    ),
    Key(
        "trigger_rate",
        HTTP,
        Integer(0, 100_000),
        0,
        "runs that one credential may trigger within a minute; 0: as many as it likes",
    ),
    # [storage]
    Key("database", STORAGE, DatabaseUrl(), "sqlite", "sqlite, or a database of a PostgreSQL server"),
    Key("durability", STORAGE, choice("crash", "power"), "crash", "what stored state survives: a crash, or power loss"),
    Key(
        "min_free_space",
        STORAGE,
        Size(0, _TB),
        None,
        "logs do not grow while less is free; default: 256mb, or 5 % of the file system if that is less",
        "min_free_bytes",
    ),
    Key("compress_after", STORAGE, Duration(), "1h", "how long after its end a log is compressed", "compress_after_ms"),
    Key(
        "max_log_bytes",
        STORAGE,
        Size(0, 1024 * _TB),
        None,
        "what all logs may occupy; beyond that the logs go that ended first; default: 20 % of the file system",
    ),
    Key("undo_window", STORAGE, Duration(), "1h", "how long deleted runs can be restored", "undo_window_ms"),
    # [notify]
    Key(
        "coalesce_window",
        NOTIFY,
        Duration(),
        "1h",
        "repeats of a notification within this time only raise its count",
        "coalesce_window_ms",
    ),
    Key("history_keep", NOTIFY, Integer(1, 100_000), 1000, "how many notifications are kept"),
    Key("digest", NOTIFY, Duration(), "0s", "messages wait so long for others to be sent with", "digest_ms"),
    # [notifiers.NAME]
    Key("url", NOTIFIER, NotifierUrl(), REQUIRED, "how to reach it, as Apprise writes that"),
    # [[routes]]
    Key("match", ROUTE, MatchTable(), {}, "which notifications: kinds, severity (the least), tasks (a glob)"),
    Key("notify", ROUTE, notifiers(empty=False), REQUIRED, "names of notifiers"),
    Key("after", ROUTE, Integer(1, 10_000), 1, "how many failures of a task in a row it takes"),
    Key("final_attempt_only", ROUTE, Flag(), True, "false: also failures that are tried again"),
    Key("recovery", ROUTE, Flag(), True, "who was told of a failure is told when it is over"),
    Key("quiet", ROUTE, Quiet(), None, "hours in which messages are held back"),
    # [launchers.NAME]
    Key("preset", LAUNCHER, choice(*PRESETS), None, "the engine, whose client is known here"),
    Key("client", LAUNCHER, Words(program=True), None, "the preset's client, with options that all its commands get"),
    Key("options", LAUNCHER, Words(), [], "further arguments of the preset's start"),
    Key("host", LAUNCHER, Place("deploy@web1"), None, "where ssh leads to"),
    Key("image", LAUNCHER, Place("alpine:3"), None, "what containers are made of"),
    Key("start", LAUNCHER, Words(program=True), None, "the client's arguments; it lives as long as the job"),
    Key("stop", LAUNCHER, Words(), None, "ends the job of a run"),
    Key("probe", LAUNCHER, Words(), None, "its first word is the engine's name for the job; nothing: there is no job"),
    # tasks and services
    Key("run", BOTH, CommandLine(), REQUIRED, "a string goes to shell -e -c; a list is executed as it is"),
    Key("shell", BOTH, Text(empty=False), "/bin/sh", "runs a run that is a string"),
    Key("working_dir", BOTH, FilePath(), None, "default: the daemon's"),
    Key("env", BOTH, Environment(), {}, "variables, added to the daemon's; those of [defaults] are added too"),
    Key("env_file", BOTH, ListOf(FilePath(), 16, single=True), [], "files with variables, which env may replace"),
    Key(
        "env_base",
        BOTH,
        Choice({"inherit": False, "clean": True}),
        "inherit",
        "clean: without the daemon's variables",
        "clean_env",
    ),
    Key("env_public", BOTH, ListOf(VariableName(), 1000), [], "variables of env whose values may be shown"),
    Key("secrets", BOTH, Secrets(), {}, "variables whose values are hidden wherever they appear in the output"),
    Key("secrets_file", BOTH, ListOf(FilePath(), 16, single=True), [], "files with secrets, which secrets may replace"),
    Key("user", BOTH, User(), None, "who runs it: a user, or a user and a group; default: the daemon's user"),
    Key("umask", BOTH, Umask(), None, "permissions that new files do not get; default: the daemon's"),
    Key("limits", BOTH, Limits(), {}, "what its processes may use"),
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
        "what its runs may ask of the daemon, as in restart:web; names may be globs",
    ),
    Key("description", BOTH, Text(), None, "for people"),
    Key("group", BOTH, Text(limit=100), None, "for display"),
    Key("tags", BOTH, ListOf(Text(limit=100, empty=False), 64), [], "for display"),
    Key(
        "cron",
        TASK,
        ListOf(CronExpression(), 100, single=True),
        [],
        "when to run: five fields, six with seconds in front, or a macro",
        "crons",
    ),
    Key("every", TASK, Duration(low_ms=1000), None, "runs at this interval, whatever the clocks show", "every_ms"),
    Key("at", TASK, Moment(), None, "runs once, at this time", "at_ms"),
    Key("timezone", TASK, TimeZone(), None, "of its schedule; default: the daemon's"),
    Key("dst_gap", TASK, choice("run", "skip"), "run", "when its time of day does not exist: run at the gap's end"),
    Key("dst_overlap", TASK, choice("first", "both", "second"), "first", "which run when its time of day comes twice"),
    Key("jitter", TASK, Duration(), "0s", "starts within this time after its instant, always the same", "jitter_ms"),
    Key("catch_up", TASK, Integer(0, 1000), 1, "how many of the newest times that were missed run"),
    Key("catch_up_window", TASK, Duration(), "1d", "how long ago they may be", "catch_up_window_ms"),
    Key("run_on_start", TASK, OnStart(), False, "run at every start of the daemon; boot: once per boot of the host"),
    Key("max_concurrent", TASK, Integer(1, 10_000), 1, "runs at the same time"),
    Key("on_overlap", TASK, choice("queue", "skip", "terminate"), "queue", "when max_concurrent are running"),
    Key("queue_max", TASK, Integer(0, 100_000), 100, "runs waiting at most"),
    Key("coalesce", TASK, Flag(), True, "of its scheduled times at most one waits"),
    Key("timeout", BOTH, Duration(low_ms=1), None, "how long a run may take", "timeout_ms"),
    Key("retry_attempts", TASK, Integer(0, 10_000), 0, "further attempts after a failure"),
    Key("retry_delay", TASK, Duration(), "5s", "before the first of them", "retry_delay_ms"),
    Key("retry_backoff", TASK, choice("constant", "linear", "exponential"), "exponential", "how the delay grows"),
    Key("retry_max_delay", TASK, Duration(), "5m", "how far the delay grows", "retry_max_delay_ms"),
    Key(
        "retry_on",
        TASK,
        ListOf(RetryCause(), 300, empty=False),
        ["failed", "timeout", "crashed", "start_failed", "log_overflow"],
        "after which end reasons and exit codes",
    ),
    Key(
        "retry_superseded",
        TASK,
        Flag(),
        None,
        "whether a retry still runs after a newer time of the schedule has succeeded; default: only where catch_up or"
        " max_concurrent is more than 1, or coalesce is false",
    ),
    Key("api_trigger", TASK, Flag(), True, "false: only the schedule may run it"),
    Key("params", TASK, Params(), [], "values that whoever runs it may give"),
    Key("instances", SERVICE, Integer(1, 64), 1, "how many run side by side"),
    Key("restart", SERVICE, choice("always", "on_failure", "never"), "always", "whether it is started again"),
    Key("restart_delay", SERVICE, Duration(), "1s", "before the first restart", "restart_delay_ms"),
    Key("restart_backoff", SERVICE, choice("constant", "linear", "exponential"), "exponential", "how the delay grows"),
    Key("restart_max_delay", SERVICE, Duration(), "60s", "how far the delay grows", "restart_max_delay_ms"),
    Key(
        "restart_attempts",
        SERVICE,
        Attempts(),
        3,
        "quick failures in a row before it is given up; unlimited: it is restarted for ever",
    ),
    Key("healthy_after", SERVICE, Duration(), "10s", "an end after this is no quick failure", "healthy_after_ms"),
    Key(
        "fatal_retry",
        SERVICE,
        Duration(low_ms=1),
        None,
        "how long after it was given up it is tried again",
        "fatal_retry_ms",
    ),
    Key("ready", SERVICE, READY, None, "by what an instance is ready: notify, http, tcp, exec or log"),
    Key("live", SERVICE, LIVE, None, "by what an instance is alive: notify, http, tcp or exec; else it is restarted"),
    Key("depends_on", SERVICE, ListOf(Depends(), 100), [], "services and tasks that it waits for before it starts"),
    Key("autostart", SERVICE, Flag(), True, "false: it starts when somebody starts it"),
    Key("priority", SERVICE, Integer(0, 1000), 100, "lower ones start earlier and stop later"),
    Key("stop_signal", BOTH, StopSignal(), "SIGTERM", "asks it to end; or several signals, each with its time"),
    Key(
        "stop_target",
        BOTH,
        choice("tree", "main"),
        "tree",
        "who gets stop_signal: all its processes, or only the main one; SIGKILL goes to all",
    ),
    Key("graceful_stop", BOTH, Duration(), "5s", "how long after stop_signal SIGKILL follows", "grace_ms"),
    Key(
        "leftovers",
        BOTH,
        Choice({"kill": False, "leave": True}),
        "kill",
        "what becomes of processes that outlive the main one",
        "leave_leftovers",
    ),
    Key("exit_codes", BOTH, ListOf(Integer(0, 255), 256, empty=False), [0], "exits that are success"),
    Key("failure_output", BOTH, LinePattern(), None, "a line of output that makes a run a failure"),
    Key("tty", BOTH, Flag(), False, "run under a pseudo-terminal: colours and progress bars as for people"),
    Key(
        "stderr",
        BOTH,
        Choice({"separate": False, "merge": True}),
        "separate",
        "merge: one pipe for both, in exact order",
        "merge_stderr",
    ),
    Key(
        "redraw",
        BOTH,
        Choice({"auto": True, "off": False}),
        "auto",
        "auto: a progress bar is one line, with its history; off: every byte as it comes",
    ),
    Key("log_max_size", BOTH, Size(512 * _KB, _TB), "100mb", "how much of a run's output is kept", "log_max_bytes"),
    Key(
        "log_on_full",
        BOTH,
        choice("drop_old", "drop_new", "kill"),
        "drop_old",
        "at log_max_size: the oldest lines go, new ones are dropped, or the run is stopped",
    ),
    Key("keep_runs", BOTH, Integer(0, 1_000_000_000), 1000, "how many runs that ran and ended are kept"),
    Key("keep_for", BOTH, Duration(), "30d", "how long a run is kept after its end", "keep_for_ms"),
    Key(
        "keep_refused",
        BOTH,
        Integer(0, 1_000_000_000),
        100,
        "how many runs that never ran are kept: queue_full, skipped, missed and dst_skipped",
    ),
    Key("notify_on_failure", BOTH, notifiers(), [], "notifiers that are told when it fails, and when that is over"),
    Key("notify_on_success", BOTH, notifiers(), [], "notifiers that are told of each success"),
    Key("notify_on_missed", BOTH, notifiers(), [], "notifiers that are told when a time of the schedule had no run"),
    Key(
        "max_duration_alert",
        BOTH,
        Duration(low_ms=1),
        None,
        "people are told when a run takes longer, and it goes on",
        "max_duration_alert_ms",
    ),
    Key(
        "silence_alert",
        BOTH,
        Duration(low_ms=1000),
        None,
        "people are told when a run has printed nothing for so long",
        "silence_alert_ms",
    ),
    Key("heartbeat", TASK, PingUrl(), None, "URL that is asked for at the start and the end of runs"),
)


@cache
def keys_of(*places: str) -> Mapping[str, Key]:
    """The keys that one of `places` has, by name."""
    return {key.name: key for key in KEYS if not key.places.isdisjoint(places)}


@cache
def defaults_of(place: str) -> Mapping[str, Any]:
    """What holds without each key of a table, by name in the model."""
    return {
        key.attribute: key.type.parse(key.default, "/") if key.default not in (None, REQUIRED) else None
        for key in keys_of(place).values()
    }
