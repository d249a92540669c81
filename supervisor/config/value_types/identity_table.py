"""The type of ``[http.identity]``: names and roles of users that a proxy has authenticated."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from supervisor.config.problems import InvalidValue, quoted
from supervisor.config.value_records import ProxyIdentity
from supervisor.config.value_types.values import FilePath, Text, choice, parse_parts, parse_table

ANYBODY = "*"
ROLES = ("viewer", "operator", "admin")
HEADER = "[A-Za-z][A-Za-z0-9-]*"

_HEADER = re.compile(HEADER)
_TAKEN = re.compile(
    r"accept.*|authorization|connection|content-.*|cookie|expect|forwarded|host|idempotency-key|last-event-id|origin"
    r"|range|if-.*|ringward-deadline|sec-.*|te|trailer|transfer-encoding|upgrade"
    r"|x-forwarded-(for|proto|host)|x-hub-signature.*|x-github-.*|x-gitlab-.*"
)
"""Headers that cannot be used, because they have another meaning."""


class Header(Struct, frozen=True):
    """The name of an HTTP header."""

    expected = 'the name of a header such as "Remote-User"'

    def parse(self, value: object, directory: str) -> str:
        """Return the name of the header."""
        text = Text(limit=100, empty=False, expected=self.expected).parse(value, directory)
        if not _HEADER.fullmatch(text):
            raise InvalidValue(f"must be {self.expected}", "letters, digits and hyphens; proxies drop underscores")
        if _TAKEN.fullmatch(text.lower()):
            raise InvalidValue("has another meaning", "choose a header that only the proxy sets")
        return text


class Roles(Struct, frozen=True):
    """A table of groups, each with the role of its members."""

    expected = 'a table such as { admins = "admin", "*" = "viewer" }'

    def parse(self, value: object, directory: str) -> tuple[tuple[str, str], ...]:
        """Return the groups and their roles."""
        if not isinstance(value, dict) or not value:
            raise InvalidValue(f"must be {self.expected}")

        def parse(group: str, role: object) -> str:
            if group != group.strip() or not group or not group.isprintable():
                raise InvalidValue("is not the name of a group", "a name without blanks at its ends, or *", show=False)
            parsed: str = choice(*ROLES).parse(role, directory)
            return parsed

        return tuple(parse_parts(value.items(), parse).items())


KEYS: Mapping[str, Any] = {
    "user_header": Header(),
    "groups_header": Header(),
    "secret_header": Header(),
    "secret_file": FilePath(),
    "roles": Roles(),
}
REQUIRED: Collection[str] = ("secret_file", "roles")


class IdentityTable(Struct, frozen=True):
    """The table ``[http.identity]``."""

    expected = 'a table such as { secret_file = "proxy-secret", roles = { "*" = "viewer" } }'

    def parse(self, value: object, directory: str) -> ProxyIdentity:
        """Return the identity headers of the proxy."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        parsed, faults = parse_table(value, KEYS, directory)
        for name in REQUIRED:
            if name not in value:
                faults.add(f"has no {name}", f"add {name} = …")
        faults.check()
        identity = ProxyIdentity(**parsed)
        headers = [identity.user_header, identity.groups_header, identity.secret_header]
        if len({name.lower() for name in headers}) < len(headers):
            shown = ", ".join(map(quoted, headers))
            raise InvalidValue(f"needs three different headers for user, groups and secret, not {shown}", show=False)
        return identity
