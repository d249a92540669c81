"""What may not be known, on the wire: then nothing is said of it."""

from msgspec import UNSET, UnsetType

from api.schemas.wire_times import rfc3339


def known_rfc3339(at_ms: int | None) -> str | UnsetType:
    """`at_ms` in UTC with milliseconds."""
    return UNSET if at_ms is None else rfc3339(at_ms)
