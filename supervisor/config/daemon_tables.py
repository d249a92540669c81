"""The tables of the configuration file except tasks and services, each with the declarations of its keys.

:mod:`supervisor.config.model` explains the declarations.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from supervisor.config.calendar_files import CalendarDate
from supervisor.config.client_keys import DATA_DIR, SOCKET
from supervisor.config.database_url import DatabaseUrl
from supervisor.config.keys import REQUIRED, Effect, Key, key
from supervisor.config.value_records import (
    DatabaseServer,
    Durability,
    JsonPath,
    LogLevel,
    Match,
    ProxyIdentity,
    QuietHours,
    StatusPageTable,
)
from supervisor.config.value_types import hook_values
from supervisor.config.value_types.exports import FACILITIES, FORMATS, HEADER_TEXT, OF_TYPE, STREAMS, SyslogAddress
from supervisor.config.value_types.exposure import BasePath, HostName, Network, StatusPageType, Url
from supervisor.config.value_types.identity_table import IdentityTable
from supervisor.config.value_types.launchers import ArgumentList, word_such_as
from supervisor.config.value_types.listen import Listen
from supervisor.config.value_types.notify_targets import (
    MatchTable,
    NotifierUrl,
    PingUrl,
    QuietRange,
    UnitConditions,
    notifiers,
)
from supervisor.config.value_types.presets import PRESETS
from supervisor.config.value_types.slots import PLACES
from supervisor.config.value_types.timing import LocalTime
from supervisor.config.value_types.values import (
    Choice,
    CronExpression,
    Duration,
    FilePath,
    Flag,
    Integer,
    ListOf,
    Name,
    Size,
    Text,
    TimeZone,
    choice,
)

_MB, _TB = 1 << 20, 1 << 40
_NAMES = ListOf(Text(limit=100, empty=False), 100, single=True)

API, SCHEDULER, DAEMON = Effect.API, Effect.SCHEDULER, Effect.DAEMON


@dataclass(frozen=True, kw_only=True, slots=True)
class Daemon:
    """``[daemon]``."""

    data_dir: str | None = key(
        DATA_DIR, None, "directory for state and logs; --data overrides it", DAEMON, example="/var/lib/ringward"
    )
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
        Integer(1, 100_000),
        None,
        "number of runs of tasks at the same time; default: no limit",
        example=20,
    )
    """Maximum number of active runs of tasks; None: no limit."""
    heartbeat: str | None = key(
        PingUrl(), None, "URL that the daemon requests every minute while it is healthy", shown=False
    )
    """URL that is requested every minute while the daemon works."""
    include: ClassVar[object] = key(
        ListOf(Text(empty=False), 100), [], "globs of files with more tasks and services", example=["conf.d/*.toml"]
    )


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
    socket: str | None = key(
        SOCKET, None, "Unix socket; default: ringward.sock in data_dir", DAEMON, example="/run/ringward/ringward.sock"
    )
    """Absolute path of the Unix socket; None: in the data directory."""
    socket_group: str | None = key(
        Text(limit=100, empty=False),
        None,
        "group that may connect to socket and proxy_socket",
        DAEMON,
        example="operators",
    )
    """Group that may also connect to `socket` and `proxy_socket`."""
    proxy_socket: str | None = key(
        SOCKET, None, "Unix socket for proxies; trusts no peer", DAEMON, example="/run/ringward/proxy.sock"
    )
    """Absolute path of a Unix socket for proxies, whose peers are not trusted; None: no socket."""
    user: str | None = key(
        Text(limit=100, empty=False),
        None,
        "user of the API workers of a daemon that runs as root; default: ringward, if it exists",
        DAEMON,
        example="ringward",
    )
    """The user of API workers if the daemon runs as root; None: the usual one, if it exists."""
    workers: int = key(Integer(1, 64), 1, "API worker processes", API)
    password_file: str | None = key(
        FilePath(),
        None,
        "file with the password; RINGWARD_PASSWORD overrides it",
        API,
        example="/etc/ringward/password",
    )
    """Absolute."""
    tls_cert: str | None = key(
        FilePath(),
        None,
        "certificate chain, PEM; with it all TCP addresses speak TLS",
        API,
        example="/etc/ringward/cert.pem",
    )
    """Absolute path; None: no TLS."""
    tls_key: str | None = key(
        FilePath(), None, "its private key, PEM, without a passphrase", API, example="/etc/ringward/key.pem"
    )
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
        example=["web"],
    )
    """Names of the tasks and services whose state is visible without authentication."""
    status_page: StatusPageTable | None = key(
        StatusPageType(), None, "title, sections, 90 days and incidents of the public page /status", API
    )
    """What the status page shows besides the present states; None: nothing."""
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
    url: str = key(
        NotifierUrl(), REQUIRED, "Apprise URL of the channel", shown=False, example="mailto://user:password@example.com"
    )
    """A URL for Apprise, which may contain a password."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """``[[routes]]``: the notifiers of a set of events."""

    match: Match = key(MatchTable(), {}, "which notifications match: kinds, least severity, tasks (a glob)")
    notify: tuple[str, ...] = key(notifiers(empty=False), REQUIRED, "names of notifiers", example=["ops"])
    after: int = key(Integer(1, 10_000), 1, "number of consecutive failures of a task before the first message")
    """Number of consecutive failures that cause the first message."""
    final_attempt_only: bool = key(Flag(), True, "false: failures with a retry to come match, too")
    """Whether to ignore failures after which a retry follows."""
    recovery: bool = key(Flag(), True, "notifiers of a failure also get its recovery")
    """Whether a recipient of a failure also receives its recovery."""
    quiet: QuietHours | None = key(QuietRange(), None, "hours in which messages wait")
    """Quiet hours, in which messages wait."""
    repeat_ms: int | None = key(
        Duration(low_ms=60_000),
        None,
        "time after which a message is sent again if the problem lasts without an acknowledgement",
        name="repeat",
        example="4h",
    )
    unacked_for_ms: int | None = key(
        Duration(low_ms=1000),
        None,
        "messages are only sent if the problem lasts for this time without an acknowledgement",
        name="unacked_for",
        example="30m",
    )


LAUNCHER = (
    Key("preset", choice(*PRESETS), None, "a known engine"),
    Key(
        "client",
        ArgumentList(program=True),
        None,
        "program that the preset calls, with options for all commands",
        example=["/usr/local/bin/docker"],
    ),
    Key("options", ArgumentList(), [], "more arguments for the preset's start", example=["--partition=short"]),
    Key("host", word_such_as("deploy@web1"), None, "destination of ssh"),
    Key("image", word_such_as("alpine:3"), None, "image of the containers"),
    Key(
        "start",
        ArgumentList(program=True),
        None,
        "the client; it must live as long as the job",
        example=["cluster", "submit", "{command}"],
    ),
    Key("stop", ArgumentList(), None, "command that ends the job of a run", example=["cluster", "cancel", "{id}"]),
    Key(
        "probe",
        ArgumentList(),
        None,
        "command that prints the engine's name for the job, or nothing",
        example=["cluster", "state", "{id}"],
    ),
)
"""``[launchers.NAME]``, which becomes a :class:`supervisor.config.value_records.Launcher`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """``[hooks.NAME]``: an address to which another program sends requests that start a task."""

    name: str
    task: str = key(Name("the name of a task"), REQUIRED, "the task that runs", example="deploy")
    kind: Literal["github", "gitlab", "generic"] = key(
        choice(*hook_values.KINDS), REQUIRED, "the sender, and thereby how it proves that it has the secret"
    )
    secret: str = key(
        FilePath(),
        REQUIRED,
        "file with the secret that the sender has",
        shown=False,
        name="secret_file",
        example="/etc/ringward/hook-secret",
    )
    """The content of `secret_file`."""
    events: tuple[str, ...] = key(
        ListOf(Text(limit=110, empty=False), 100),
        [],
        "events that start a run, as the sender names them; required for github and gitlab",
        example=["push"],
    )
    """The events that start a run; empty for a sender that does not name events."""
    when: tuple[tuple[JsonPath, tuple[str, ...]], ...] = key(
        hook_values.Conditions(), {}, "values that the body must have; others start no run"
    )
    """Conditions for a request that starts a run: paths in the body, each with the accepted values."""
    params: dict[str, JsonPath] = key(
        hook_values.ParamPaths(), {}, "parameters of the task, and where their values stand in the body"
    )
    """Paths in the body of values for the task's parameters, by parameter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """``[exports.NAME]``: delivers log lines to another program. Keys of other types have their defaults."""

    name: str
    type: Literal["file", "syslog", "journald", "loki", "otlp"] = key(choice(*OF_TYPE), REQUIRED, "kind of receiver")
    tasks: tuple[str, ...] = key(_NAMES, [], "globs for names of units", example=["backup-*"])
    """Globs for names of tasks and services; empty: all."""
    groups: tuple[str, ...] = key(_NAMES, [], "groups of units", example=["shop"])
    """Groups to export; empty: all units, also those without a group."""
    tags: tuple[str, ...] = key(_NAMES, [], "tags; a unit needs one of them", example=["nightly"])
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
    path: str | None = key(FilePath(), None, "file to append to", example="/var/log/ringward/lines.json")
    """Absolute."""
    max_size_bytes: int = key(Size(_MB, _TB), "100mb", "size at which the file is rotated", name="max_size")
    max_age_ms: int = key(Duration(), "0s", "age at which the file is rotated; 0: no limit", name="max_age")
    keep: int = key(Integer(0, 1000), 5, "number of rotated files to keep")
    address: str | None = key(SyslogAddress(), None, "address of the syslog server")
    """``unix:PATH``, ``udp://HOST:PORT``, ``tcp://HOST:PORT`` or ``tls://HOST:PORT``."""
    facility: str = key(choice(*FACILITIES), "daemon", "facility of the messages")
    format: str | None = key(
        choice(*FORMATS), None, "format of the messages; default: rfc3164 for a Unix socket, otherwise rfc5424"
    )
    url: str | None = key(Url(), None, "address of Loki or of an OpenTelemetry collector")
    spans: bool = key(Flag(), True, "whether each run is exported as a span")
    tenant: str | None = key(HEADER_TEXT, None, "tenant, for a receiver with several", example="shop")
    username: str | None = key(HEADER_TEXT, None, "user name for basic authentication", example="shop")
    password_file: str | None = key(
        FilePath(), None, "file with the password of username", example="/etc/ringward/password"
    )
    """Absolute."""
    token_file: str | None = key(FilePath(), None, "file with a bearer token", example="/etc/ringward/loki-token")
    """Absolute."""
    tls_ca: str | None = key(
        FilePath(), None, "certificates to trust, PEM; default: the host's", example="/etc/ssl/certs/ca.pem"
    )
    """Absolute path of certificates to trust; None: the host's certificates."""


