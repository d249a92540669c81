"""What the scheduler asks of the notifier process, and what it hears from it: frames over a socketpair.

Scheduler -> notifier
    ``deliver``  see :class:`DeliveryRequest`
    ``ping``     see :class:`PingRequest`

Notifier -> scheduler
    ``result``   {key, ok, error, retry_after_ms}: what became of either. `error` is for people and has no secrets, and
                 is null when it went well; `retry_after_ms`, where the receiver said so, is how long it wants to rest

It reads nothing of the database and remembers nothing; orders are carried out side by side, up to a number.
"""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DeliveryRequest:
    """A message to be delivered."""

    key: str
    """Names it."""
    url: str = field(repr=False)
    """As Apprise understands it."""
    title: str
    body: str
    footer: str
    type: str
    """info, success, warning or failure."""
    ring: str | None = None
    file: str | None = None
    """Paths of ring and log file of the run whose last lines go between body and footer."""

    def to_frame(self) -> dict[str, Any]:
        """For the socket."""
        return {"op": "deliver", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class PingRequest:
    """A URL to be asked for."""

    key: str
    url: str = field(repr=False)

    def to_frame(self) -> dict[str, Any]:
        """For the socket."""
        return {"op": "ping", **asdict(self)}


@dataclass(frozen=True)
class DeliveryResult:
    """What became of an order."""

    error: str | None = None
    """None: it was carried out."""
    retry_after_ms: int | None = None

    def to_frame(self, key: str) -> dict[str, Any]:
        """For the socket."""
        return {
            "op": "result",
            "key": key,
            "ok": self.error is None,
            "error": self.error,
            "retry_after_ms": self.retry_after_ms,
        }
