"""Public definitions of tasks and services: the current ones, and earlier ones under which runs started."""

from typing import NamedTuple

from store.database import Database
from store.runs.phases import FIRST_ACTIVE


class Definition(NamedTuple):
    """A definition as it is stored.

    Attributes:
        text: JSON text without secrets.
        hash: A hash of the text.
    """

    text: str
    hash: str


_FOREVER = 2**62
_NEWEST_RUN = f"""
SELECT max(created_at) FROM (
    SELECT max(created_at) AS created_at FROM runs INDEXED BY runs_task WHERE state < {FIRST_ACTIVE} AND task_name = ?
    UNION ALL
    SELECT max(created_at) FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE} AND task_name = ?
) AS newest
"""  # noqa: S608 - constants
_PRUNE = f"""
DELETE FROM definitions
WHERE (replaced_at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM tasks WHERE name = task_name AND configured = 1))
AND NOT EXISTS (
    SELECT 1 FROM runs INDEXED BY runs_task
    WHERE state < {FIRST_ACTIVE} AND runs.task_name = definitions.task_name
    AND created_at <= COALESCE(replaced_at, {_FOREVER}))
AND NOT EXISTS (
    SELECT 1 FROM runs INDEXED BY runs_active
    WHERE state >= {FIRST_ACTIVE} AND runs.task_name = definitions.task_name)
"""  # noqa: S608 - constants


def set_current(db: Database, task_name: str, definition: Definition, now_ms: int) -> None:
    """Make a definition the current one of a task or service; keep the previous one as long as it has runs."""
    current = "SELECT hash FROM definitions WHERE task_name = ? AND replaced_at IS NULL"
    if db.rows(current, [task_name]) == [(definition.hash,)]:
        return
    # All runs under the previous definition were created by now, even if the clock was set back meanwhile.
    newest = db.row(_NEWEST_RUN, [task_name, task_name])
    replaced_at = max(now_ms, newest[0] or 0) if newest is not None else now_ms
    db.execute(
        "UPDATE definitions SET replaced_at = ? WHERE task_name = ? AND replaced_at IS NULL", [replaced_at, task_name]
    )
    put_definition(db, task_name, definition, None)


def put_definition(db: Database, task_name: str, definition: Definition, replaced_at: int | None) -> None:
    """Store a definition that was replaced at a time (ms since the epoch), or that is current."""
    db.execute(
        "INSERT INTO definitions (task_name, hash, definition, replaced_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (task_name, hash) DO UPDATE SET replaced_at = excluded.replaced_at",
        [task_name, definition.hash, definition.text, replaced_at],
    )


def get_definition(db: Database, task_name: str, definition_hash: str) -> str | None:
    """Return the text of a definition of a task or service; None if it is not stored."""
    row = db.row("SELECT definition FROM definitions WHERE task_name = ? AND hash = ?", [task_name, definition_hash])
    return None if row is None else row[0]


def replaced_times(db: Database, task_name: str, limit: int) -> list[int]:
    """Return when the last definitions of a task or service were replaced, in ms since the epoch, newest first."""
    rows = db.rows(
        "SELECT replaced_at FROM definitions WHERE task_name = ? AND replaced_at IS NOT NULL"
        " ORDER BY replaced_at DESC LIMIT ?",
        [task_name, limit],
    )
    return [at for (at,) in rows]


def prune(db: Database) -> int:
    """Remove definitions that are neither current nor used by stored runs; return their number.

    An earlier definition stays while its task has active runs, or runs that were created before it was replaced.
    Deleted runs count, because they can be restored.
    """
    return db.execute(_PRUNE)
