"""Messages between the scheduler and the watcher, over a socketpair.

Scheduler -> watcher
    ``hello``    {bell, token}: the doorbell of the runs' rings
    ``watch``    a :class:`ProbeRequest`
    ``forget``   {key}

Watcher -> scheduler
    ``passed``   {key}: an attempt succeeded; completes a request without `times`
    ``failing``  {key, why}: an attempt failed, for a new reason
    ``failed``   {key, why, status}: `times` attempts in a row failed, the command of kind ask or condition failed, or
                 the output cannot be searched, for kind output; completes the request. `status` is the exit code of a
                 condition, 1 if it is not met; `why` is then the last line of its output
    ``matched``  {key, line, why}: the number and text of a matching line, for kind output; completes the request
    ``answered`` {key, text}: the standard output of a successful command, for kind ask, or nothing, for a condition
                 that is met; completes the request
    ``clean``    {key}: the output ended without a match or cannot be read, for kind output; completes the request
"""

from dataclasses import asdict, dataclass, field


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

    def to_dict(self) -> dict[str, object]:
        """Return the request for a message."""
        return asdict(self)
