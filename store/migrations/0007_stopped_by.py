"""Column for the user who stopped a run. Earlier versions stored that user in place of the user who started the run."""

from store.connection import Connection
from store.migrations.define import define
from store.runs.phases import END_REASONS

READABLE_FROM = 1


def up(db: Connection) -> None:
    """Add the column, and move the users who stopped earlier runs and the reasons for superseded retries into it."""
    define(db, "ALTER TABLE runs ADD COLUMN stopped_by TEXT;\n")
    db.execute(
        "UPDATE runs SET stopped_by = requested_by, requested_by = NULL"
        " WHERE state = ? OR (state = ? AND requested_by LIKE 'retry_superseded%')",
        [END_REASONS["stopped"], END_REASONS["skipped"]],
    )
