"""Column for the state of a task's promises (store.tasks.PromiseState)."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1
WRITABLE_FROM = 7


def up(db: Connection) -> None:
    """Add the column."""
    define(db, "ALTER TABLE tasks ADD COLUMN promises TEXT;\n")
