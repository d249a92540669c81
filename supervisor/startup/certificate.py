"""The certificate, tried before anything starts: it can be read, its key belongs to it, and it has these names."""

import ipaddress
from typing import TYPE_CHECKING

from supervisor.config.problems import Unusable

if TYPE_CHECKING:
    import ssl

_CERT, _KEY = ("http", "tls_cert"), ("http", "tls_key")

_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of X509_VERIFY_PARAM_set_flags(3): an expired certificate has its names all the same."""


def certificate_names(cert: str, key: str) -> list[str]:
    """The names and addresses of a certificate.

    Raises:
        Unusable: the two files cannot be used.
    """
    import ssl  # 8 ms of a start, for those who serve with TLS

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # A key with a passphrase would be asked for at the terminal, and by each worker again.
        server.load_cert_chain(cert, key, password=_no_passphrase)
        client.load_verify_locations(cert)
    except OSError as err:  # ssl.SSLError is one
        message = f"cannot use tls_cert {cert} and tls_key {key}: {err.strerror or err}"
        raise Unusable(message, path=_CERT) from err
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    return _names(_handshake(server, client, cert))


def _no_passphrase() -> str:
    message = "tls_key has a passphrase, which is not supported"
    raise Unusable(message, "remove it: openssl pkey -in LOCKED -out KEY", path=_KEY)


def _handshake(server: "ssl.SSLContext", client: "ssl.SSLContext", cert: str) -> "ssl.SSLObject":
    """The client's end of a connection to ourselves, in memory: only one that was verified shows a certificate."""
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
        raise Unusable(f"no client will accept tls_cert {cert}: {err.reason or err}", path=_CERT) from err
    return ends[0]


def _names(end: "ssl.SSLObject") -> list[str]:
    certificate = end.getpeercert() or {}
    pairs = [(str(pair[0]), str(pair[1])) for pair in certificate.get("subjectAltName", ())]
    addresses = [str(ipaddress.ip_address(value)) for kind, value in pairs if kind == "IP Address"]
    return [value.lower() for kind, value in pairs if kind == "DNS"] + addresses
