"""The header Retry-After of an answer."""

from datetime import UTC
from email.utils import parsedate_to_datetime

_MAX_MS = 86_400_000


def retry_after_ms(value: str | None, now_s: float) -> int | None:
    """Return the delay of a Retry-After header in milliseconds, at most a day; None if it is missing or invalid.

    Args:
        value: The header, which is a number of seconds or a date.
        now_s: The present time in seconds since the epoch.
    """
    if value is None:
        return None
    try:
        wait_s = int(value) if value.strip().isdecimal() else _instant_s(value) - now_s
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0, min(int(wait_s * 1000), _MAX_MS))


def _instant_s(date: str) -> float:
    """Return a date in seconds since the epoch. A date without a time zone is in UTC (RFC 9110, 5.6.7)."""
    parsed = parsedate_to_datetime(date)
    return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
