"""The audit log: the newest entries, up to a number.

Failed log-ins and refused requests have their own limits. So neither password guessing nor forbidden requests can push
out the entries of other actions.
"""

from collections.abc import Mapping
from typing import NamedTuple

from store.connection import Connection
from store.database import Database

KEPT = 100_000
KEPT_FAILED_LOGINS = 10_000
KEPT_REFUSED = 10_000
_DONE, _FAILED_LOGIN, _REFUSED = 0, 1, 2
"""Values of the column `failed_login`."""
_PRUNE_EVERY = 256
_AFTER_ALL = 2**63 - 1


class Entry(NamedTuple):
    """One entry.

    Attributes:
        at: ms since the epoch.
        who: For people.
        address: Where the request came from.
        operation: Name of the operation in the API.
        target: The object of the action, or empty.
        status: HTTP status of the answer.
        reason: Why it was refused, or its result, or empty.
        failed_login: Whether it is a wrong password.
    """

    at: int
    who: str
    address: str
    operation: str
    target: str
    status: int
    reason: str
    failed_login: bool


class StoredEntry(NamedTuple):
    """An entry with its number; numbers grow."""

    id: int
    entry: Entry


def append(db: Database, entries: Mapping[str, Entry]) -> None:
    """Store entries, in this order; now and then the oldest go.

    Args:
        db: A writer.
        entries: By keys that no others have: an entry that is stored already is passed over.
    """
    with db.transaction() as view:
        for key, entry in entries.items():
            row = view.row(
                "INSERT INTO audit (key, at, who, address, operation, target, status, reason, failed_login)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING id",
                [key, *entry[:-1], _kind(entry)],
            )
            if row is not None and row[0] % _PRUNE_EVERY == 0:
                prune(view)


def _kind(entry: Entry) -> int:
    if entry.failed_login:
        return _FAILED_LOGIN
    return _REFUSED if 400 <= entry.status < 500 else _DONE


def prune(
    db: Connection, kept: int = KEPT, kept_failed_logins: int = KEPT_FAILED_LOGINS, kept_refused: int = KEPT_REFUSED
) -> int:
    """Remove entries beyond the limits; return how many were removed."""
    gone = 0
    for failed_login, number in ((_DONE, kept), (_FAILED_LOGIN, kept_failed_logins), (_REFUSED, kept_refused)):
        last = f"SELECT id FROM audit WHERE failed_login = {failed_login} ORDER BY id DESC LIMIT 1 OFFSET ?"  # noqa: S608 - constants
        gone += db.execute(f"DELETE FROM audit WHERE failed_login = {failed_login} AND id <= ({last})", [number])  # noqa: S608 - constants
    return gone


def entries(db: Database, before: int | None, limit: int) -> list[StoredEntry]:
    """Return the newest entries, or the newest before number `before`, newest first."""
    rows = db.rows(
        "SELECT id, at, who, address, operation, target, status, reason, failed_login"
        " FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?",
        [_AFTER_ALL if before is None else before, limit],
    )
    return [
        StoredEntry(number, Entry(at, who, address, operation, target, status, reason, failed_login == _FAILED_LOGIN))
        for number, at, who, address, operation, target, status, reason, failed_login in rows
    ]
