"""What the API sends and takes about access: login, tokens, audit."""

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.schemas.records import Body, DateTime, Document, Int64

TOKEN_ROLES = ("viewer", "operator", "admin", "cloud")
AUTH_METHODS = ("session", "password", "token", "peer")

TokenRole = Annotated[str, Meta(title="TokenRole", extra_json_schema={"enum": list(TOKEN_ROLES)})]
AuthMethod = Annotated[str, Meta(title="AuthMethod", extra_json_schema={"enum": list(AUTH_METHODS)})]

# Without look-ahead, which the regular expressions of many clients do not know (RE2, Go, Rust).
_TOKEN_NAME = "^[a-zA-Z0-9._:-]*[a-zA-Z0-9_:-][a-zA-Z0-9._:-]*$"  # noqa: S105 - a pattern
_TOKEN_TASKS = r"^[a-zA-Z0-9._:*?\[\]!-]+$"  # noqa: S105 - the same


def _role(text: str) -> None:
    if text not in TOKEN_ROLES:
        raise ValueError(f"must be one of {', '.join(TOKEN_ROLES)}")


def _matching(pattern: str, otherwise: str) -> Callable[[str | None], None]:
    """A check of a text: `$` means its end, as in JSON Schema, and not the place before its last line break."""
    known = re.compile(pattern)

    def check(text: str | None) -> None:
        if text is not None and not known.fullmatch(text):
            raise ValueError(otherwise)

    return check


class TokenBody(Body, kw_only=True, rename="camel"):
    """A new token."""

    name: Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema={"pattern": _TOKEN_NAME})]
    role: TokenRole
    tasks: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=100,
                description="Glob of the tasks and services that it sees.",
                extra_json_schema={"pattern": _TOKEN_TASKS},
            ),
        ]
        | UnsetType
        | None
    ) = UNSET
    expires_in_ms: (
        Annotated[int, Meta(ge=1000, le=10 * 366 * 86_400_000, description="Lifetime; absent: unlimited.")]
        | UnsetType
        | None
    ) = UNSET

    checks: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "role": _role,
        "name": _matching(_TOKEN_NAME, "must be letters, digits and . _ : - and not only dots"),
        "tasks": _matching(_TOKEN_TASKS, 'must be a glob of names such as "web-*"'),
    }


class TokenInfo(Document, kw_only=True, rename="camel"):
    """A token, without its secret."""

    name: str
    role: TokenRole
    tasks: str | UnsetType = UNSET
    created_at: DateTime
    created_by: str
    expires_at: DateTime | UnsetType = UNSET
    expired: bool
    last_used_at: Annotated[DateTime, Meta(description="Exact to a minute.")] | UnsetType = UNSET


class NewToken(TokenInfo, kw_only=True):
    """A token that was just made: the only time that its secret is shown."""

    token: str


class Tokens(Document, kw_only=True):
    """All tokens."""

    items: list[TokenInfo]


class LoginBody(Body, kw_only=True):
    """A log-in."""

    password: str


class AuditEntry(Struct, kw_only=True, rename="camel"):
    """Who did what."""

    id: Int64
    at: DateTime
    who: str | UnsetType = UNSET
    from_: Annotated[str, Meta(description="Address of the client, or unix.")] = field(name="from")
    operation: Annotated[str, Meta(description="operationId")]
    target: Annotated[str, Meta(description="The object of the request.")] | UnsetType = UNSET
    status: Annotated[Int64, Meta(description="HTTP status of the response.")]
    reason: Annotated[str, Meta(description="Why it was rejected.")] | UnsetType = UNSET


class Audit(Document, kw_only=True, rename="camel"):
    """A page of the audit, newest first."""

    items: list[AuditEntry]
    next_cursor: Annotated[Int64, Meta(description="`before` of the next page.")] | UnsetType = UNSET


class AuthStatus(Document, kw_only=True):
    """Whether the request is authenticated, and how."""

    authenticated: bool
    method: AuthMethod | UnsetType = UNSET
    role: TokenRole | UnsetType = UNSET
    tasks: Annotated[str, Meta(description="Glob of the tasks and services that the token sees.")] | UnsetType = UNSET


class Credentials(Document, kw_only=True):
    """The password that was made for this start of the daemon."""

    ephemeral: bool
    password: str
