"""Tables for the time that instances of services spent in each state on each day, and for their newest changes."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1


def up(db: Connection) -> None:
    """Create the tables. `number` counts the changes of one instance."""
    define(
        db,
        """
CREATE TABLE instance_days (
    task_name TEXT NOT NULL,
    day INTEGER NOT NULL,
    instance_index INTEGER NOT NULL,
    state TEXT NOT NULL,
    ms INTEGER NOT NULL,
    PRIMARY KEY (task_name, day, instance_index, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE instance_changes (
    task_name TEXT NOT NULL,
    instance_index INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    state TEXT NOT NULL,
    run_id TEXT,
    PRIMARY KEY (task_name, instance_index, number)
) STRICT, WITHOUT ROWID;
""",
    )
