"""Detection of the host's time zone."""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from zoneinfo import TZPATH

from supervisor.config.problems import InvalidValue, quoted
from supervisor.host.zones import is_zone

LINK = "/etc/localtime"
NAME_FILE = "/etc/timezone"
_MARK = "zoneinfo/"
_MOST_BYTES = 65_536
"""Maximum size of a file of zone data; the largest that exist have 4 KB."""


def host_zone(environ: Mapping[str, str], link: str = LINK, name_file: str = NAME_FILE) -> str:
    """Return the host's time zone: from TZ, else from `link`, else from `name_file`, else UTC.

    TZ has the meaning that tzset(3) gives it: a name or a path, with or without a colon in front, or a rule; empty
    means UTC. `link` may be a symbolic link into the zone data, or a copy of a file there. The C library uses the copy,
    so `name_file` is believed only if it names a zone with the same data.

    Raises:
        InvalidValue: the value of TZ is not a time zone.
    """
    variable = environ.get("TZ")
    if variable is None or variable.removeprefix(":") == link:
        named = _named(name_file)
        names = (_linked(link), _copied(link, named), named)
        return next((name for name in names if name and is_zone(name)), "UTC")
    path = variable.removeprefix(":")
    for name in (_cut(path) or "UTC", _linked(path)):
        if name and is_zone(name):
            return name
    raise InvalidValue(
        f"cannot determine the host's: the variable TZ is {quoted(variable)}, which is not a time zone",
        'write timezone = "Europe/Prague", or set TZ to such a name or to a rule ("CET-1CEST,M3.5.0,M10.5.0/3")',
        show=False,
    )


def _cut(path: str) -> str:
    """Return the name of the zone from a path into the zone data; a name is returned unchanged."""
    return path.rpartition(_MARK)[2]


def _linked(link: str) -> str:
    try:
        target = os.readlink(link)
    except (OSError, ValueError):  # ENOENT; EINVAL: not a link but a copy; ValueError: a NUL in TZ
        return ""
    return _cut(target) if _MARK in target else ""


def _copied(link: str, named: str) -> str:
    """Return the zone with the same data as the file `link`, preferably `named`; empty if there is none."""
    try:
        status = os.lstat(link)
    except (OSError, ValueError):  # ENOENT; ValueError: a NUL in TZ
        return ""
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
        return ""
    return _zone_of(link, named, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=8)
def _zone_of(path: str, named: str, _mtime_ns: int, size: int, _inode: int) -> str:
    """Return the zone with the same data as a file; cached, because hundreds of zones are compared."""
    data = _content(path)
    if not data:
        return ""
    zones = [
        name for root in TZPATH for name in _zones_of_size(root, size) if _content(os.path.join(root, name)) == data
    ]
    if named in zones:
        return named
    # A zone may have several names. Prefer that of a place, such as Europe/Prague; posix/ and right/ contain copies.
    cities = [name for name in zones if "/" in name and not name.startswith(("Etc/", "posix/", "right/"))]
    return min(cities or zones, default=_rule_of(data))


def _content(path: str) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:  # ENOENT: the zone data is being replaced; EACCES
        return b""


def _zones_of_size(root: str, size: int) -> Iterator[str]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            with contextlib.suppress(OSError):  # ENOENT: a dangling symbolic link
                if os.stat(path).st_size == size:
                    yield os.path.relpath(path, root)


def _rule_of(data: bytes) -> str:
    """Return the rule for times after the last change in a zone file: its last line (RFC 9636, section 3.3)."""
    if not data.startswith(b"TZif"):
        return ""
    return data.rstrip(b"\n").rpartition(b"\n")[2].decode("ascii", "replace")


def _named(name_file: str) -> str:
    try:
        with open(name_file, encoding="ascii", errors="replace") as file:
            return file.readline(256).strip()
    except OSError:
        return ""
