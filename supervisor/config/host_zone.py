"""The time zone of this host."""

import os
from collections.abc import Mapping

from supervisor.config.problems import Invalid, quoted
from supervisor.host.zones import is_zone

LINK = "/etc/localtime"
NAME_FILE = "/etc/timezone"
_MARK = "zoneinfo/"


def host_zone(environ: Mapping[str, str], link: str = LINK, name_file: str = NAME_FILE) -> str:
    """The host's time zone: TZ, else where `link` points, else what `name_file` says, else UTC.

    TZ is understood as by the C library (tzset(3)): a name or a path, perhaps behind a colon, or a rule; empty is UTC.

    Raises:
        Invalid: TZ says something that cannot be understood.
    """
    said = environ.get("TZ")
    if said is None or said.removeprefix(":") == link:
        return next((name for name in (_linked(link), _named(name_file)) if name and is_zone(name)), "UTC")
    path = said.removeprefix(":")
    for name in (_cut(path) or "UTC", _linked(path)):
        if name and is_zone(name):
            return name
    raise Invalid(
        f"cannot determine the host's: the variable TZ is {quoted(said)}, which is not a time zone",
        'write timezone = "Europe/Prague", or set TZ to such a name or to a rule ("CET-1CEST,M3.5.0,M10.5.0/3")',
        show=False,
    )


def _cut(path: str) -> str:
    """The zone's name in a path into the zone data; a name stays as it is."""
    return path.rpartition(_MARK)[2]


def _linked(link: str) -> str:
    try:
        target = os.readlink(link)
    except (OSError, ValueError):  # not there, or a copy of the data and no link; a NUL
        return ""
    return _cut(target) if _MARK in target else ""


def _named(name_file: str) -> str:
    try:
        with open(name_file, encoding="ascii", errors="replace") as file:
            return file.readline(256).strip()
    except OSError:
        return ""