CALENDAR = (
    Key("country", Text(limit=100, empty=False), None, "a country whose public holidays are closed days", example="DE"),
    Key("subdivision", Text(limit=100, empty=False), None, "a part of the country", example="BY"),
    Key("dates", ListOf(CalendarDate(), 10_000), [], "closed days", example=["2026-12-24", "2026-12-31"]),
    Key("file", FilePath(), None, "an iCalendar file whose all-day events are closed days", example="closing-days.ics"),
)
"""``[calendars.NAME]``, which becomes a :class:`supervisor.schedule.calendars.Calendar`."""
WINDOW = (
    Key("cron", ListOf(CronExpression(), 100, single=True), [], "when it opens", example="0 20 * * fri"),
    Key("duration", Duration(low_ms=1000), None, "how long it stays open each time", example="3h"),
    Key("from", LocalTime(), None, "when it opens, once", example="2026-12-24 18:00"),
    Key("to", LocalTime(), None, "when it closes", example="2026-12-27 06:00"),
    Key("match", UnitConditions(), {}, "tasks and services that it applies to; default: all"),
    Key("instants", choice("skip", "defer"), "skip", "scheduled times in it: none runs, or one run at its end"),
    Key("running", choice("continue", "stop"), "continue", "runs of tasks that are active when it opens"),
    Key("alarms", choice("hold", "send"), "hold", "messages about its tasks and services: at its end, or at once"),
)
"""``[windows.NAME]``, which becomes a :class:`supervisor.schedule.windows.WindowDefinition`."""
SLOT = (Key("size", PLACES, REQUIRED, "places that runs share", example=2),)
"""The keys of ``[slots.NAME]``; the model only has the sizes."""
