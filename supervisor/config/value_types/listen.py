"""Addresses to listen on: the daemon's own, and those of sockets that it holds for services."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import HeldSocket
from supervisor.config.value_types.values import Text, TextOf, ValueType, parse_parts, parse_table

MAX_SOCKETS: Final = 64
"""Maximum number of sockets of all services together."""
SOCKET_NAME: Final = r"[a-z0-9_-]{1,32}"
_MAX_PATH_BYTES = 107
"""The size of sun_path in unix(7), without the final NUL."""
_ADDRESS = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*)):([0-9]{1,5})", re.ASCII)
_LAST_PORT = 65535


def parse_listen(text: str, *, any_port: bool = False) -> tuple[str, int]:
    """Return the numeric address and the port of ``127.0.0.1:7464``, ``localhost:7464`` or ``[::1]:7464``.

    Args:
        text: the text in the configuration or on the command line.
        any_port: whether to allow port 0, for which the kernel chooses a port.

    Raises:
        InvalidValue: the text is not such an address.
    """
    match = _ADDRESS.fullmatch(text)
    if not match:
        raise InvalidValue("must be an address and a port", 'write "127.0.0.1:7464" or "[::1]:7464"')
    port = int(match[3])
    if port > _LAST_PORT or (port == 0 and not any_port):
        raise InvalidValue(f"must have a port from 1 to {_LAST_PORT}")
    host = match[1] or match[2] or ""
    if host == "localhost":
        return "127.0.0.1", port
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise InvalidValue(
            "must be a numeric address of this host, or localhost", "write the address, not its name"
        ) from None
    if getattr(address, "ipv4_mapped", None) or getattr(address, "scope_id", None):
        raise InvalidValue("must be a plain IPv4 or IPv6 address", "write it without ::ffff: and without a zone")
    return str(address), port


def check_exposed(host: str, *, tls: bool, behind_proxy: bool) -> None:
    """Check that it is safe to listen on an address.

    Raises:
        InvalidValue: passwords would cross the network unencrypted.
    """
    if tls or behind_proxy or ipaddress.ip_address(host).is_loopback:
        return
    raise InvalidValue(
        "is not a loopback address: without TLS the password and all output would cross the network unencrypted",
        "set tls_cert and tls_key, or behind_proxy; or use 127.0.0.1 or [::1] and an SSH tunnel",
        show=False,
    )


class Listen(Struct, frozen=True):
    """An address to listen on."""

    expected = 'an address and a port such as "127.0.0.1:7464"'

    def parse(self, value: object, directory: str) -> tuple[str, int]:
        """Return the host and the port."""
        return parse_listen(Text(limit=100, empty=False, expected=self.expected).parse(value, directory))


class SocketAddress(Struct, frozen=True):
    """An address to bind."""

    expected = 'an address such as "tcp:127.0.0.1:8080" or "unix:/run/app.sock"'

    def parse(self, value: object, directory: str) -> str:
        """Return the address, with a numeric host or an absolute path."""
        text = Text(empty=False, expected=self.expected).parse(value, directory)
        kind, _, rest = text.partition(":")
        if kind == "tcp":
            host, port = parse_listen(rest)
            return f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}"
        if kind != "unix" or not rest.startswith("/"):
            raise InvalidValue(f"must be {self.expected}")
        if len(rest.encode()) > _MAX_PATH_BYTES:
            raise InvalidValue(f"must have a path of at most {_MAX_PATH_BYTES} bytes")
        return text


class SocketMode(Struct, frozen=True):
    """The permissions of a Unix socket."""

    expected = 'permissions such as "0660"'

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - the protocol's signature
        """Return the permissions as a number."""
        if not isinstance(value, str) or not re.fullmatch("0?[0-7]{3}", value):
            raise InvalidValue(f"must be {self.expected}", "write it in quotes, in octal digits")
        return int(value, 8)


_SOCKET_ADDRESS = SocketAddress()
_ACCOUNT = TextOf("the name or the numeric id of an account", re.compile(r"[^:\s]+"), 100)
SOCKET_KEYS: Final[Mapping[str, ValueType]] = {
    "address": _SOCKET_ADDRESS,
    "mode": SocketMode(),
    "user": _ACCOUNT,
    "group": _ACCOUNT,
}


class Sockets(Struct, frozen=True):
    """Listening sockets by name, in the order in which the service gets them."""

    expected = 'a table of addresses such as { http = "tcp:127.0.0.1:8080" }'

    def parse(self, value: object, directory: str) -> tuple[HeldSocket, ...]:
        """Return the sockets in the order of the file."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        return tuple(parse_parts(value.items(), lambda name, content: _socket(name, content, directory)).values())


def _socket(name: str, content: object, directory: str) -> HeldSocket:
    if not re.fullmatch(SOCKET_NAME, name):
        raise InvalidValue("is not a valid name of a socket", "use 1 to 32 of a-z, 0-9, _ and -", show=False)
    if not isinstance(content, dict):
        return HeldSocket(name=name, address=_SOCKET_ADDRESS.parse(content, directory))
    parsed, faults = parse_table(content, SOCKET_KEYS, directory)
    if "address" not in content:
        faults.add("must have an address")
    elif parsed.get("address", "").startswith("tcp:"):
        for key in [key for key in content if key in SOCKET_KEYS and key != "address"]:
            faults.add("has no meaning for a TCP socket", "remove it", path=(key,))
    faults.check()
    return HeldSocket(name=name, **parsed)
