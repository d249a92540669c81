"""The audit log, which keeps a limited number of the newest entries.

Failed logins and refused requests have separate limits. So neither password guessing nor forbidden requests can
displace the entries of other actions.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from store.connection import Connection, Value
from store.database import Database
from store.runs.filter import among

KEPT = 100_000
KEPT_FAILED_LOGINS = 10_000
KEPT_REFUSED = 10_000
_DONE, _FAILED_LOGIN, _REFUSED = 0, 1, 2
"""Values of the column `failed_login`."""
_INSERT = (
    "INSERT INTO audit (key, at, who, address, operation, target, status, reason, failed_login)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO "
)
_PRUNE_EVERY = 256
_AFTER_ALL = 2**63 - 1


class AuditEntry(NamedTuple):
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
    entry: AuditEntry


def append(db: Database, entries: Mapping[str, AuditEntry], *, replace: bool = False) -> None:
    """Store entries in this order; remove the oldest entries from time to time.

    Args:
        db: A writer.
        entries: Entries by unique key.
        replace: An entry whose key is already stored replaces the reason of the stored one; otherwise it is skipped.
    """
    statement = _INSERT + ("UPDATE SET reason = excluded.reason" if replace else "NOTHING") + " RETURNING id"
    with db.transaction() as view:
        for key, entry in entries.items():
            row = view.row(statement, [key, *entry[:-1], _kind(entry)])
            if row is not None and row[0] % _PRUNE_EVERY == 0:
                prune(view)


def _kind(entry: AuditEntry) -> int:
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


class ChosenEntries(NamedTuple):
    """Which entries to return.

    Attributes:
        who: Part of the client's name, in any case; None for all clients.
        operations: Names of operations; None for all.
        target: Part of the target, in any case; None for all targets.
        since: Earliest time, in ms since the epoch.
        until: Latest time.
        done: Only requests that took effect.
    """

    who: str | None = None
    operations: tuple[str, ...] | None = None
    target: str | None = None
    since: int | None = None
    until: int | None = None
    done: bool = False

    def condition(self, params: list[Value]) -> str:
        """Return the condition as SQL, and append its values to `params`."""
        parts = [""]
        for column, part in (("who", self.who), ("target", self.target)):
            if part is not None:
                parts.append(f"LOWER({column}) LIKE ? ESCAPE '!'")
                params.append("%" + re.sub("([!%_])", r"!\1", part.lower()) + "%")
        for sign, at in ((">=", self.since), ("<=", self.until)):
            if at is not None:
                parts.append(f"at {sign} ?")
                params.append(at)
        if self.operations is not None:
            parts.append(among("operation", self.operations, params))
        if self.done:
            parts.append("status < 400")
        return " AND ".join(parts)


ALL = ChosenEntries()


def entries(db: Database, before: int | None, limit: int, chosen: ChosenEntries = ALL) -> list[StoredEntry]:
    """Return at most `limit` of the newest chosen entries, newest first; with `before`, only those with a lower id."""
    params: list[Value] = [_AFTER_ALL if before is None else before]
    condition = chosen.condition(params)
    rows = db.rows(
        "SELECT id, at, who, address, operation, target, status, reason, failed_login"  # noqa: S608 - constants
        f" FROM audit WHERE id < ?{condition} ORDER BY id DESC LIMIT ?",
        [*params, limit],
    )
    return [
        StoredEntry(
            number, AuditEntry(at, who, address, operation, target, status, reason, failed_login == _FAILED_LOGIN)
        )
        for number, at, who, address, operation, target, status, reason, failed_login in rows
    ]
