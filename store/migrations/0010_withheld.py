"""Column for the user who disabled a service or paused a task, with the time and the reason."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1
WRITABLE_FROM = 7


def up(db: Connection) -> None:
    """Add the column."""
    define(db, "ALTER TABLE tasks ADD COLUMN withheld TEXT;\n")
