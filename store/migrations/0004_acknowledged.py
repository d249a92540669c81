"""Column for the failure of a task that a person has acknowledged."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1


def up(db: Connection) -> None:
    """Add the column."""
    define(db, "ALTER TABLE tasks ADD COLUMN acknowledged TEXT;\n")
