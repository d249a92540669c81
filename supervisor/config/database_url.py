"""The value of ``database`` in ``[storage]``: SQLite or a PostgreSQL server."""

import ipaddress
import re
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from supervisor.config.files.substitute import variables_in
from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import DatabaseServer

SQLITE = "sqlite"
_SCHEMES = ("postgresql://", "postgres://")
_MAX_BYTES = 4096
_LAST_PORT = 65535
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})|%00")


class DatabaseUrl(Struct, frozen=True):
    """``sqlite``, or the URL of a database on a PostgreSQL server. No message quotes it: it may contain a password."""

    expected = '"sqlite" or a URL such as "postgresql://ringward@/ringward"'

    def parse(self, value: object, directory: str) -> DatabaseServer | None:  # noqa: ARG002 - the protocol's signature
        """Return the database server, or None for SQLite in the data directory."""
        if value == SQLITE:
            return None
        if not isinstance(value, str) or not value.startswith(_SCHEMES[0]):
            remedy = f"write {_SCHEMES[0]}…" if isinstance(value, str) and value.startswith(_SCHEMES[1]) else None
            raise InvalidValue(f"must be {self.expected}", remedy, show=False)
        if not value.isprintable() or " " in value or len(value.encode()) > _MAX_BYTES or not _is_url(value):
            remedy = "write special characters of a password as %XX"
            raise InvalidValue("is not a valid URL", remedy, show=False)
        if not all(_is_port(port) for port in _ports(value)):
            raise InvalidValue(f"the port must be from 1 to {_LAST_PORT}", show=False)
        return DatabaseServer(str(value), tuple(sorted(variables_in(value))))


def _is_url(url: str) -> bool:
    hosts, _, fragment = _split(url)
    return not _BAD_ESCAPE.search(url) and not fragment and all(map(_is_host, hosts))


def _split(url: str) -> tuple[list[str], str, str]:
    """Return the hosts with their ports, the query and the fragment of a URL.

    Some releases of Python reject an IPv6 address among several hosts in ``urllib.parse.urlsplit``.
    """
    authority, _, fragment = url.removeprefix(_SCHEMES[0]).partition("#")
    authority, _, query = authority.partition("?")
    return authority.partition("/")[0].rpartition("@")[2].split(","), query, fragment


def _is_host(text: str) -> bool:
    """Return whether a host, perhaps with a port, is well formed: an IPv6 address must be in brackets."""
    if not text.startswith("["):
        return "[" not in text and "]" not in text
    address, bracket, port = text[1:].partition("]")
    try:
        ipaddress.IPv6Address(unquote(address))
    except ValueError:
        return False
    return bool(bracket) and (not port or port.startswith(":"))


def _ports(url: str) -> list[str]:
    """Return the ports in the URL; each host, and the parameter ``port``, may have one."""
    hosts, query, _ = _split(url)
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    for name, value in parse_qsl(query):
        ports += value.split(",") if name == "port" else []
    return ports


def _is_port(text: str) -> bool:
    """Return whether `text` is a port number, or empty for the default port."""
    return not text or (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) <= _LAST_PORT)
