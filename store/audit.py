"""The audit log, which keeps a limited number of the newest entries.

Failed logins and refused requests have separate limits. So neither password guessing nor forbidden requests can
displace the entries of other actions.
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
        at: Time in ms since the epoch.
        who: The client, as text.
        address: Address of the client.
        operation: Name of the operation in the API.
        target: The object of the action; may be empty.
        status: HTTP status of the response.
        reason: Why the request was refused, or its result; may be empty.
        failed_login: Whether the entry records a wrong password.
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
    """An entry with its id; ids ascend."""

    id: int
    entry: Entry


def append(db: Database, entries: Mapping[str, Entry]) -> None:
    """Store entries in this order; remove the oldest entries from time to time.

    Args:
        db: A writer.
        entries: Entries by unique key. An entry whose key is already stored is skipped.
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
    """Remove entries beyond the limits; return the number removed."""
    gone = 0
    for failed_login, number in ((_DONE, kept), (_FAILED_LOGIN, kept_failed_logins), (_REFUSED, kept_refused)):
        last = f"SELECT id FROM audit WHERE failed_login = {failed_login} ORDER BY id DESC LIMIT 1 OFFSET ?"  # noqa: S608 - constants
        gone += db.execute(f"DELETE FROM audit WHERE failed_login = {failed_login} AND id <= ({last})", [number])  # noqa: S608 - constants
    return gone


def entries(db: Database, before: int | None, limit: int) -> list[StoredEntry]:
    """Return at most `limit` of the newest entries, newest first; with `before`, only entries with a lower id."""
    rows = db.rows(
        "SELECT id, at, who, address, operation, target, status, reason, failed_login"
        " FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?",
        [_AFTER_ALL if before is None else before, limit],
    )
    return [
        StoredEntry(number, Entry(at, who, address, operation, target, status, reason, failed_login == _FAILED_LOGIN))
        for number, at, who, address, operation, target, status, reason, failed_login in rows
    ]
