"""Column for the time since which a service has been flapping."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1


def up(db: Connection) -> None:
    """Add the column."""
    define(db, "ALTER TABLE tasks ADD COLUMN flapping_since INTEGER;\n")
