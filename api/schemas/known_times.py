"""Times on the wire that may be unknown. A document omits unknown times."""

from msgspec import UNSET, UnsetType

from api.schemas.wire_times import rfc3339


def known_rfc3339(at_ms: int | None) -> str | UnsetType:
    """Return `at_ms` in UTC with milliseconds, or ``UNSET`` for None."""
    return UNSET if at_ms is None else rfc3339(at_ms)
