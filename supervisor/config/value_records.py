"""Records that are values of keys, such as probes, launchers and parameters.

Records with a value that their repr must hide are dataclasses, because structs of msgspec cannot hide one.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec import Struct

OnOverlap = Literal["queue", "skip", "terminate"]
Backoff = Literal["constant", "linear", "exponential"]
Restart = Literal["always", "on_failure", "never"]
RestartOrder = Literal["old_first", "new_first"]
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


class StatusPageTable(Struct, frozen=True, kw_only=True):
    """``[http.status_page]``."""

    title: str
    text: str = ""
    sections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Headings, each with the names of its tasks and services."""
    embed: tuple[str, ...] = ()
    """Origins of the sites that may show the page in a frame; ``*``: any site."""


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A database on a PostgreSQL server."""

    url: str = field(repr=False)
    """The URL, which may contain a password."""
    variables: tuple[str, ...]
    """Names of the environment variables that were substituted in the URL."""


class FailureRate(Struct, frozen=True):
    """How many of the last runs may not fail."""

    text: str
    """As in the configuration: ``3 in 10``."""
    failures: int
    runs: int


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
OnRestart = Literal["restart", "stop"]


class Dependency(Struct, frozen=True):
    """A condition that must be met before a service starts."""

    name: str
    """Name of a service or a task."""
    until: Until | None = None
    """None means ``ready`` for a service with a readiness probe, ``started`` for another, ``succeeded`` for a task."""
    on_restart: OnRestart | None = None
    """``restart``: the dependent restarts after the dependency has restarted. ``stop``: it also waits while the
    dependency is stopped or has failed for good. None: neither."""


class HeldSocket(Struct, frozen=True, kw_only=True):
    """``[services.NAME.sockets]``: a listening socket that the daemon holds for a service."""

    name: str
    address: str
    """``tcp:HOST:PORT`` with a numeric host, or ``unix:PATH`` with an absolute path."""
    mode: int = 0o666
    """Permissions of a Unix socket."""
    user: str | None = None
    """Owner of a Unix socket; None: the daemon's user."""
    group: str | None = None

    @property
    def endpoint(self) -> str | tuple[str, int]:
        """The path of a Unix socket, or the host and the port."""
        kind, _, rest = self.address.partition(":")
        host, _, port = rest.rpartition(":")
        return rest if kind == "unix" else (host.strip("[]"), int(port))


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


When = Literal["success", "failure", "end"]


class Reference(Struct, frozen=True):
    """A part of a value that is known only when a run of a flow begins."""

    of: Literal["step", "param", "each", "flow"]
    name: str
    """The name of a step, a parameter or a list of ``each``; of a flow, ``id`` or ``scheduled_at``."""
    key: str = ""
    """The output key of a step, or ``exit_code``; empty for others."""
    default: str | None = None
    """The text in place of a missing value; None: a missing value is an error."""


Template = tuple[str | Reference, ...]
"""Texts and references, which make a value together. A text is never searched for references again."""


class Step(Struct, frozen=True, kw_only=True):
    """``[flows.NAME.steps.NAME]``: when a flow makes runs of a task, and with which values."""

    name: str
    unit: str
    """The task of its runs: ``FLOW:STEP`` if the step has a command, else the task or flow that it names."""
    after: tuple[str, ...] = ()
    """The steps that are decided first; empty: the step begins with the flow."""
    when: When = "success"
    """The decisions of these steps after which it begins."""
    delay_ms: int = 0
    """How long it waits once it may begin."""
    optional: bool = False
    """Whether a failure of its own runs counts as a success."""
    needs_approval: bool | tuple[str, ...] = False
    """Whether somebody must approve its run; a list: who may."""
    params: dict[str, Template] = {}
    """The values of parameters of the task that it names."""
    each: dict[str, tuple[Template, ...] | Reference] = {}
    """The lists that it has a run for each combination of; a reference: a list that an earlier step writes."""
    each_max: int | None = None
    """The number of these runs at the same time; None: all."""
    fail_fast: bool = False
    """Whether the first failure stops the other runs."""


ParamKind = Literal["env", "arg", "option", "flag"]
ParamType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCheck:
    """A condition that needs no command; all that is set must be true."""

    path: str | None = None
    """A path that must exist."""
    load_below: float | None = None
    """What the load of the last minute must be below."""


class CronEntry(NamedTuple):
    """An expression of ``cron``, and the values of parameters that it gives to its runs."""

    expression: str
    params: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Param:
    """A parameter of a task: a value that its requester can set."""

    name: str
    kind: ParamKind | None
    """How the command receives the value; None for a parameter of a flow, which has no command."""
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
