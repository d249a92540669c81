"""Accounts of people, each with the hash of its password.

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
        password_hash: Hash with its salt and parameters.
        tag: Stands for this password of this account. Sessions have it as their `password_tag`.
        role: In the words of the API.
        tasks: Glob of the only tasks that it may see; None: all.
        created_by: Who created it, for people.
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
    """Store a new account; a repeat of the same command changes nothing.

    Returns:
        None when it is stored, else the obstacle: "taken" (its name) or "full" (there are too many).
    """
    with db.transaction() as view:
        found = view.row("SELECT tag FROM accounts WHERE name = ?", [account.name])
        if found is not None:
            return None if found[0] == account.tag else "taken"
        count = view.row("SELECT count(*) FROM accounts")
        if count is not None and count[0] >= MAX_ACCOUNTS:
            return "full"
        view.execute(f"INSERT INTO accounts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", account)  # noqa: S608 - constants
    return None


def find(db: Database, name: str) -> Account | None:
    """Return the account with this name."""
    row = db.row(f"SELECT {_COLUMNS} FROM accounts WHERE name = ?", [name])  # noqa: S608 - constants
    return None if row is None else Account(*row)


def by_tag(db: Database, tag: str) -> Account | None:
    """Return the account whose present password has this tag."""
    row = db.row(f"SELECT {_COLUMNS} FROM accounts WHERE tag = ?", [tag])  # noqa: S608 - constants
    return None if row is None else Account(*row)


def all_accounts(db: Database) -> list[Account]:
    """Return all accounts by name."""
    return [Account(*row) for row in db.rows(f"SELECT {_COLUMNS} FROM accounts ORDER BY name")]  # noqa: S608 - constants


def set_password(db: Database, name: str, password_hash: str, tag: str, now_ms: int) -> bool:
    """Replace the password of an account and end its sessions; returns whether the account exists."""
    with db.transaction() as view:
        _end_sessions(view, name, tag)
        query = "UPDATE accounts SET password_hash = ?, tag = ?, password_changed_at = ? WHERE name = ?"
        return view.execute(query, [password_hash, tag, now_ms, name]) > 0


def delete(db: Database, name: str) -> bool:
    """Remove an account and end its sessions; returns whether it existed."""
    with db.transaction() as view:
        _end_sessions(view, name, "")
        return view.execute("DELETE FROM accounts WHERE name = ?", [name]) > 0


def _end_sessions(view: Connection, name: str, except_tag: str) -> None:
    tags = "SELECT tag FROM accounts WHERE name = ? AND tag != ?"
    view.execute(f"DELETE FROM sessions WHERE password_tag IN ({tags})", [name, except_tag])  # noqa: S608 - constants
