"""Deleted runs, as long as they can be restored."""

import json
from dataclasses import replace

from store.connection import NUMBERS
from store.database import Database
from store.runs.filter import RunFilter, Selection, resolve
from store.runs.record import SELECT, Run, from_row


def list_deleted(
    db: Database, run_filter: RunFilter, limit: int, offset: int, deleted_after: int = 0
) -> tuple[list[Run], int]:
    """Return one page of the matching deleted runs, last deleted first, and the number of all matching runs.

    Of several runs that were deleted at the same time, the run stored last comes first.

    Args:
        db: A reader or writer.
        run_filter: The filter for deleted runs; visible runs are not searched.
        limit: Number of runs in the page, 0 or more.
        offset: Number of runs before the page, 0 or more.
        deleted_after: Runs deleted at or before this time (ms since the epoch) are left out.

    Raises:
        ValueError: Unknown phase or end reason.
        StoreError: See store.errors.
    """
    with db.snapshot() as view:
        selection = replace(resolve(view, run_filter), some_deleted=False)
        if selection.is_empty():
            return [], 0
        where, params = selection.conditions()
        source = "deleted_runs WHERE deleted_at > ?"
        if selection != Selection(some_deleted=False):
            # With CROSS JOIN, SQLite scans the few deleted runs and looks up each of them.
            source = f"deleted_runs CROSS JOIN runs WHERE runs.seq = deleted_runs.run AND deleted_at > ? AND {where}"
        params = [deleted_after, *params]
        counted = view.row(f"SELECT count(*) FROM {source}", params)  # noqa: S608 - ours
        # All runs may be deleted, so the order is that of an index.
        order = "ORDER BY deleted_runs.deleted_at DESC, deleted_runs.run DESC LIMIT ? OFFSET ?"
        page = [row[0] for row in view.rows(f"SELECT run FROM {source} {order}", [*params, limit, offset])]  # noqa: S608 - ours
        rows = view.rows(f"SELECT seq, {SELECT} FROM runs WHERE seq IN {NUMBERS}", [json.dumps(page)])  # noqa: S608 - constants
    runs = {row[0]: from_row(row[1:]) for row in rows}
    return [runs[number] for number in page], counted[0] if counted else 0
