"""Tokens with which runs call the API, and the permissions of their definitions.

A token consists of ``rr_``, the run id (26 characters), ``_`` and a MAC of that id. The MAC is HMAC-SHA-256 (RFC 2104)
in base64url without padding (43 characters). Tokens are not stored: the scheduler creates them and API workers verify
them with a key that both get from the root. A token is valid until its run ends.
"""

import base64
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable

KEY_BYTES = 32
VERBS = ("run", "start", "stop", "restart", "pause", "resume")
"""The commands that ``may`` can permit."""
SEPARATOR = ":"
"""Separates a verb from the glob of the names for which it is permitted."""

_TOKEN = re.compile(r"rr_([0-9A-HJKMNP-TV-Z]{26})_[A-Za-z0-9_-]{43}")


def make(key: str, run_id: str) -> str:
    """Create the token of a run."""
    mac = hmac.digest(key.encode(), run_id.encode(), hashlib.sha256)
    return f"rr_{run_id}_{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def run_of(key: str, token: str) -> str | None:
    """Return the id of the run to which a token belongs; None if the token is invalid or there is no key."""
    match = _TOKEN.fullmatch(token)
    if match is None or not key or not hmac.compare_digest(make(key, match[1]), token):
        return None
    return match[1]


def permits(may: Iterable[str], verb: str, name: str) -> bool:
    """Return whether `may` permits the verb for the task or service with this name."""
    return any(fnmatch.fnmatchcase(name, glob) for granted_verb, glob in map(_split, may) if granted_verb == verb)


def concerns(may: Iterable[str], name: str) -> bool:
    """Return whether `may` permits any verb for the task or service with this name."""
    return any(fnmatch.fnmatchcase(name, glob) for _verb, glob in map(_split, may))


def globs(may: Iterable[str], verb: str) -> list[str]:
    """Return the globs of the tasks and services for which `may` permits the verb."""
    return [glob for granted_verb, glob in map(_split, may) if granted_verb == verb]


def _split(permission: str) -> tuple[str, str]:
    verb, _, glob = permission.partition(SEPARATOR)
    return verb, glob
