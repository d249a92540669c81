"""Addresses to listen on."""

import ipaddress
import re

from msgspec import Struct

from supervisor.config.problems import InvalidValue
from supervisor.config.value_types.values import Text

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
