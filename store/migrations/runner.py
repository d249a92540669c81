"""Applies migrations: each in one transaction together with its row in `schema_migration`, so all or nothing."""

import functools
import importlib
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from store.connection import Connection
from store.errors import NotReady, SchemaTooNew
from store.migrations.define import define

_FILE = re.compile(r"((\d{4})_\w+)\.py")
_TABLE = """
CREATE TABLE schema_migration (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    readable_from INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
"""
_IN_SQLITE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migration'"
_IN_POSTGRESQL = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_migration'"


class Migration(NamedTuple):
    """One step of the schema.

    Attributes:
        version: Its number, and that of the schema after it; dense from 1.
        name: Its module's name.
        up: Makes the change; runs inside a transaction.
        readable_from: The oldest schema version whose readers can read the result.
    """

    version: int
    name: str
    up: Callable[[Connection], None]
    readable_from: int


@functools.cache
def known() -> tuple[Migration, ...]:
    """Return the steps of this release, oldest first."""
    found = []
    for file in os.listdir(os.path.dirname(__file__)):
        if match := _FILE.fullmatch(file):
            name, version = match.groups()
            module = importlib.import_module(f"store.migrations.{name}")
            found.append(Migration(int(version), name, module.up, module.READABLE_FROM))
    return tuple(sorted(found, key=lambda step: step.version))


known()  # now: when a database is opened, the files may belong to another release


def migrate(db: Connection, steps: Sequence[Migration] | None = None) -> list[str]:
    """Apply the steps that are missing, in order; returns their names.

    Args:
        db: A writer's connection, outside a transaction.
        steps: All known steps, oldest first; the steps of this release when absent.

    Raises:
        SchemaTooNew: The database has a step that is not known here; nothing was changed.
        StoreError: A step failed; it left nothing behind, the steps before it stay.
    """
    steps = known() if steps is None else steps
    newest = steps[-1].version
    applied = []
    for step in steps:
        with db.transaction():  # the version is read under the write lock: two at once would both apply the step
            version, _ = _versions(db)
            if version > newest:
                raise SchemaTooNew(f"{db.place} has schema {version}, this release knows {newest}")
            if version >= step.version:
                continue
            if version == 0:
                define(db, _TABLE)
            step.up(db)
            db.execute(
                "INSERT INTO schema_migration VALUES (?, ?, ?, ?)",
                (step.version, step.name, step.readable_from, time.time_ns() // 1_000_000),
            )
            applied.append(step.name)
    return applied


def check_readable(db: Connection, steps: Sequence[Migration] | None = None) -> None:
    """Whether a reader of this release can read the database.

    Raises:
        NotReady: It is older, and not migrated yet.
        SchemaTooNew: It is newer, and says that this release cannot read it.
    """
    newest = (known() if steps is None else steps)[-1].version
    version, readable_from = _versions(db)
    if version < newest:
        raise NotReady(f"{db.place} has schema {version}, this release needs {newest}")
    if readable_from > newest:
        raise SchemaTooNew(f"{db.place} has schema {version}, this release knows {newest}")


def _versions(db: Connection) -> tuple[int, int]:
    """Return the schema's version (0: none yet) and the oldest version whose readers can read it."""
    if db.row(_IN_SQLITE if db.sqlite else _IN_POSTGRESQL) is None:
        return 0, 0
    row = db.row("SELECT COALESCE(MAX(version), 0), COALESCE(MAX(readable_from), 0) FROM schema_migration")
    return (int(row[0]), int(row[1])) if row else (0, 0)
