"""The definition with which each run started: its hash in the run's row, and its text once per task and hash."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1


def up(db: Connection) -> None:
    """Add the column, which earlier runs leave empty, and the table. `replaced_at` is NULL for a current definition."""
    define(
        db,
        """
ALTER TABLE runs ADD COLUMN definition_hash TEXT;

CREATE TABLE definitions (
    task_name TEXT NOT NULL,
    hash TEXT NOT NULL,
    definition TEXT NOT NULL,
    replaced_at INTEGER,
    PRIMARY KEY (task_name, hash)
) STRICT, WITHOUT ROWID;
""",
    )
