"""Who can reach the API, settled before anything starts."""

import grp
from urllib.parse import urlsplit

from supervisor.config.model import Http
from supervisor.config.problems import Unusable
from supervisor.startup.certificate import certificate_names


def hosts_of(http: Http) -> list[str]:
    """Names under which clients may reach the API: configured, of the external address, of the certificate.

    Raises:
        Unusable: the certificate cannot be used.
    """
    hosts = list(http.hosts)
    if http.external_url is not None:
        hosts.append(urlsplit(http.external_url).hostname or "")
    if http.tls_cert is not None and http.tls_key is not None:
        hosts += certificate_names(http.tls_cert, http.tls_key)
    return list(dict.fromkeys(hosts))


def socket_gid_of(http: Http) -> int | None:
    """The group that may connect to the Unix socket; None: only its owner may.

    Raises:
        Unusable: there is no such group.
    """
    name = http.socket_group
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        path = ("http", "socket_group")
        raise Unusable(f"no such group on this host: {name}", f"run: groupadd {name}", path=path) from None
