"""Columns for the cause of an end, and for the kind of a due time. A due time without a kind is that of a retry."""

from store.connection import Connection
from store.migrations.define import define
from store.runs.phases import END_REASONS

READABLE_FROM = 1
WRITABLE_FROM = 7


def up(db: Connection) -> None:
    """Add the columns, and the causes that earlier versions stored in words only."""
    define(db, "ALTER TABLE runs ADD COLUMN cause TEXT;\nALTER TABLE runs ADD COLUMN due_kind TEXT;\n")
    for cause, words in (("superseded", "retry_superseded: %"), ("paused", "paused: %")):
        db.execute(
            "UPDATE runs SET cause = ? WHERE state = ? AND stopped_by LIKE ?", [cause, END_REASONS["skipped"], words]
        )
