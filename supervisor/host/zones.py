"""Time zones by name: IANA names, and rules as in the variable TZ of POSIX ("CET-1CEST,M3.5.0,M10.5.0/3")."""

import io
import re
import struct
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
_OFFSET = r"[+-]?\d{1,2}(?::\d{2}){0,2}"
_CHANGE = r",M\d{1,2}\.\d\.\d(?:/[+-]?\d{1,3}(?::\d{2}){0,2})?"
"""The kinds that count days (Jn, n) are not taken: zoneinfo is a day off there."""
_RULE = re.compile(rf"{_NAME}{_OFFSET}(?:{_NAME}(?:{_OFFSET})?{_CHANGE}{_CHANGE})?")
"""glibc also accepts a rule without the times of changes, and then applies the United States' dates. CET-1CEST never
means that, so such a rule is invalid here."""
_HEADER = struct.Struct(">4s c 15x 6l")
_TYPE = struct.Struct(">l ? B")


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """Return the time zone of a name, from the host's data or the tzdata package, or of a rule.

    Raises:
        ZoneInfoNotFoundError: there is none.
        ValueError: a path that leaves the data, a file that is no zone, or a rule that cannot be kept.
        OSError: a directory.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if not _RULE.fullmatch(name):
            raise
    found = ZoneInfo.from_file(io.BytesIO(_zone_file(name)), key=name)
    for month in (1, 7):
        datetime(2000, month, 1, tzinfo=found).utcoffset()  # a day or more is found to be too much only now
    return found


def is_zone(name: str) -> bool:
    """Whether `name` is a time zone that can be loaded."""
    try:
        zone_named(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _zone_file(rule: str) -> bytes:
    """Return zone data (RFC 9636) without past changes, so that the rule at its end always holds."""
    part = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 1, 4) + _TYPE.pack(0, False, 0) + b"UTC\0"
    return part + part + b"\n" + rule.encode() + b"\n"
