"""Time zones: IANA names, and rules in the format of the POSIX variable TZ ("CET-1CEST,M3.5.0,M10.5.0/3")."""

import io
import re
import struct
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
_OFFSET = r"[+-]?\d{1,2}(?::\d{2}){0,2}"
_CHANGE = r",M\d{1,2}\.\d\.\d(?:/[+-]?\d{1,3}(?::\d{2}){0,2})?"
"""Only rules with month, week and weekday. zoneinfo is a day off for day numbers (Jn, n), so they are invalid here."""
_RULE = re.compile(rf"{_NAME}{_OFFSET}(?:{_NAME}(?:{_OFFSET})?{_CHANGE}{_CHANGE})?")
"""glibc also accepts CET-1CEST, without dates, and then applies the dates of the United States. That is never the
intention, so such a rule is invalid here."""
_HEADER = struct.Struct(">4s c 15x 6l")
_TYPE = struct.Struct(">l ? B")


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """Return the time zone for a rule or a name, from the host's data or the tzdata package.

    Raises:
        ZoneInfoNotFoundError: there is no such zone.
        ValueError: the name leaves the directory of zones or is not a zone file, or the rule is invalid.
        OSError: the name is a directory.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if not _RULE.fullmatch(name):
            raise
    zone = ZoneInfo.from_file(io.BytesIO(_zone_file(name)), key=name)
    for month in (1, 7):
        datetime(2000, month, 1, tzinfo=zone).utcoffset()  # only this raises ValueError for an offset of a day or more
    return zone


def is_zone(name: str) -> bool:
    """Return whether `name` is a time zone that can be loaded."""
    try:
        zone_named(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _zone_file(rule: str) -> bytes:
    """Return zone data (RFC 9636) without past changes, so that the rule at its end always holds."""
    part = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 1, 4) + _TYPE.pack(0, False, 0) + b"UTC\0"
    return part + part + b"\n" + rule.encode() + b"\n"
