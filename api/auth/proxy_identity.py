"""Identities of people whom a proxy has authenticated and names in headers.

Any local process could send such headers, and any client could send them through a careless proxy. So they count only
in a request from a TCP peer inside ``behind_proxy`` that also contains the proxy's secret. From all other requests they
are removed before any handler sees them. The same applies to spellings with underscores, which some proxies treat as
the same header.

Header names are compared in the form of WSGI: in upper case, with underscores.
"""

import hmac
from collections.abc import Iterable
from typing import Any

from api.auth.identity import ROLES, Identity
from api.errors import ApiError
from supervisor.ipc.messages import IdentityHeaders

Environ = dict[str, Any]

_FOUND = "ringward.identity_headers"
_MAX_NAME = 200
_SHOWN_GROUPS = 20


def resolve_headers(environ: Environ, headers: IdentityHeaders | None, *, from_proxy: bool) -> None:
    """Move the identity headers to a separate key of `environ` if they are genuine; otherwise remove them.

    Args:
        environ: The environment of the request.
        headers: The configuration; None if no proxy authenticates people.
        from_proxy: Whether the peer is inside ``behind_proxy``.
    """
    received = environ.pop("ringward.headers", ())
    if headers is None:
        return
    names = {_variable(name) for name in (headers.user, headers.groups, headers.secret)}
    sent = {name: environ.pop(name) for name in names if name in environ}
    if not sent:
        return
    repeated = _repeated(received, names)
    # A proxy that adds its secret to the client's also counts as genuine, so that identify() can report the mistake.
    secrets = [value.encode("latin-1") for name, value in received if _variable(name) == _variable(headers.secret)]
    genuine = from_proxy and any(hmac.compare_digest(given, headers.expected.encode()) for given in secrets)
    values = (sent.get(_variable(headers.user), ""), sent.get(_variable(headers.groups), ""), repeated)
    environ[_FOUND] = values if genuine else None


def were_sent(environ: Environ) -> bool:
    """Return whether the request had identity headers, genuine or not: a proxy then acts for another client."""
    return _FOUND in environ


def identify(environ: Environ, headers: IdentityHeaders | None) -> Identity | None:
    """Return the identity of the person in genuine headers; None if there are none.

    Raises:
        ApiError: 400 the headers are ambiguous; 403 none of the person's groups has a role.
    """
    values = environ.get(_FOUND)
    if headers is None or values is None:
        return None
    sent_user, sent_groups, repeated = values
    if repeated:
        names = " and ".join(repeated)
        raise ApiError(400, f"The proxy sent {names} more than once; it must replace what clients send")
    user, groups = _text(sent_user, headers.user), _groups(_text(sent_groups, headers.groups))
    if not user:
        return None
    if len(user) > _MAX_NAME:
        raise ApiError(400, f"{headers.user} is longer than {_MAX_NAME} characters")
    role = _role(groups, headers.roles)
    if role is None:
        came = ", ".join(f'"{group}"' for group in groups[:_SHOWN_GROUPS]) if groups else "none"
        raise ApiError(
            403,
            f"No group of {user} has a role; groups in {headers.groups}: {came}. Add one to roles in [http.identity]",
        )
    name = f"proxy user {user}"
    return Identity("proxy", name, ROLES[role], role, by_browser=True, user=user, key=name)


def _role(groups: list[str], roles: dict[str, str]) -> str | None:
    """Return the most powerful role of the groups. Without one, return the role of ``*``, if there is one."""
    granted = [roles[group] for group in groups if group in roles and group != "*"]
    return max(granted, key=lambda role: ROLES[role]) if granted else roles.get("*")


def _groups(text: str) -> list[str]:
    """Return the groups in a header. Authentik separates them by ``|``, other proxies by commas."""
    return [group for part in text.split("|" if "|" in text else ",") if (group := part.strip())]


def _text(value: str, header: str) -> str:
    """Return a header's value decoded as UTF-8; WSGI has decoded it as Latin-1.

    Raises:
        ApiError: 400 the value is not UTF-8, or has unprintable characters.
    """
    try:
        text = value.encode("latin-1").decode().strip()
    except UnicodeError as err:
        raise ApiError(400, f"{header} is not UTF-8") from err
    if not text.isprintable():
        raise ApiError(400, f"{header} has unprintable characters")
    return text


def _variable(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


def _repeated(received: Iterable[tuple[str, str]], names: set[str]) -> list[str]:
    """Return the names of headers that the request has more than once, in title case."""
    counts: dict[str, int] = {}
    for name, _value in received:
        if _variable(name) in names:
            counts[name] = counts.get(name, 0) + 1
    return sorted(name.title() for name, count in counts.items() if count > 1)
