"""Messages between the scheduler and the notifier process, over a socketpair.

Scheduler -> notifier
    ``deliver``  a :class:`DeliveryRequest`
    ``ping``     a :class:`PingRequest`

Notifier -> scheduler
    ``result``   a :class:`NotifierAnswer`

The notifier does not read the database and keeps no state. It carries out a limited number of requests at a time.
"""

from dataclasses import dataclass, field

from supervisor.ipc.helper_messages import HelperMessage


@dataclass(frozen=True, kw_only=True)
class DeliveryRequest(HelperMessage, op="deliver"):
    """A notification to deliver."""

    key: str
    """Identifies the request."""
    url: str = field(repr=False)
    """The receiver as an Apprise URL, which may contain secrets."""
    title: str
    body: str
    footer: str
    type: str
    """info, success, warning or failure."""
    ring: str | None = None
    file: str | None = None
    """Paths of the run's ring and log file; the last lines of the log go between body and footer."""
    output: list[str] = field(default_factory=list)
    """Lines that take the place of a log's."""
    items: list[str] = field(default_factory=list)
    """The lines of a list, between body and footer; the message has as many as the service accepts, at least one."""


@dataclass(frozen=True, kw_only=True)
class PingRequest(HelperMessage, op="ping"):
    """A heartbeat URL to request."""

    key: str
    url: str = field(repr=False)


@dataclass(frozen=True)
class DeliveryResult:
    """The result of a delivery or a ping."""

    error: str | None = None
    """An error message without secrets; None on success."""
    retry_after_ms: int | None = None
    """The pause that the receiver requests, if it does."""
    items: int = 0
    """Number of the request's items that were delivered."""
    refused: bool = False
    """Whether the receiver refuses this message because of its contents, so that others need not wait."""


@dataclass(frozen=True)
class NotifierAnswer(DeliveryResult, HelperMessage, op="result"):
    """The result of a request."""

    key: str = field(kw_only=True)
