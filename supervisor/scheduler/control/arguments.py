"""Arguments of the operations of ``control.sock``.

A caller may run as another user with its own code. Arguments that an operation cannot use, or that the database cannot
store, are rejected before the operation begins.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

_Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Ulid = Annotated[str, Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")]
"""File names derive from it."""
_Entry = tuple[_Number, str, str, str, str, _Number, str, bool]


class _Empty(TypedDict):
    pass


class _Trigger(TypedDict):
    run: _Ulid
    task: str
    triggered_by: str
    by: str
    params: NotRequired[dict[str, str] | None]
    key: NotRequired[str | None]
    request: NotRequired[str]
    credential: NotRequired[str]
    from_run: NotRequired[_Ulid]
    from_process: NotRequired[Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]]


class _Run(TypedDict):
    run: str
    by: str


class _Id(TypedDict):
    run: str


class _Stop(_Run):
    force: bool


class _Hash(TypedDict):
    hash: str


class _Session(_Hash):
    password_tag: str
    account: NotRequired[bool]
    """Whether the tag is of an account in the database; absent: of the account `admin`."""


class _Token(_Hash):
    name: str
    role: str
    tasks: str | None
    created_at: _Number
    created_by: str
    expires_at: _Number | None
    last_used_at: _Number | None


class _Name(TypedDict):
    name: str


class _Account(TypedDict):
    name: str
    password_hash: str
    tag: str
    role: str
    tasks: str | None
    created_at: _Number
    created_by: str
    password_changed_at: _Number


class _AccountPassword(TypedDict):
    name: str
    password_hash: str
    tag: str


class _Client(TypedDict):
    client: str
    account: NotRequired[str]


class _Audit(TypedDict):
    entries: dict[str, _Entry]


class _Filter(TypedDict, total=False):
    tasks: str | None
    task: str | None
    task_name: str | None
    phases: list[str]
    reasons: list[str]
    triggers: list[str]
    created_after: _Number | None
    created_before: _Number | None
    exit_code_min: _Number | None
    exit_code_max: _Number | None
    retries_only: bool
    search: str


class _Bulk(TypedDict):
    command: _Ulid
    by: str
    match_all: bool
    filter: _Filter
    except_ids: str
    ids: str


class _Restore(_Bulk):
    deleted_at: NotRequired[_Number | None]


class _Rerun(_Bulk):
    triggered_by: str
    credential: NotRequired[str]


class _Version(TypedDict):
    version: str | None


class _Why(TypedDict):
    why: str


class _Mark(TypedDict):
    id: str
    read: bool


class _Schedule(TypedDict):
    task: str
    count: Annotated[int, Meta(ge=0, le=10_000)]


class _Unit(TypedDict):
    task: str
    by: str


class _Acknowledgement(_Unit):
    run: str | None
    for_ms: _Number | None
    note: str | None


class _Restart(_Unit):
    command: str
    rolling: bool


class _Units(TypedDict):
    verb: Literal["start", "stop", "restart", "pause", "resume"]
    names: Annotated[list[str], Meta(min_length=1)] | None
    group: str | None
    tag: str | None
    reach: list[str] | None
    command: str
    by: str
    rolling: bool
    force: bool


class _By(TypedDict):
    by: str


class _Reload(_By):
    dry_run: bool


class Request(msgspec.Struct):
    """The fields of every request."""

    id: Annotated[str, Meta(max_length=200)]
    deadline: float
    op: str
    args: dict[str, Any]


OF_OPERATIONS: dict[str, Any] = {
    "info": _Empty,
    "trigger": _Trigger,
    "stop": _Stop,
    "run_waits": _Id,
    "session_create": _Session,
    "session_delete": _Hash,
    "session_touch": _Hash,
    "token_create": _Token,
    "token_delete": _Name,
    "token_touch": _Hash,
    "account_create": _Account,
    "account_password": _AccountPassword,
    "account_delete": _Name,
    "login_attempt": _Client,
    "login_failed": _Client,
    "login_succeeded": _Client,
    "audit": _Audit,
    "hook": _Name,
    "run_delete": _Run,
    "bulk_delete": _Bulk,
    "bulk_restore": _Restore,
    "bulk_stop": _Bulk,
    "bulk_rerun": _Rerun,
    "certificate": _Version,
    "database_damaged": _Why,
    "notification_mark": _Mark,
    "notifications_read": _Empty,
    "schedule": _Schedule,
    "notifiers": _Empty,
    "notifier_test": _Name,
    "service_start": _Unit,
    "service_stop": _Unit,
    "service_restart": _Restart,
    "task_pause": _Unit,
    "acknowledge": _Acknowledgement,
    "unacknowledge": _Unit,
    "task_resume": _Unit,
    "units": _Units,
    "reload": _Reload,
    "clock_trust": _By,
}


def wrong(operation: str, arguments: dict[str, Any]) -> str | None:
    """Return the error in the arguments of an operation; None if valid or if the operation is unknown."""
    try:
        kind = OF_OPERATIONS.get(operation)
        if kind is not None:
            msgspec.convert(arguments, kind)
    except msgspec.ValidationError as err:
        return str(err)
    return None
