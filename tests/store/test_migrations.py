import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from store.connection import Connection
from store.database import Database, check_writable, open_reader, open_writer
from store.errors import NotReady, SchemaTooNew, StoreError
from store.migrations.runner import Migration, all_migrations, check_readable, migrate
from store.models import InstanceModel, MetaModel, OutboxModel, SessionModel, TaskModel
from store.runs.bulk import Retention, find_excess, purge
from store.runs.record import COLUMNS
from store.runs.writes import get_run, insert_run
from store.tasks import upsert_task
from tests.store.databases import on_sqlite
from tests.store.making import T0, make_run, undoing

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
    assert all((step.writable_from or step.version) >= step.readable_from for step in all_migrations())


def test_reopen_changes_nothing(path: str, writer: Database) -> None:
    """Opening a migrated database again changes nothing."""
    before = schema(writer), writer.rows("SELECT * FROM schema_migration"), writer.rows("SELECT * FROM schema_addition")
    writer.close()
    again = open_writer(path)
    steps = again.rows("SELECT * FROM schema_migration"), again.rows("SELECT * FROM schema_addition")
    assert (schema(again), *steps) == before
    again.close()


@on_sqlite
def test_concurrent_creation(path: str) -> None:
    """Several writers that create the database together end with one schema, each step applied once."""
    with ThreadPoolExecutor(4) as pool:
        writers = list(pool.map(open_writer, [path] * 4))
    steps = "SELECT version FROM schema_migration UNION ALL SELECT version FROM schema_addition ORDER BY version"
    assert writers[0].rows(steps) == [(step.version,) for step in all_migrations()]
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


def test_newer_writable_schema(path: str, writer: Database) -> None:
    """The previous release reads and writes a database whose newer steps allow it."""
    newest = all_migrations()[-1].version
    writer.execute("INSERT INTO schema_addition VALUES (9000, 'later', 1, ?, 0)", (newest,))
    check_writable(writer)
    open_reader(path).close()
    writer.close()
    again = open_writer(path)
    again.execute("UPDATE schema_addition SET writable_from = 9000 WHERE version = 9000")
    with pytest.raises(SchemaTooNew, match="has schema 9000"):
        check_writable(again)
    again.close()
    open_reader(path).close()
    with pytest.raises(SchemaTooNew, match="has schema 9000"):
        open_writer(path)


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


def migrated_again(path: str, writer: Database, version: int) -> Database:
    """Undo this step of the schema and the later ones, and open the database again."""
    for statement in undoing(version):
        writer.execute(statement)
    writer.close()
    return open_writer(path)


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
    again = migrated_again(path, writer, 7)
    by_name = {name: get_run(again, run.id) for name, run in runs.items()}
    again.close()
    assert {name: (run.requested_by, run.stopped_by) for name, run in by_name.items() if run is not None} == {
        "stopped": (None, "user anna"),
        "superseded": (None, "retry_superseded: it succeeded"),
        "skipped": ("user bert", None),
        "failed": ("user carl", None),
    }


def test_causes_of_earlier_runs(path: str, writer: Database) -> None:
    """The migration gives runs that were skipped for a reason that was only stored in words its cause."""
    causes = {"retry_superseded: it succeeded": "superseded", "paused: the schedule was paused": "paused", "bert": None}
    runs = {by: make_run(status="ended", end_reason="skipped", ended_at=T0, stopped_by=by) for by in causes}
    for run in runs.values():
        insert_run(writer, run)
    again = migrated_again(path, writer, 9)
    assert {by: stored.cause for by, run in runs.items() if (stored := get_run(again, run.id))} == causes
    again.close()


def test_ends_of_earlier_runs(path: str, writer: Database) -> None:
    """Runs that ended before ends were numbered are ordered by the time of their end, before all later ones."""
    ends = {"second": T0 + 2, "first": T0 + 1, "third": T0 + 3}
    runs = {name: make_run(status="ended", end_reason="failed", ended_at=at) for name, at in ends.items()}
    for run in runs.values():
        insert_run(writer, run)
    again = migrated_again(path, writer, 8)
    for kept in (2, 1):
        for rows in find_excess(again, {}, Retention(kept, T0, 0), T0):
            purge(again, rows)
        assert {name for name, run in runs.items() if get_run(again, run.id)} == {*["second", "third"][2 - kept :]}
    insert_run(again, make_run(status="ended", end_reason="failed", ended_at=T0))
    for rows in find_excess(again, {}, Retention(1, T0, 0), T0):
        purge(again, rows)
    assert get_run(again, runs["third"].id) is None
    again.close()


def test_ends_that_an_older_release_stored(path: str, writer: Database) -> None:
    """Runs that an older release ended after an upgrade and back are the last ones of their task, in their order."""
    upsert_task(writer, "a", "task", "{}")
    now = time.time_ns() // 1_000_000
    numbered = make_run(status="ended", end_reason="failed", ended_at=now + 9000)
    insert_run(writer, numbered)
    later = [make_run(status="ended", end_reason="failed", ended_at=now + 1000 * number) for number in (2, 1)]
    for run in later:
        insert_run(writer, run)
        writer.execute("UPDATE runs SET end_number = 0 WHERE id = ?", [run.id])
    for _ in range(2):
        writer.close()
        writer = open_writer(path)
        ends = writer.rows("SELECT id FROM runs ORDER BY end_number, ended_at")
        assert [run_id for (run_id,) in ends] == [numbered.id, later[1].id, later[0].id]
    writer.close()


def test_additions_noted_as_other_steps(path: str, writer: Database) -> None:
    """A database of a development version, which did not note additions apart, can be opened."""
    writer.execute("INSERT INTO schema_migration SELECT version, name, readable_from, applied_at FROM schema_addition")
    writer.execute("DROP TABLE schema_addition")
    writer.close()
    again = open_writer(path)
    check_writable(again)
    again.close()


def good_again(db: Connection) -> None:
    db.execute("CREATE TABLE two (a TEXT)")


@pytest.mark.parametrize("model", [TaskModel, InstanceModel, OutboxModel, SessionModel, MetaModel])
def test_columns_of_models(writer: Database, model: type[TaskModel]) -> None:
    """Each model has the columns of its table, in order, and the same ones are nullable."""
    assert [(field.name, field.null) for field in model._meta.sorted_fields] == columns(writer, model._meta.table_name)


def test_columns_of_runs(writer: Database) -> None:
    """A run has all columns of its table except its number, that of its end, and the derived duration."""
    names = [name for name, _ in columns(writer, "runs")]
    assert [name for name in names if name not in ("seq", "end_number", "duration")] == list(COLUMNS)
