"""Applies migrations, each in one transaction together with its row in `schema_migration` or `schema_addition`.

Release 0.1.0 does not write to a database with a step in `schema_migration` that it does not know, and does not look at
`schema_addition`. So the steps whose results it may write to are there.
"""

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
_ADDITIONS = """
CREATE TABLE schema_addition (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    readable_from INTEGER NOT NULL,
    writable_from INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
"""
_IN_SQLITE = "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('schema_migration', 'schema_addition')"
_IN_POSTGRESQL = (
    "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    " AND tablename IN ('schema_migration', 'schema_addition')"
)
_STEPS = {
    "schema_migration": "SELECT version, readable_from, version AS writable_from FROM schema_migration",
    "schema_addition": "SELECT version, readable_from, writable_from FROM schema_addition",
}


class Migration(NamedTuple):
    """One step of the schema.

    Attributes:
        version: Number of the step and of the schema after it; consecutive from 1.
        name: Name of the module.
        up: Function that makes the change, within a transaction.
        readable_from: The oldest schema version whose readers can read the result.
        writable_from: The oldest schema version whose writers can write to the result; None: this version.
        after_older: Adapts what a writer of an older version may have written since a time, in milliseconds since the
            epoch; within a transaction, each time a writer opens the database.
    """

    version: int
    name: str
    up: Callable[[Connection], None]
    readable_from: int
    writable_from: int | None = None
    after_older: Callable[[Connection, int], None] | None = None


class _Schema(NamedTuple):
    version: int
    """0 without a schema."""
    readable_from: int
    writable_from: int
    has_additions: bool


@functools.cache
def all_migrations() -> tuple[Migration, ...]:
    """Return the steps of this release, oldest first."""
    migrations = []
    for file in os.listdir(os.path.dirname(__file__)):
        if match := _FILE.fullmatch(file):
            name, version = match.groups()
            module = importlib.import_module(f"store.migrations.{name}")
            writable_from, after_older = getattr(module, "WRITABLE_FROM", None), getattr(module, "after_older", None)
            migrations.append(
                Migration(int(version), name, module.up, module.READABLE_FROM, writable_from, after_older)
            )
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
            schema = _schema(db)
            if schema.writable_from > newest:
                raise _too_new(db, schema, newest)
            if schema.version < step.version:
                _apply(db, step, schema)
                applied.append(step.name)
            elif step.after_older is not None and schema.has_additions:
                row = db.row("SELECT applied_at FROM schema_addition WHERE version = ?", [step.version])
                if row is not None:
                    step.after_older(db, int(row[0]))
    return applied


def _apply(db: Connection, step: Migration, schema: _Schema) -> None:
    if schema.version == 0:
        define(db, _TABLE)
    step.up(db)
    noted = step.version, step.name, step.readable_from
    now_ms = time.time_ns() // 1_000_000
    if step.writable_from is None:
        db.execute("INSERT INTO schema_migration VALUES (?, ?, ?, ?)", (*noted, now_ms))
        return
    if not schema.has_additions:
        define(db, _ADDITIONS)
    db.execute("INSERT INTO schema_addition VALUES (?, ?, ?, ?, ?)", (*noted, step.writable_from, now_ms))


def check_readable(db: Connection, steps: Sequence[Migration] | None = None) -> None:
    """Check that a reader of this release can read the database.

    Raises:
        NotReady: The database has an older schema and is not migrated yet.
        SchemaTooNew: The database has a newer schema that this release cannot read.
    """
    newest = (all_migrations() if steps is None else steps)[-1].version
    schema = _schema(db)
    if schema.version < newest:
        raise NotReady(f"{db.location} has schema {schema.version}, this release needs {newest}")
    if schema.readable_from > newest:
        raise _too_new(db, schema, newest)


def check_writable(db: Connection) -> None:
    """Check that a writer of this release could open the database, which a reader of this release can read.

    Raises:
        SchemaTooNew: A newer release wrote the database in a form to which this release must not write.
    """
    schema, newest = _schema(db), all_migrations()[-1].version
    if schema.writable_from > newest:
        raise _too_new(db, schema, newest)


def _too_new(db: Connection, schema: _Schema, newest: int) -> SchemaTooNew:
    return SchemaTooNew(f"{db.location} has schema {schema.version}, this release knows {newest}")


def _schema(db: Connection) -> _Schema:
    tables = {name for (name,) in db.rows(_IN_SQLITE if db.sqlite else _IN_POSTGRESQL)}
    if not tables:
        return _Schema(0, 0, 0, has_additions=False)
    steps = " UNION ALL ".join(query for table, query in _STEPS.items() if table in tables)
    ((version, readable_from, writable_from),) = db.rows(
        f"SELECT MAX(version), MAX(readable_from), MAX(writable_from) FROM ({steps}) AS steps"  # noqa: S608 - constants
    )
    return _Schema(version or 0, readable_from or 0, writable_from or 0, "schema_addition" in tables)
