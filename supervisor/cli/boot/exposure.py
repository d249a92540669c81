"""Who can reach the API, settled before anything starts."""

import grp
from urllib.parse import urlsplit

from supervisor.config.model import Http
from supervisor.config.problems import Unusable
from supervisor.dataclass import dataclass


@dataclass(frozen=True)
class Exposed:
    """What the configuration comes down to on this host."""

    hosts: list[str]
    """Names under which clients may reach the API: configured, of the external address, of the certificate."""
    socket_gid: int | None
    """Group that may connect to the Unix socket."""


def settle(http: Http) -> Exposed:
    """Check what can be checked only here.

    Raises:
        Unusable: a certificate that cannot be used, an unknown group.
    """
    hosts = list(http.hosts)
    if http.external_url is not None:
        hosts.append(urlsplit(http.external_url).hostname or "")
    if http.tls_cert is not None and http.tls_key is not None:
        from supervisor.cli.boot.tls import certificate_names  # with OpenSSL: 8 ms of every start

        hosts += certificate_names(http.tls_cert, http.tls_key)
    return Exposed(list(dict.fromkeys(hosts)), _gid(http.socket_group))


def _gid(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise Unusable(f"socket_group: there is no group {name} on this host") from None
