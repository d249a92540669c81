"""Messages between the scheduler and the watcher, over a socketpair."""

from dataclasses import dataclass, field

from supervisor.ipc.helper_messages import HelperMessage


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """A request to probe a run until it completes or is cancelled."""

    key: str
    """Identifies the request."""
    kind: str
    """http, tcp, exec, log (until a line matches), output (until a line matches or the log ends), ask (a single
    command whose output is returned), or condition (a single command, or a check of the host)."""
    target: str = ""
    """A URL, an address, a regular expression or a path."""
    load_below: float | None = None
    """The load must be below this, for kind condition."""
    every_ms: int = 0
    timeout_ms: int = 0
    """Time limit of one attempt."""
    times: int = 0
    """Number of consecutive failures after which the request has failed; 0: probe until an attempt succeeds."""
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    """The environment of the command."""
    chosen: list[str] = field(default_factory=list)
    """Names of the variables in `env` that the configuration or the daemon sets."""
    secrets: list[str] = field(default_factory=list)
    """Names of the variables in `env` whose values are masked in the command's output."""
    cwd: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: list[int] = field(default_factory=list)
    umask: int | None = None
    ring: str = ""
    file: str = ""
    """Paths of the ring and the log file."""


# Scheduler -> watcher


@dataclass(frozen=True)
class WatcherSetup(HelperMessage, op="hello"):
    """The doorbell of the runs' rings; the first message."""

    bell: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class StartProbe(HelperMessage, op="watch"):
    """Carry out a request."""

    order: ProbeRequest


@dataclass(frozen=True)
class StopProbe(HelperMessage, op="forget"):
    """Cancel a request."""

    key: str


# Watcher -> scheduler


@dataclass(frozen=True)
class AttemptPassed(HelperMessage, op="passed"):
    """An attempt succeeded; completes a request without `times`."""

    key: str


@dataclass(frozen=True)
class AttemptFailed(HelperMessage, op="failing"):
    """An attempt failed, for a new reason."""

    key: str
    why: str


@dataclass(frozen=True)
class RequestFailed(HelperMessage, op="failed"):
    """`times` attempts in a row failed, or the command of kind ask or condition did; completes the request."""

    key: str
    why: str
    """For a condition that is not met, the last line of the command's output."""
    status: int | None = None
    """The exit code of a condition, 1 if it is not met."""


@dataclass(frozen=True)
class LineMatched(HelperMessage, op="matched"):
    """The first matching line, for kind output; completes the request."""

    key: str
    line: int
    why: str
    """The text of the line."""


@dataclass(frozen=True)
class CommandAnswered(HelperMessage, op="answered"):
    """The command of kind ask or condition succeeded; completes the request."""

    key: str
    text: str
    """The standard output of the command; empty for a condition."""


@dataclass(frozen=True)
class NothingMatched(HelperMessage, op="clean"):
    """The output ended without a match or cannot be read, for kind output; completes the request."""

    key: str


ProbeAnswer = AttemptPassed | AttemptFailed | RequestFailed | LineMatched | CommandAnswered | NothingMatched
