"""Tokens by which a run may ask something of the daemon, and what its definition permits.

A token is ``rr_``, the id of the run (26 characters), ``_`` and a MAC of that id (RFC 2104, SHA-256, base64url without
padding, 43 characters). Nothing of it is stored: the scheduler makes it and API workers check it with a key that both
get from the root. It is valid while the run has not ended.
"""

import base64
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable

KEY_BYTES = 32
VERBS = ("run", "start", "stop", "restart", "pause", "resume")
"""What ``may`` can permit, as the commands are called."""
SEPARATOR = ":"
"""Between a verb and the glob of the names that it is permitted for."""

_TOKEN = re.compile(r"rr_([0-9A-HJKMNP-TV-Z]{26})_[A-Za-z0-9_-]{43}")


def make(key: str, run_id: str) -> str:
    """Return the token of a run."""
    mac = hmac.digest(key.encode(), run_id.encode(), hashlib.sha256)
    return f"rr_{run_id}_{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def run_of(key: str, token: str) -> str | None:
    """Return the id of the run that a token belongs to; None when it is not one of ours, or there is no key."""
    found = _TOKEN.fullmatch(token)
    if found is None or not key or not hmac.compare_digest(make(key, found[1]), token):
        return None
    return found[1]


def permits(may: Iterable[str], verb: str, name: str) -> bool:
    """Return whether one of the permissions is for this verb and the task or service of this name."""
    return any(fnmatch.fnmatchcase(name, glob) for one, glob in map(_split, may) if one == verb)


def concerns(may: Iterable[str], name: str) -> bool:
    """Return whether one of the permissions, of whatever verb, is for the task or service of this name."""
    return any(fnmatch.fnmatchcase(name, glob) for _verb, glob in map(_split, may))


def globs(may: Iterable[str], verb: str) -> list[str]:
    """Return the globs of the tasks and services that this verb is permitted for."""
    return [glob for one, glob in map(_split, may) if one == verb]


def _split(permission: str) -> tuple[str, str]:
    verb, _, glob = permission.partition(SEPARATOR)
    return verb, glob
