"""What the scheduler asks of the watcher, and what it hears from it: frames over a socketpair.

Scheduler -> watcher
    ``hello``    {bell, token}: where the doorbell of the runs' rings is
    ``watch``    see :class:`ProbeRequest`
    ``forget``   {key}

Watcher -> scheduler
    ``passed``   {key}: it was seen; an order without `times` is done then
    ``failing``  {key, why}: an attempt failed, for another reason than the one before
    ``failed``   {key, why}: as many in a row as `times` says; the order is done
    ``matched``  {key, line, why}: of output, the number and text of a line that matched; the order is done
    ``answered`` {key, text}: of ask, what the command printed on standard output, ending with 0; the order is done
    ``clean``    {key}: of output, it is at its end, or cannot be read, and none has matched; the order is done
"""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """Watch something of a run, until it is forgotten or done."""

    key: str
    """Names it."""
    kind: str
    """http, tcp, exec, log (until a line matches), output (until a line matches or the log ends), or ask (one attempt
    with a command, which is answered, or has failed)."""
    target: str = ""
    """A URL, an address or a regular expression."""
    every_ms: int = 0
    timeout_ms: int = 0
    """Of one attempt."""
    times: int = 0
    """So many failures in a row are reported; 0: attempts are made until one succeeds."""
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    """All that the command gets."""
    chosen: list[str] = field(default_factory=list)
    """Those of `env` that the configuration sets, or we do."""
    secrets: list[str] = field(default_factory=list)
    """Those of `env` whose values are masked in what the command says."""
    cwd: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: list[int] = field(default_factory=list)
    umask: int | None = None
    ring: str = ""
    file: str = ""
    """Paths of ring and log file."""

    def to_dict(self) -> dict[str, Any]:
        """For a frame."""
        return asdict(self)
