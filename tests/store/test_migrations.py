from concurrent.futures import ThreadPoolExecutor

import pytest

from store.connection import Connection
from store.database import Database, open_reader, open_writer
from store.errors import NotReady, SchemaTooNew, StoreError
from store.migrations.runner import Migration, all_migrations, check_readable, migrate
from store.models import InstanceModel, MetaModel, OutboxModel, SessionModel, TaskModel
from store.runs.record import COLUMNS
from store.runs.writes import get_run, insert_run
from tests.store.databases import on_sqlite
from tests.store.making import T0, make_run

pytestmark = pytest.mark.own


def schema(db: Database) -> list[tuple[str, str]]:
    """Names and definitions of tables and indexes."""
    with db.snapshot() as view:
        if view.sqlite:
            return [(name, sql) for name, sql in view.rows("SELECT name, sql FROM sqlite_master ORDER BY name")]
        rows = view.rows("SELECT tablename, '' FROM pg_tables WHERE schemaname = current_schema()")
        rows += view.rows("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()")
        return [(name, sql) for name, sql in sorted(rows)]


def columns(db: Database, table: str) -> list[tuple[str, bool]]:
    """Names of the columns, and whether each is nullable."""
    with db.snapshot() as view:
        if view.sqlite:
            rows = view.rows(f"PRAGMA table_info({table})")
            return [(name, not required and not key) for _, name, _, required, _, key in rows]
        rows = view.rows(
            "SELECT column_name, is_nullable FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position",
            [table],
        )
        return [(name, nullable == "YES") for name, nullable in rows]


def note(db: Database, version: int, readable_from: int) -> None:
    db.execute("INSERT INTO schema_migration VALUES (?, 'later', ?, 0)", (version, readable_from))


def test_numbers_of_steps() -> None:
    """Steps are numbered from 1 without a gap, and none claims to be readable by a future release."""
    assert [step.version for step in all_migrations()] == list(range(1, len(all_migrations()) + 1))
    assert all(1 <= step.readable_from <= step.version for step in all_migrations())


def test_reopen_changes_nothing(path: str, writer: Database) -> None:
    """Opening a migrated database again changes nothing."""
    before = schema(writer), writer.rows("SELECT * FROM schema_migration")
    writer.close()
    again = open_writer(path)
    assert (schema(again), again.rows("SELECT * FROM schema_migration")) == before
    again.close()


@on_sqlite
def test_concurrent_creation(path: str) -> None:
    """Several writers that create the database together end with one schema, each step applied once."""
    with ThreadPoolExecutor(4) as pool:
        writers = list(pool.map(open_writer, [path] * 4))
    assert writers[0].rows("SELECT version FROM schema_migration") == [(step.version,) for step in all_migrations()]
    for writer in writers:
        writer.close()


@on_sqlite
def test_newer_schema(path: str, writer: Database) -> None:
    """A database of a newer release is refused and left unchanged."""
    note(writer, 9000, 9000)
    before = schema(writer)
    with pytest.raises(SchemaTooNew, match=r"ringward\.db has schema 9000"):
        open_writer(path)
    with pytest.raises(SchemaTooNew, match=r"ringward\.db has schema 9000"):
        open_reader(path)
    assert schema(writer) == before


def test_newer_readable_schema(path: str, writer: Database) -> None:
    """A reader of the previous release continues if the newer schema allows it."""
    note(writer, 9000, all_migrations()[-1].version)
    open_reader(path).close()


def test_pending_migration(writer: Database) -> None:
    """A database that waits for a migration is not ready for readers of the new release."""
    version = len(all_migrations())
    steps = [*all_migrations(), Migration(version + 1, "next", lambda _: None, 1)]
    with writer.snapshot() as view, pytest.raises(NotReady, match=f"needs {version + 1}"):
        check_readable(view, steps)
    assert migrate(writer._take(), steps) == ["next"]
    with writer.snapshot() as view:
        check_readable(view, steps)


def test_failed_step(writer: Database) -> None:
    """A failed step leaves no tables, rows or number; the steps before it stay, and it can be retried."""
    version = len(all_migrations())

    def good(db: Connection) -> None:
        db.execute("CREATE TABLE one (a TEXT)")

    def bad(db: Connection) -> None:
        db.execute("CREATE TABLE two (a TEXT)")
        db.execute("INSERT INTO one VALUES (1)")
        db.execute("ALTER TABLE runs ADD COLUMN extra TEXT")
        db.execute("no SQL")

    steps = [*all_migrations(), Migration(version + 1, "good", good, 1), Migration(version + 2, "bad", bad, 1)]
    with pytest.raises(StoreError, match="syntax error"):
        migrate(writer._take(), steps)
    names = [name for name, _ in schema(writer)]
    assert "one" in names
    assert "two" not in names
    assert writer.rows("SELECT * FROM one") == []
    assert "extra" not in dict(columns(writer, "runs"))
    assert writer.rows("SELECT max(version) FROM schema_migration") == [(version + 1,)]
    steps[-1] = Migration(version + 2, "better", good_again, 1)
    assert migrate(writer._take(), steps) == ["better"]


def test_users_who_stopped_earlier_runs(path: str, writer: Database) -> None:
    """The migration keeps who stopped earlier runs, and leaves the user who started them empty."""
    ended = {"status": "ended", "ended_at": T0}
    runs = {
        "stopped": make_run(end_reason="stopped", requested_by="user anna", **ended),
        "superseded": make_run(end_reason="skipped", requested_by="retry_superseded: it succeeded", **ended),
        "skipped": make_run(end_reason="skipped", requested_by="user bert", **ended),
        "failed": make_run(end_reason="failed", requested_by="user carl", **ended),
    }
    for run in runs.values():
        insert_run(writer, run)
    writer.execute("ALTER TABLE runs DROP COLUMN stopped_by")
    writer.execute("DELETE FROM schema_migration WHERE version >= 7")
    writer.close()
    again = open_writer(path)
    by_name = {name: get_run(again, run.id) for name, run in runs.items()}
    again.close()
    assert {name: (run.requested_by, run.stopped_by) for name, run in by_name.items() if run is not None} == {
        "stopped": (None, "user anna"),
        "superseded": (None, "retry_superseded: it succeeded"),
        "skipped": ("user bert", None),
        "failed": ("user carl", None),
    }


def good_again(db: Connection) -> None:
    db.execute("CREATE TABLE two (a TEXT)")


@pytest.mark.parametrize("model", [TaskModel, InstanceModel, OutboxModel, SessionModel, MetaModel])
def test_columns_of_models(writer: Database, model: type[TaskModel]) -> None:
    """Each model has the columns of its table, in order, and the same ones are nullable."""
    assert [(field.name, field.null) for field in model._meta.sorted_fields] == columns(writer, model._meta.table_name)


def test_columns_of_runs(writer: Database) -> None:
    """A run has all columns of its table except its number and the derived duration."""
    names = [name for name, _ in columns(writer, "runs")]
    assert [name for name in names if name not in ("seq", "duration")] == list(COLUMNS)
