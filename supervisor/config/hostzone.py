"""Names of IANA time zones: which are valid, and which is this host's."""

import os
from collections.abc import Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

LINK = "/etc/localtime"
NAME_FILE = "/etc/timezone"
_MARK = "zoneinfo/"


def is_zone(name: str) -> bool:
    """Whether `name` is a time zone that can be loaded, from the host's data or the tzdata package."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # ValueError: a path that leaves the data, or a file that is no zone; OSError: a directory ("Europe").
        return False
    return True


def host_zone(environ: Mapping[str, str], link: str = LINK, name_file: str = NAME_FILE) -> str:
    """The host's time zone: TZ, else where `link` points, else what `name_file` says, else UTC.

    A TZ that is a rule ("CET-1CEST") and not a name is passed over.
    """
    for name in (_cut(environ.get("TZ", "").removeprefix(":")), _linked(link), _named(name_file)):
        if name and is_zone(name):
            return name
    return "UTC"


def _cut(path: str) -> str:
    """The zone's name in a path into the zone data; a name stays as it is."""
    return path.rpartition(_MARK)[2]


def _linked(link: str) -> str:
    try:
        target = os.readlink(link)
    except OSError:  # not there, or a copy of the data and no link
        return ""
    return _cut(target) if _MARK in target else ""


def _named(name_file: str) -> str:
    try:
        with open(name_file, encoding="ascii", errors="replace") as file:
            return file.readline(256).strip()
    except OSError:
        return ""
