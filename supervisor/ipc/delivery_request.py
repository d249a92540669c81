"""Messages between the scheduler and the notifier process, over a socketpair.

Scheduler -> notifier
    ``deliver``  a :class:`DeliveryRequest`
    ``ping``     a :class:`PingRequest`

Notifier -> scheduler
    ``result``   {key, ok, error, retry_after_ms, items, refused}: the result of a request. `error` is a message
                 without secrets, or null on success. `retry_after_ms` is the pause that the receiver requests, or null

The notifier does not read the database and keeps no state. It carries out a limited number of requests at a time.
"""

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True)
class DeliveryRequest:
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

    def to_message(self) -> dict[str, object]:
        """Return the message for the socket."""
        return {"op": "deliver", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class PingRequest:
    """A heartbeat URL to request."""

    key: str
    url: str = field(repr=False)

    def to_message(self) -> dict[str, object]:
        """Return the message for the socket."""
        return {"op": "ping", **asdict(self)}


@dataclass(frozen=True)
class DeliveryResult:
    """The result of a delivery or a ping."""

    error: str | None = None
    """An error message; None on success."""
    retry_after_ms: int | None = None
    items: int = 0
    """Number of the request's items that were delivered."""
    refused: bool = False
    """Whether the receiver refuses this message because of its contents, so that others need not wait."""

    def to_message(self, key: str) -> dict[str, object]:
        """Return the message for the socket."""
        return {
            "op": "result",
            "key": key,
            "ok": self.error is None,
            "error": self.error,
            "retry_after_ms": self.retry_after_ms,
            "items": self.items,
            "refused": self.refused,
        }
