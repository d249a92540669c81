"""Schemas of requests and responses about access: login, tokens, accounts of people, and the audit log."""

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.auth.passwords import ADMIN
from api.schemas.records import Body, DateTime, Document, Int64

TOKEN_ROLES = ("viewer", "operator", "admin", "cloud")
AUTH_METHODS = ("session", "password", "token", "proxy", "peer")

TokenRole = Annotated[str, Meta(title="TokenRole", extra_json_schema={"enum": list(TOKEN_ROLES)})]
AuthMethod = Annotated[str, Meta(title="AuthMethod", extra_json_schema={"enum": list(AUTH_METHODS)})]

# The pattern avoids look-ahead, which RE2 and the regular expressions of Go and Rust do not support.
_TOKEN_NAME = "^[a-zA-Z0-9._:-]*[a-zA-Z0-9_:-][a-zA-Z0-9._:-]*$"  # noqa: S105 - a pattern
_TASKS_GLOB = r"^[a-zA-Z0-9._:*?\[\]!-]+$"


def _one_of(*words: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")

    return check


def _matching(pattern: str, otherwise: str) -> Callable[[str | None], None]:
    """Return a check that a whole text matches the pattern.

    With fullmatch, `$` means the end of the text, as in JSON Schema. In Python it also matches before a final newline.
    """
    compiled = re.compile(pattern)

    def check(text: str | None) -> None:
        if text is not None and not compiled.fullmatch(text):
            raise ValueError(otherwise)

    return check


def _tasks_of(whose: str) -> Meta:
    description = f"Glob of the tasks and services that the {whose} may see."
    return Meta(min_length=1, max_length=100, description=description, extra_json_schema={"pattern": _TASKS_GLOB})


_check_tasks = _matching(_TASKS_GLOB, 'must be a glob of names such as "web-*"')


class TokenBody(Body, kw_only=True, rename="camel"):
    """A token to create."""

    name: Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema={"pattern": _TOKEN_NAME})]
    role: TokenRole
    tasks: Annotated[str, _tasks_of("token")] | UnsetType | None = UNSET
    expires_in_ms: (
        Annotated[int, Meta(ge=1000, le=10 * 366 * 86_400_000, description="Lifetime; unlimited if absent.")]
        | UnsetType
        | None
    ) = UNSET

    checks: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "role": _one_of(*TOKEN_ROLES),
        "name": _matching(_TOKEN_NAME, "must be letters, digits and . _ : - and not only dots"),
        "tasks": _check_tasks,
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
    last_used_at: Annotated[DateTime, Meta(description="Time of the last use, to the minute.")] | UnsetType = UNSET


class NewToken(TokenInfo, kw_only=True):
    """A new token. Its secret is shown only this once."""

    token: str


class Tokens(Document, kw_only=True):
    """All tokens."""

    items: list[TokenInfo]


ACCOUNT_ROLES = ("viewer", "operator", "admin")

AccountRole = Annotated[str, Meta(title="AccountRole", extra_json_schema={"enum": list(ACCOUNT_ROLES)})]

_ACCOUNT_NAME = "^[a-zA-Z0-9._@-]*[a-zA-Z0-9_@-][a-zA-Z0-9._@-]*$"
_PASSWORD = Meta(min_length=8, max_length=1000, extra_json_schema={"format": "password", "writeOnly": True})


_account_pattern = _matching(_ACCOUNT_NAME, "must be letters, digits and . _ @ - and not only dots")


def _account_name(text: str) -> None:
    _account_pattern(text)
    if text.lower() == ADMIN:
        raise ValueError(f'"{ADMIN}" is the account of the daemon\'s own password; choose another name')


class AccountBody(Body, kw_only=True):
    """An account to create."""

    name: Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema={"pattern": _ACCOUNT_NAME})]
    password: Annotated[str, _PASSWORD]
    role: AccountRole
    tasks: Annotated[str, _tasks_of("account")] | UnsetType | None = UNSET

    checks: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "role": _one_of(*ACCOUNT_ROLES),
        "name": _account_name,
        "tasks": _check_tasks,
    }


class PasswordBody(Body, kw_only=True):
    """A new password of an account."""

    password: Annotated[str, _PASSWORD]


class AccountInfo(Document, kw_only=True, rename="camel"):
    """An account."""

    name: str
    role: AccountRole
    tasks: str | UnsetType = UNSET
    created_at: DateTime
    created_by: str
    password_changed_at: DateTime


class Accounts(Document, kw_only=True):
    """All accounts except `admin`, which has the daemon's own password."""

    items: list[AccountInfo]


class LoginBody(Body, kw_only=True):
    """Credentials of a login."""

    username: Annotated[str, Meta(description="Name of the account; absent or empty: `admin`.")] = ""
    password: str


class AuditEntry(Struct, kw_only=True, rename="camel"):
    """One operation: who performed it, on what, and its outcome."""

    id: Int64
    at: DateTime
    who: str | UnsetType = UNSET
    from_: Annotated[str, Meta(description="Address of the client, or `unix` for the Unix socket.")] = field(
        name="from"
    )
    operation: Annotated[str, Meta(description="operationId")]
    target: Annotated[str, Meta(description="Name or id of the affected object.")] | UnsetType = UNSET
    task_name: Annotated[str, Meta(description="Task or service of the run that is the target.")] | UnsetType = UNSET
    status: Annotated[Int64, Meta(description="HTTP status of the response.")]
    result: (
        Annotated[
            str,
            Meta(description="Effect of an operation on many runs or of a start; term and note of an acknowledgement."),
        ]
        | UnsetType
    ) = UNSET
    reason: Annotated[str, Meta(description="Why the request was rejected.")] | UnsetType = UNSET


class Audit(Document, kw_only=True, rename="camel"):
    """A page of the audit log, newest entry first."""

    items: list[AuditEntry]
    next_cursor: Annotated[Int64, Meta(description="`before` of the next page.")] | UnsetType = UNSET


class HistoryEntry(Struct, kw_only=True, rename="camel"):
    """A request that changed a task or service, or a reload with another definition of it."""

    at: DateTime
    by: Annotated[str, Meta(description="The client.")] | UnsetType = UNSET
    operation: Annotated[str, Meta(description="operationId, or `edited` for a change of its definition.")]
    note: Annotated[str, Meta(description="End and note of the change.")] | UnsetType = UNSET


class UnitHistory(Document, kw_only=True):
    """Who changed a task or service, newest first."""

    items: list[HistoryEntry]


class AuthStatus(Document, kw_only=True):
    """Whether the request is authenticated, and how."""

    authenticated: bool
    method: AuthMethod | UnsetType = UNSET
    user: Annotated[str, Meta(description="Name of the account of a person.")] | UnsetType = UNSET
    role: TokenRole | UnsetType = UNSET
    tasks: Annotated[str, Meta(description="Glob of the tasks and services that the client may see.")] | UnsetType = (
        UNSET
    )


class Credentials(Document, kw_only=True):
    """The password that the daemon generated at this start."""

    ephemeral: bool
    password: str
