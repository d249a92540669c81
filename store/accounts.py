"""Accounts of people, with the hashes of their passwords.

The account `admin` is not in this table: its password is part of the daemon's configuration.
"""

from typing import NamedTuple

from store.connection import Connection
from store.database import Database

MAX_ACCOUNTS = 1000

_COLUMNS = "name, password_hash, tag, role, tasks, created_at, created_by, password_changed_at"


class Account(NamedTuple):
    """An account; times in ms since the epoch.

    Attributes:
        password_hash: The hash, with its salt and parameters.
        tag: Identifies the account's current password. It is the `password_tag` of the account's sessions.
        role: Name of the role, as in the API.
        tasks: Glob pattern of the tasks that the account may see; None for all tasks.
        created_by: The user who created the account, as text.
    """

    name: str
    password_hash: str
    tag: str
    role: str
    tasks: str | None
    created_at: int
    created_by: str
    password_changed_at: int


def create(db: Database, account: Account) -> str | None:
    """Store a new account. A repeated call with the same account changes nothing.

    Returns:
        None if the account is stored; "taken" if another account has its name; "full" if there are too many accounts.
    """
    with db.transaction() as view:
        row = view.row("SELECT tag FROM accounts WHERE name = ?", [account.name])
        if row is not None:
            return None if row[0] == account.tag else "taken"
        count = view.row("SELECT count(*) FROM accounts")
        if count is not None and count[0] >= MAX_ACCOUNTS:
            return "full"
        view.execute(f"INSERT INTO accounts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", account)  # noqa: S608 - constants
    return None


def find(db: Database, name: str) -> Account | None:
    """Return the account with this name; None if there is none."""
    row = db.row(f"SELECT {_COLUMNS} FROM accounts WHERE name = ?", [name])  # noqa: S608 - constants
    return None if row is None else Account(*row)


def by_tag(db: Database, tag: str) -> Account | None:
    """Return the account whose current password has this tag; None if there is none."""
    row = db.row(f"SELECT {_COLUMNS} FROM accounts WHERE tag = ?", [tag])  # noqa: S608 - constants
    return None if row is None else Account(*row)


def all_accounts(db: Database) -> list[Account]:
    """Return all accounts, sorted by name."""
    return [Account(*row) for row in db.rows(f"SELECT {_COLUMNS} FROM accounts ORDER BY name")]  # noqa: S608 - constants


def set_password(db: Database, name: str, password_hash: str, tag: str, now_ms: int) -> bool:
    """Replace the password of an account and end its sessions. Return whether the account exists."""
    with db.transaction() as view:
        _end_sessions(view, name, tag)
        query = "UPDATE accounts SET password_hash = ?, tag = ?, password_changed_at = ? WHERE name = ?"
        return view.execute(query, [password_hash, tag, now_ms, name]) > 0


def delete(db: Database, name: str) -> bool:
    """Remove an account and end its sessions. Return whether the account existed."""
    with db.transaction() as view:
        _end_sessions(view, name, "")
        return view.execute("DELETE FROM accounts WHERE name = ?", [name]) > 0


def _end_sessions(view: Connection, name: str, except_tag: str) -> None:
    tags = "SELECT tag FROM accounts WHERE name = ? AND tag != ?"
    view.execute(f"DELETE FROM sessions WHERE password_tag IN ({tags})", [name, except_tag])  # noqa: S608 - constants
