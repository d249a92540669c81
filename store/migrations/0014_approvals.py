"""Table for approvals: what a run needs from a person before it starts, and the answer (store.runs.writes)."""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1
WRITABLE_FROM = 7

_TABLE = """
CREATE TABLE approvals (
    run_id TEXT NOT NULL PRIMARY KEY,
    approvers TEXT,
    not_by_starter INTEGER NOT NULL,
    timeout_ms INTEGER NOT NULL,
    answer TEXT,
    answered_by TEXT,
    answered_at INTEGER,
    note TEXT
) STRICT, WITHOUT ROWID;
"""


def up(db: Connection) -> None:
    """Add the table."""
    define(db, _TABLE)


def after_older(db: Connection, _since_ms: int) -> None:
    """Remove the approvals of runs that an older version has purged."""
    db.execute("DELETE FROM approvals WHERE run_id NOT IN (SELECT id FROM runs)")
