"""Applies migrations, each in one transaction together with its row in `schema_migration`."""

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
        version: Number of the step and of the schema after it; consecutive from 1.
        name: Name of the module.
        up: Function that makes the change, within a transaction.
        readable_from: The oldest schema version whose readers can read the result.
    """

    version: int
    name: str
    up: Callable[[Connection], None]
    readable_from: int


@functools.cache
def all_migrations() -> tuple[Migration, ...]:
    """Return the steps of this release, oldest first."""
    migrations = []
    for file in os.listdir(os.path.dirname(__file__)):
        if match := _FILE.fullmatch(file):
            name, version = match.groups()
            module = importlib.import_module(f"store.migrations.{name}")
            migrations.append(Migration(int(version), name, module.up, module.READABLE_FROM))
    return tuple(sorted(migrations, key=lambda step: step.version))


all_migrations()  # read now: when a database is opened, the files may already belong to another release


def migrate(db: Connection, steps: Sequence[Migration] | None = None) -> list[str]:
    """Apply the missing steps in order; return their names.

    Args:
        db: A writer's connection, outside a transaction.
        steps: All known steps, oldest first; None for the steps of this release.

    Raises:
        SchemaTooNew: The database has a step that this release does not know; nothing was changed.
        StoreError: A step failed and was rolled back; the steps before it stay applied.
    """
    steps = all_migrations() if steps is None else steps
    newest = steps[-1].version
    applied = []
    for step in steps:
        with db.transaction():  # read the version under the write lock, so that no other process applies the same step
            version, _ = _versions(db)
            if version > newest:
                raise SchemaTooNew(f"{db.location} has schema {version}, this release knows {newest}")
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
    """Check that a reader of this release can read the database.

    Raises:
        NotReady: The database has an older schema and is not migrated yet.
        SchemaTooNew: The database has a newer schema that this release cannot read.
    """
    newest = (all_migrations() if steps is None else steps)[-1].version
    version, readable_from = _versions(db)
    if version < newest:
        raise NotReady(f"{db.location} has schema {version}, this release needs {newest}")
    if readable_from > newest:
        raise SchemaTooNew(f"{db.location} has schema {version}, this release knows {newest}")


def _versions(db: Connection) -> tuple[int, int]:
    """Return the schema's version (0 without a schema) and the oldest version whose readers can read it."""
    if db.row(_IN_SQLITE if db.sqlite else _IN_POSTGRESQL) is None:
        return 0, 0
    row = db.row("SELECT COALESCE(MAX(version), 0), COALESCE(MAX(readable_from), 0) FROM schema_migration")
    return (int(row[0]), int(row[1])) if row else (0, 0)
