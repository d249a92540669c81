"""Tables for flows, whose steps are other runs.

`flows` has a row for each flow run that began, `flow_steps` one for each of its steps that began or was decided. A run
of a step has the id of its flow's run, and is the only one for this step, item and attempt. `run_outputs` has the
values that a run wrote for later steps. The graphs of flows are definitions (store.runs.flows).
"""

from store.connection import Connection
from store.migrations.define import define

READABLE_FROM = 1
WRITABLE_FROM = 7

_TABLES = """
ALTER TABLE runs ADD COLUMN flow_run_id TEXT;
ALTER TABLE runs ADD COLUMN step TEXT;
ALTER TABLE runs ADD COLUMN item TEXT;

CREATE UNIQUE INDEX runs_step ON runs (flow_run_id, step, (COALESCE(item, '')), retry_attempt)
WHERE flow_run_id IS NOT NULL;

CREATE TABLE flows (
    run_id TEXT NOT NULL PRIMARY KEY,
    graph TEXT NOT NULL,
    phase TEXT NOT NULL,
    deadline INTEGER,
    stopped_by TEXT,
    failed_step TEXT,
    failed_run_id TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE flow_steps (
    run_id TEXT NOT NULL,
    step TEXT NOT NULL,
    decision TEXT,
    cause TEXT,
    began_at INTEGER,
    decided_at INTEGER,
    items TEXT,
    from_run_id TEXT,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_outputs (
    run_id TEXT NOT NULL PRIMARY KEY,
    outputs TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""


def up(db: Connection) -> None:
    """Add the columns, the index and the tables."""
    define(db, _TABLES)


def after_older(db: Connection, _since_ms: int) -> None:
    """Remove what belongs to runs that an older version has purged."""
    for table in ("flows", "flow_steps", "run_outputs"):
        db.execute(f"DELETE FROM {table} WHERE run_id NOT IN (SELECT id FROM runs)")  # noqa: S608 - constants
