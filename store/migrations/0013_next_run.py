"""Column for the run that is about to replace the present run of an instance."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1
WRITABLE_FROM = 7


def up(db: Connection) -> None:
    """Add the column."""
    define(db, "ALTER TABLE instances ADD COLUMN next_run TEXT;\n")
