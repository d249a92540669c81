"""The client's address, and the scheme and host under which it reached the server.

Without proxies the address is the peer of the connection, whatever the headers contain. A peer inside ``behind_proxy``,
and every peer of ``proxy_socket``, is trusted to send these headers:

* ``X-Forwarded-For``: each proxy appends the address of its own client. Reading from the right, the first address that
  is not a trusted proxy is the client. The client may have forged everything to its left.
* ``X-Forwarded-Proto`` and ``X-Forwarded-Host``: the last value counts, which the nearest proxy wrote.

The results are stored where applications look for them: REMOTE_ADDR, wsgi.url_scheme, HTTP_HOST. SCRIPT_NAME is the
base path. Request paths may start with it or not, because some proxies strip it.
"""

import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from api.auth import proxy_identity
from supervisor.ipc.messages import DaemonSettings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Environ = dict[str, Any]

_LOCAL_SOCKET = "ringward.local_socket"
_NO_ADDRESS = "proxy"
"""Placeholder for the address of a client whose proxy sent none."""
_PROTO = re.compile("https?", re.IGNORECASE)
_MAX_HOPS = 50


def is_local_socket(environ: Environ) -> bool:
    """Return whether the request came over the Unix socket for local programs, not the one for proxies."""
    return bool(environ[_LOCAL_SOCKET])


@functools.lru_cache(64)
def parse_address(text: str) -> Address | None:
    """Parse an address, with or without a port. An IPv4-mapped IPv6 address becomes the IPv4 address."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class Exposure:
    """The configured proxies and headers."""

    def __init__(self, settings: DaemonSettings) -> None:
        self.behind_proxy = bool(settings.behind_proxy)
        self._networks = [ipaddress.ip_network(network) for network in settings.behind_proxy]
        self._proxy_socket = settings.proxy_socket
        self._identity = settings.identity
        self._base_path = settings.base_path
        self._external_url = settings.external_url

    def admits(self, peer: str) -> bool:
        """Return whether a TCP peer may connect. With ``behind_proxy``, only the proxies and the host itself may."""
        if not self.behind_proxy:
            return True
        address = parse_address(peer)
        return address is not None and (address.is_loopback or self._trusts(address))

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def resolve_client(self, environ: Environ) -> None:
        """Store the client's address, scheme, host and base path in `environ`."""
        peer = parse_address(environ.get("REMOTE_ADDR", ""))
        sock = environ["gunicorn.socket"]
        is_tcp = sock.family != socket.AF_UNIX
        environ[_LOCAL_SOCKET] = not is_tcp and sock.getsockname() != self._proxy_socket
        from_proxy = is_tcp and peer is not None and self._trusts(peer)
        proxy_identity.resolve_headers(environ, self._identity, from_proxy=from_proxy)
        environ["wsgi.url_scheme"] = "https" if isinstance(sock, ssl.SSLSocket) else "http"
        if not is_tcp and not environ[_LOCAL_SOCKET]:
            self._believe(environ, None)
        elif is_tcp and peer is not None:
            environ["REMOTE_ADDR"] = str(peer)
            if from_proxy:
                self._believe(environ, peer)
        environ["SCRIPT_NAME"] = self._base_path
        environ["ringward.external_url"] = self._external_url

    def below_base(self, path: str) -> str:
        """Return `path` without the base path; empty if it equals the base path."""
        if self._base_path and (path == self._base_path or path.startswith(f"{self._base_path}/")):
            return path[len(self._base_path) :]
        return path

    def _believe(self, environ: Environ, peer: Address | None) -> None:
        client = self._client(peer, environ.get("HTTP_X_FORWARDED_FOR", "").split(","))
        environ["REMOTE_ADDR"] = _NO_ADDRESS if client is None else str(client)
        scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").rpartition(",")[2].strip()
        if _PROTO.fullmatch(scheme):
            environ["wsgi.url_scheme"] = scheme.lower()
        host = environ.get("HTTP_X_FORWARDED_HOST", "").rpartition(",")[2].strip()
        if host:
            environ["HTTP_HOST"] = host

    def _client(self, peer: Address | None, hops: Sequence[str]) -> Address | None:
        client = peer
        for hop in list(reversed(hops))[:_MAX_HOPS]:
            address = parse_address(hop)
            if address is None:
                break
            client = address
            if not self._trusts(address):
                break
        return client
