"""Table for accounts of people, each with its own password."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1


def up(db: Connection) -> None:
    """Create the table. The tag of an account is the `password_tag` of its sessions."""
    define(
        db,
        """
CREATE TABLE accounts (
    name TEXT NOT NULL PRIMARY KEY,
    password_hash TEXT NOT NULL,
    tag TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    tasks TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    password_changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
""",
    )
