"""Records that are values of keys: probes, launchers, parameters, routes and such."""

from dataclasses import dataclass, field
from typing import Literal

OnOverlap = Literal["queue", "skip", "terminate"]
Backoff = Literal["constant", "linear", "exponential"]
Restart = Literal["always", "on_failure", "never"]
LogOnFull = Literal["drop_old", "drop_new", "kill"]
Durability = Literal["crash", "power"]
StopTarget = Literal["tree", "main"]
LogLevel = Literal["debug", "info", "warning", "error"]


Stamp = tuple[int, int, int]
"""The state by which a change of a file is detected: time of its last change (ns), size, inode."""


StopSignal = int | tuple[tuple[int, int], ...]
"""A signal; or several, each with the time that it has (ms)."""


Command = str | tuple[str, ...]
"""A string goes to ``shell -e -c``; a tuple is executed as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyIdentity:
    """``[http.identity]``."""

    secret_file: str
    """Absolute path."""
    roles: tuple[tuple[str, str], ...]
    """Groups, each with the role of its members; ``*``: everybody else."""
    user_header: str = "Remote-User"
    groups_header: str = "Remote-Groups"
    secret_header: str = "Ringward-Proxy-Secret"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A database of a PostgreSQL server."""

    url: str = field(repr=False)
    """May have a password."""
    variables: tuple[str, ...]
    """Names of the environment variables that it was made with."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one minute of the day to another; over midnight when `begin` is the later one."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Match:
    """Which notifications take a route."""

    kinds: tuple[str, ...] = ()
    """Empty: all kinds, except kinds that a route must name."""
    severity: str | None = None
    """The least."""
    tasks: str | None = None
    """Glob for names of tasks and services."""


JsonPath = tuple[str | int, ...]
"""Names and indices that lead to a value in a JSON document."""


Until = Literal["started", "ready", "succeeded"]


@dataclass(frozen=True, slots=True)
class Dependency:
    """The dependency that a service waits for before it starts."""

    name: str
    """Of a service or a task."""
    until: Until | None = None
    """None: a service until it is ready if it has `ready`, else until it is started; a task until it has succeeded."""


ProbeKind = Literal["notify", "http", "tcp", "exec", "log"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """How it is found out whether an instance of a service does its work."""

    kind: ProbeKind
    target: Command
    """A URL, an address, a command or a regular expression; empty for notify."""
    every_ms: int
    """From one attempt to the next."""
    timeout_ms: int
    """Of readiness: how long it may take altogether. Of liveness: how long one attempt may take."""
    failures: int = 0
    """Of liveness: how many in a row are too many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """``[launchers.NAME]``: runs instances through the client of another engine. Words may have placeholders."""

    name: str
    start: tuple[str, ...]
    """The client: it runs as long as the job does, prints the job's output and exits with the job's result."""
    stop: tuple[str, ...] = ()
    """Ends the job of a run; empty: the end of the client does that."""
    probe: tuple[str, ...] = ()
    """Prints the engine's name of the job, or nothing when there is none; empty: the engine cannot be asked."""
    feed: Literal["nothing", "script", "nomad_job"] = "nothing"
    """The client's value of ``RINGWARD_INPUT``."""
    image: str | None = None
    carries_secrets: bool = True
    """Secrets reach the job without being shown on the way."""
    expands: bool = False
    """Dollars in the command and in values of variables have to be doubled on the way."""
    own_failures: dict[str, str] = field(default_factory=dict)
    """Exit statuses of the client itself, and their meanings."""


ParamKind = Literal["env", "arg", "option", "flag"]
ParamType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Param:
    """One value that a user who runs a task may give."""

    name: str
    kind: ParamKind
    """How the command gets it."""
    type: ParamType = "string"
    default: str | None = field(default=None, repr=False)
    required: bool = False
    """Who runs the task has to give it, unless it has a default."""
    choices: tuple[str, ...] = ()
    """The only values that it takes; empty: any."""
    pattern: str | None = None
    """RE2; the whole value matches it."""
    description: str | None = None
    secret: bool = False
    """Its values are shown nowhere."""
