"""Times on the wire: RFC 3339 text here, integer milliseconds since the Unix epoch everywhere else."""

import re
from datetime import UTC, datetime, timedelta

from msgspec import UNSET, UnsetType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_PLAIN = datetime(1970, 1, 1)  # noqa: DTZ001 - without a time zone, counting takes a quarter of the time
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last time that :func:`rfc3339` can format: the start of year 1 and the end of year 9999."""
_DAY_MS = 86_400_000
_400_YEARS_MS = 146_097 * _DAY_MS
RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+\- ])([01][0-9]|2[0-3]):([0-5][0-9]))"
)


def rfc3339(at_ms: int) -> str:
    """Format `at_ms`, from `FIRST_MS` to `LAST_MS`, in UTC with milliseconds."""
    seconds, ms = divmod(at_ms, 1000)
    return (_EPOCH_PLAIN + timedelta(0, seconds, ms * 1000)).isoformat("T", "milliseconds") + "Z"


def known_rfc3339(at_ms: int | None) -> str | UnsetType:
    """Format `at_ms`; return ``UNSET`` for None, because a document omits unknown times."""
    return UNSET if at_ms is None else rfc3339(at_ms)


def parse_rfc3339(text: str, *, up: bool) -> int:
    """Return milliseconds since the epoch; digits beyond the millisecond round `up` or down.

    A space in place of the offset's sign is read as ``+``, because a ``+`` in a query string decodes to a space. A leap
    second is equal to the second after it.

    Raises:
        ValueError: the text is not an RFC 3339 date-time with an offset, or the time does not exist.
    """
    match = RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("is not an RFC 3339 date-time with an offset, such as 2026-11-21T03:04:05Z")
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    try:
        # RFC 3339 has a year 0; Python's first year is 1. The calendar repeats every 400 years.
        whole = datetime(year or 400, month, day, hour, minute, tzinfo=UTC)
    except ValueError as err:
        raise ValueError("is not an existing day or time") from err
    at_ms = (whole - _EPOCH) // timedelta(milliseconds=1)
    if not year:
        at_ms -= _400_YEARS_MS
    if match.group(8):
        offset_ms = (int(match.group(9)) * 60 + int(match.group(10))) * 60_000
        at_ms -= -offset_ms if match.group(8) == "-" else offset_ms
    if second > 59 and (second > 60 or (at_ms + 60_000) % _DAY_MS):
        raise ValueError("is not a time of day: a leap second can only end a UTC day")
    digits = match.group(7) or ""
    at_ms += second * 1000 + int((digits + "000")[:3])
    if up and digits[3:].strip("0"):
        at_ms += 1
    return at_ms
