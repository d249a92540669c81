"""What the API sends and takes about tokens."""

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, UnsetType

from api.schemas.records import TOKEN_ROLES, Body, DateTime, Document, TokenRole

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
