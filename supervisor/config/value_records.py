"""Records that are values of keys, such as probes, launchers and parameters.

Records with a value that their repr must hide are dataclasses, because structs of msgspec cannot hide one.
"""

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

OnOverlap = Literal["queue", "skip", "terminate"]
Backoff = Literal["constant", "linear", "exponential"]
Restart = Literal["always", "on_failure", "never"]
LogOnFull = Literal["drop_old", "drop_new", "kill"]
Durability = Literal["crash", "power"]
StopTarget = Literal["tree", "main"]
LogLevel = Literal["debug", "info", "warning", "error"]


Stamp = tuple[int, int, int]
"""The state by which a change of a file is detected: time of modification (ns), size and inode."""


StopSignal = int | tuple[tuple[int, int], ...]
"""A signal, or several, each with the time in ms before the next one."""


Command = str | tuple[str, ...]
"""A string is executed by ``shell -e -c``; a tuple is executed directly."""


class ProxyIdentity(Struct, frozen=True, kw_only=True):
    """``[http.identity]``."""

    secret_file: str
    """Absolute path."""
    roles: tuple[tuple[str, str], ...]
    """Groups, each with the role of its members; ``*`` means everybody else."""
    user_header: str = "Remote-User"
    groups_header: str = "Remote-Groups"
    secret_header: str = "Ringward-Proxy-Secret"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A database on a PostgreSQL server."""

    url: str = field(repr=False)
    """The URL, which may contain a password."""
    variables: tuple[str, ...]
    """Names of the environment variables that were substituted in the URL."""


class QuietHours(Struct, frozen=True):
    """A range of minutes of the day; it spans midnight if `start` is after `end`."""

    start: int
    end: int


class Match(Struct, frozen=True):
    """The conditions for notifications that take a route."""

    kinds: tuple[str, ...] = ()
    """Empty: all kinds, except kinds that a route must name."""
    severity: str | None = None
    """The lowest severity; None: any."""
    tasks: str | None = None
    """Glob for names of tasks and services."""


JsonPath = tuple[str | int, ...]
"""The names and indexes that lead to a value in a JSON document."""


Until = Literal["started", "ready", "succeeded"]


class Dependency(Struct, frozen=True):
    """A condition that must be met before a service starts."""

    name: str
    """Name of a service or a task."""
    until: Until | None = None
    """None means ``ready`` for a service with a readiness probe, ``started`` for another, ``succeeded`` for a task."""


ProbeKind = Literal["notify", "http", "tcp", "exec", "log"]


class Probe(Struct, frozen=True, kw_only=True):
    """A check of whether an instance of a service works."""

    kind: ProbeKind
    target: Command
    """A URL, address, command or regular expression; empty for ``notify``."""
    every_ms: int
    """Time between attempts."""
    timeout_ms: int
    """For readiness: time limit of all attempts together. For liveness: time limit of each attempt."""
    failures: int = 0
    """For liveness: number of consecutive failed attempts that make an instance unhealthy."""


class Launcher(Struct, frozen=True, kw_only=True):
    """``[launchers.NAME]``: starts runs through the client of another engine. Words may contain placeholders."""

    name: str
    start: tuple[str, ...]
    """The command of the client, which runs as long as the job, prints its output, and exits with its result."""
    stop: tuple[str, ...] = ()
    """The command that stops the job of a run; empty: a stop of the client does so."""
    probe: tuple[str, ...] = ()
    """The command that prints the engine's name of a job, or nothing if there is no job; empty: there is none."""
    feed: Literal["nothing", "script", "nomad_job"] = "nothing"
    """The content of the client's variable ``RINGWARD_INPUT``."""
    image: str | None = None
    carries_secrets: bool = True
    """Whether secrets reach the job without being visible to others on the way."""
    expands: bool = False
    """Whether the engine expands variables, so that dollars in arguments and values must be doubled."""
    own_failures: dict[str, str] = {}
    """Exit statuses of the client itself, and their meanings."""


ParamKind = Literal["env", "arg", "option", "flag"]
ParamType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Param:
    """A parameter of a task: a value that its requester can set."""

    name: str
    kind: ParamKind
    """How the command receives the value."""
    type: ParamType = "string"
    default: str | None = field(default=None, repr=False)
    required: bool = False
    """Whether the requester must set it, unless it has a default."""
    choices: tuple[str, ...] = ()
    """The allowed values; empty: any."""
    pattern: str | None = None
    """A regular expression (RE2) that must match the whole value."""
    description: str | None = None
    secret: bool = False
    """Whether its values are never shown."""
