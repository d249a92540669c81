"""Hashes of the passwords of accounts.

scrypt (RFC 7914) with 16 MiB and five passes, one of the equivalent settings that OWASP recommends. A hash names its
parameters, so that later versions can raise them.
"""

import base64
import hashlib
import hmac
import os

_N, _R, _P = 1 << 14, 8, 5
_SALT_BYTES = 16
_HASH_BYTES = 32
_MAX_MEMORY_BYTES = 64 << 20


def hash_password(password: str) -> str:
    """Return ``scrypt$N$r$p$salt$hash``, with a new salt."""
    salt = os.urandom(_SALT_BYTES)
    return "$".join(("scrypt", str(_N), str(_R), str(_P), _text(salt), _text(_scrypt(password, salt, _N, _R, _P))))


def verify(password: str, stored: str) -> bool:
    """Return whether `stored` is a hash of the password."""
    _, n, r, p, salt, digest = stored.split("$")
    found = _scrypt(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    data = password.encode("utf-8", "surrogateescape")
    return hashlib.scrypt(data, salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY_BYTES, dklen=_HASH_BYTES)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
