"""Host names, certificate, socket group and proxy secret of the API; checked before any helper starts."""

import grp
import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from supervisor.config.daemon_tables import Http
from supervisor.config.files.substitute import read_small
from supervisor.config.problems import UnusableObject
from supervisor.config.value_records import ProxyIdentity
from supervisor.ipc.messages import IdentityHeaders

if TYPE_CHECKING:
    import ssl

_CERT, _KEY = ("http", "tls_cert"), ("http", "tls_key")

_SECRET_FILE = ("http", "identity", "secret_file")
_SECRET = re.compile(r"[A-Za-z0-9._~+/=-]+")
_MIN_SECRET_CHARS = 32
_MAX_SECRET_BYTES = 4096
_REMEDY = "create it: openssl rand -hex 32 > FILE"

_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of X509_VERIFY_PARAM_set_flags(3): an expired certificate must not prevent a start."""


def certificate_names(cert: str, key: str) -> list[str]:
    """Return the DNS names and addresses of a certificate, after checking that the key matches.

    Raises:
        UnusableObject: the files cannot be used.
    """
    import ssl  # takes 8 ms, so only starts with TLS pay for it

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a password callback, OpenSSL would ask for a passphrase at the terminal, again in each worker.
        server.load_cert_chain(cert, key, password=_no_passphrase)
        client.load_verify_locations(cert)
    except OSError as err:  # ssl.SSLError is one
        message = f"cannot use tls_cert {cert} and tls_key {key}: {err.strerror or err}"
        raise UnusableObject(message, path=_CERT) from err
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    return _names(_handshake(server, client, cert))


def _no_passphrase() -> str:
    message = "tls_key has a passphrase, which is not supported"
    raise UnusableObject(message, "remove it: openssl pkey -in LOCKED -out KEY", path=_KEY)


def _handshake(server: "ssl.SSLContext", client: "ssl.SSLContext", cert: str) -> "ssl.SSLObject":
    """Return the client's end of an in-memory connection to ourselves.

    The ssl module decodes a certificate only for a peer that was verified in a handshake.
    """
    import ssl  # as above

    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for end in (*ends, *ends, *ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as err:
        raise UnusableObject(f"no client will accept tls_cert {cert}: {err.reason or err}", path=_CERT) from err
    return ends[0]


def _names(end: "ssl.SSLObject") -> list[str]:
    certificate = end.getpeercert() or {}
    pairs = [(str(pair[0]), str(pair[1])) for pair in certificate.get("subjectAltName", ())]
    addresses = [str(ipaddress.ip_address(value)) for kind, value in pairs if kind == "IP Address"]
    return [value.lower() for kind, value in pairs if kind == "DNS"] + addresses


def hosts_of(http: Http) -> list[str]:
    """Return the names by which clients may reach the API.

    They come from ``hosts``, ``external_url`` and the certificate.

    Raises:
        UnusableObject: the certificate cannot be used.
    """
    hosts = list(http.hosts)
    if http.external_url is not None:
        hosts.append(urlsplit(http.external_url).hostname or "")
    if http.tls_cert is not None and http.tls_key is not None:
        hosts += certificate_names(http.tls_cert, http.tls_key)
    return list(dict.fromkeys(hosts))


def socket_gid_of(http: Http) -> int | None:
    """Return the id of the group that may connect to the Unix socket; None if only the owner may.

    Raises:
        UnusableObject: the group does not exist.
    """
    name = http.socket_group
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        path = ("http", "socket_group")
        raise UnusableObject(f"no such group on this host: {name}", f"run: groupadd {name}", path=path) from None


def identity_of(identity: ProxyIdentity | None) -> IdentityHeaders | None:
    """Return the headers, the secret and the roles with which API workers accept a proxy's users; None without any.

    Raises:
        UnusableObject: the file of the secret cannot be read, or its content is unsuitable.
    """
    if identity is None:
        return None
    path = identity.secret_file
    try:
        data, _status = read_small(path, _MAX_SECRET_BYTES)
    except OSError as err:
        raise UnusableObject(
            f"cannot read the secret file {path}: {err.strerror or err}", _REMEDY, path=_SECRET_FILE
        ) from err
    secret = data.decode("ascii", "replace").rstrip("\r\n")
    if len(secret) < _MIN_SECRET_CHARS:
        raise UnusableObject(
            f"the secret in {path} is shorter than {_MIN_SECRET_CHARS} characters", _REMEDY, path=_SECRET_FILE
        )
    if not _SECRET.fullmatch(secret):
        raise UnusableObject(
            f"the secret in {path} is not one line of letters, digits and ._~+/=-", _REMEDY, path=_SECRET_FILE
        )
    return IdentityHeaders(
        user=identity.user_header,
        groups=identity.groups_header,
        secret=identity.secret_header,
        expected=secret,
        roles=dict(identity.roles),
    )
