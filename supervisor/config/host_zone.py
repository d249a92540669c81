"""The time zone of this host."""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from zoneinfo import TZPATH

from supervisor.config.problems import Invalid, quoted
from supervisor.host.zones import is_zone

LINK = "/etc/localtime"
NAME_FILE = "/etc/timezone"
_MARK = "zoneinfo/"
_MOST_BYTES = 65_536
"""Of a file of zone data: the largest ones have 4 KB."""


def host_zone(environ: Mapping[str, str], link: str = LINK, name_file: str = NAME_FILE) -> str:
    """Return the host's time zone: from TZ, else from `link`, else from `name_file`, else UTC.

    TZ is understood as by the C library (tzset(3)): a name or a path, perhaps behind a colon, or a rule; empty is UTC.
    `link` may be a link into the zone data, or a copy of a zone. The C library goes by a copy, so `name_file` counts
    only where it names a zone with the same data.

    Raises:
        Invalid: TZ says something that cannot be understood.
    """
    said = environ.get("TZ")
    if said is None or said.removeprefix(":") == link:
        named = _named(name_file)
        names = (_linked(link), _copied(link, named), named)
        return next((name for name in names if name and is_zone(name)), "UTC")
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
    """Return the zone's name in a path into the zone data; a name stays as it is."""
    return path.rpartition(_MARK)[2]


def _linked(link: str) -> str:
    try:
        target = os.readlink(link)
    except (OSError, ValueError):  # not there, or a copy of the data and no link; a NUL
        return ""
    return _cut(target) if _MARK in target else ""


def _copied(link: str, named: str) -> str:
    """Return the zone whose data `link` is a copy of: `named`, if that has the same data, else any other one."""
    try:
        status = os.lstat(link)
    except (OSError, ValueError):  # ENOENT; a NUL in TZ
        return ""
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
        return ""
    return _zone_of(link, named, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=8)
def _zone_of(path: str, named: str, _mtime_ns: int, size: int, _inode: int) -> str:
    """Look the data of a file up once for each state that it is seen in: hundreds of zones are compared."""
    data = _content(path)
    if not data:
        return ""
    found = [
        name for root in TZPATH for name in _zones_of_size(root, size) if _content(os.path.join(root, name)) == data
    ]
    if named in found:
        return named
    # Of several names of a zone, that of a place, as in Europe/Prague; "posix" and "right" are copies of all.
    places = [name for name in found if "/" in name and not name.startswith(("Etc/", "posix/", "right/"))]
    return min(places or found, default=_rule_of(data))


def _content(path: str) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:  # ENOENT, EACCES: a zone that is being replaced, or that this user may not read
        return b""


def _zones_of_size(root: str, size: int) -> Iterator[str]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            with contextlib.suppress(OSError):  # a link that leads nowhere
                if os.stat(path).st_size == size:
                    yield os.path.relpath(path, root)


def _rule_of(data: bytes) -> str:
    """Return the rule by which a zone goes on behind its last change: the last line of its file (RFC 9636, 3.3)."""
    if not data.startswith(b"TZif"):
        return ""
    return data.rstrip(b"\n").rpartition(b"\n")[2].decode("ascii", "replace")


def _named(name_file: str) -> str:
    try:
        with open(name_file, encoding="ascii", errors="replace") as file:
            return file.readline(256).strip()
    except OSError:
        return ""
