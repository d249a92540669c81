"""Runs in the order in which they were stored, for readers that must not miss one.

Row numbers give the order. SQLite uses the number of the newest row again after that row was purged. So a reader also
remembers ids, and detects this with :func:`newest` and :func:`id_at`.
"""

from collections.abc import Collection
from typing import NamedTuple

from store.connection import Value
from store.database import Database
from store.runs.filter import among
from store.runs.phases import FIRST_ACTIVE

_COLUMNS = "seq, id, task_name, instance_index, created_at"


class Arrival(NamedTuple):
    """A run, with values that never change after it was stored."""

    seq: int
    """Number of the row."""
    id: str
    task_name: str
    instance_index: int
    created_at: int
    """ms since the epoch."""


class RunEnd(NamedTuple):
    """Whether a run has ended, and the number of lines in its log."""

    ended: bool
    lines: int


def arrivals(db: Database, after: int, limit: int) -> list[Arrival]:
    """Return at most `limit` runs after row `after`, in row order."""
    rows = db.rows(f"SELECT {_COLUMNS} FROM runs WHERE seq > ? ORDER BY seq LIMIT ?", [after, limit])  # noqa: S608 - constants
    return [Arrival(*row) for row in rows]


def unfinished(db: Database) -> list[Arrival]:
    """Return the runs that have not ended, in row order."""
    rows = db.rows(
        f"SELECT {_COLUMNS} FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE} ORDER BY seq"  # noqa: S608 - constants
    )
    return [Arrival(*row) for row in rows]


def newest(db: Database) -> Arrival | None:
    """Return the run with the highest row number; None if there are no runs."""
    row = db.row(f"SELECT {_COLUMNS} FROM runs ORDER BY seq DESC LIMIT 1")  # noqa: S608 - constants
    return None if row is None else Arrival(*row)


def id_at(db: Database, seq: int) -> str | None:
    """Return the id of the run in row `seq`; None if there is no such row."""
    row = db.row("SELECT id FROM runs WHERE seq = ?", [seq])
    return None if row is None else str(row[0])


def last_before(db: Database, created_at: int) -> int:
    """Return the highest row number of the runs that were created before `created_at` (ms); 0 if there are none."""
    row = db.row("SELECT COALESCE(max(seq), 0) FROM runs WHERE created_at < ?", [created_at])
    return 0 if row is None else int(row[0])


def ends(db: Database, ids: Collection[str]) -> dict[str, RunEnd]:
    """Return whether these runs have ended, and their line counts, by id; purged runs are absent."""
    params: list[Value] = []
    rows = db.rows(f"SELECT id, state < {FIRST_ACTIVE}, lines FROM runs WHERE {among('id', ids, params)}", params)  # noqa: S608 - constants
    return {row[0]: RunEnd(bool(row[1]), row[2]) for row in rows}
