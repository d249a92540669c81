"""Messages between the scheduler and the notifier process, over a socketpair.

Scheduler -> notifier
    ``deliver``  a :class:`DeliveryRequest`
    ``ping``     a :class:`PingRequest`

Notifier -> scheduler
    ``result``   {key, ok, error, retry_after_ms}: the result of either. `error` is a message without secrets, null on
                 success; `retry_after_ms` is the pause that the receiver asks for, if any

The notifier does not read the database and keeps no state; it carries out a limited number of requests concurrently.
"""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DeliveryRequest:
    """A message to deliver."""

    key: str
    """Identifies the request."""
    url: str = field(repr=False)
    """URL in the form of Apprise."""
    title: str
    body: str
    footer: str
    type: str
    """info, success, warning or failure."""
    ring: str | None = None
    file: str | None = None
    """Paths of the ring and the log file of the run whose last lines go between body and footer."""

    def to_frame(self) -> dict[str, Any]:
        """Return the message for the socket."""
        return {"op": "deliver", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class PingRequest:
    """A heartbeat URL to request."""

    key: str
    url: str = field(repr=False)

    def to_frame(self) -> dict[str, Any]:
        """Return the message for the socket."""
        return {"op": "ping", **asdict(self)}


@dataclass(frozen=True)
class DeliveryResult:
    """The result of a request."""

    error: str | None = None
    """Error message; None on success."""
    retry_after_ms: int | None = None

    def to_frame(self, key: str) -> dict[str, Any]:
        """Return the message for the socket."""
        return {
            "op": "result",
            "key": key,
            "ok": self.error is None,
            "error": self.error,
            "retry_after_ms": self.retry_after_ms,
        }
