"""Features and failures that only a database server has."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from store import events
from store.backends import postgres
from store.backends.postgres import PostgresConnection, location
from store.connection import NUMBERS, Row, Value
from store.daemon_values import get_meta, set_meta
from store.database import Database, open_reader, open_writer
from store.errors import (
    ConnectionRefused,
    DatabaseLocked,
    DatabaseUnusable,
    NotReady,
    QueryTimeout,
    ReadOnly,
    SchemaTooNew,
    ServerUnreachable,
    StoreError,
)
from store.notifications import Notification, notify, page
from store.store_thread import StoreThread
from tests.store.databases import on_postgresql, open_hurried_reader
from tests.store.making import T0
from tests.support.paths import ROOT
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.waiting import until


@on_postgresql
@pytest.mark.parametrize(("durability", "level"), [("crash", "local"), ("power", "on")])
def test_durability(path: str, durability: Any, level: str) -> None:
    """A commit waits for the server's disk and, with durability "power", for its standbys too."""
    writer = open_writer(path, durability)
    assert writer.rows("SHOW synchronous_commit") == [(level,)]
    writer.close()


@on_postgresql
def test_second_writer_is_refused(path: str, writer: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second writer is refused while one is connected, and gets the database after that one has closed."""
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "BUSY_WAIT_S", 0.05)
        with pytest.raises(DatabaseLocked, match="another daemon: session"):
            open_writer(path)
    set_meta(writer, "k", 1)
    writer.close()
    again = open_writer(path)
    assert get_meta(again, "k") == 1
    again.close()


def test_separate_schemas(postgres: PostgresServer) -> None:
    """Two daemons can share a database if each has its own schema."""
    urls = [postgres.create(), postgres.create()]
    writers = [open_writer(url) for url in urls]
    for number, writer in enumerate(writers):
        set_meta(writer, "k", number)
    assert [get_meta(writer, "k") for writer in writers] == [0, 1]
    for url, writer in zip(urls, writers, strict=True):
        writer.close()
        postgres.drop(url)


def test_database_without_tables(postgres: PostgresServer) -> None:
    """A reader reports a database that no writer has set up yet; a missing schema is named."""
    url = postgres.create()
    with pytest.raises(NotReady, match="not been set up yet"):
        open_reader(url)
    with pytest.raises(DatabaseUnusable, match="search_path"):
        open_writer(postgres.within("nowhere"))
    postgres.drop(url)


def test_other_application(postgres: PostgresServer) -> None:
    """A schema with foreign tables is refused and left unchanged."""
    url = postgres.create()
    name = url.rpartition("%3D")[2]
    postgres.ask(f"CREATE TABLE {name}.theirs (a int)")
    with pytest.raises(DatabaseUnusable, match="another application"):
        open_writer(url)
    assert postgres.ask(f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}'") == [("theirs",)]
    postgres.drop(url)


def test_unsuitable_encoding(postgres: PostgresServer) -> None:
    """A database whose encoding cannot hold every text is refused with a remedy."""
    postgres.ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    with pytest.raises(DatabaseUnusable, match="ENCODING 'UTF8'"):
        open_writer(postgres.url("latin"))
    postgres.ask("DROP DATABASE latin")


@pytest.mark.own
@on_postgresql
def test_newer_schema(path: str, writer: Database) -> None:
    """A database of a newer release is refused."""
    writer.execute("INSERT INTO schema_migration VALUES (9000, 'later', 9000, 0)")
    writer.close()
    for opening in (open_writer, open_reader):
        with pytest.raises(SchemaTooNew, match="schema 9000"):
            opening(path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:{}@/db?host=/nowhere/at/all",
        "postgresql://me:{}@127.0.0.1:1/db",
        "postgresql://me:{}@127.0.0.1:1/db?nonsense=1",
        "postgresql://me:{}%zz@127.0.0.1:1/db",
        "postgresql://me@/db?host=/nowhere/at/all&password={}",
    ],
)
def test_errors_hide_the_password(url: str) -> None:
    """Errors of a wrong URL or an unreachable server name the place and never the password."""
    for opening in (open_writer, open_reader):
        with pytest.raises((ServerUnreachable, DatabaseUnusable)) as caught:
            opening(url.format("geheim77"))
        error: BaseException | None = caught.value
        while error is not None:
            assert "geheim77" not in f"{error!r} {error}"
            error = error.__cause__


def test_place_in_messages() -> None:
    """The name of a database in messages has everything but the password and the settings."""
    assert (
        location("postgresql://me:secret@db.example:5433/runs?connect_timeout=3")
        == "postgresql://me@db.example:5433/runs"
    )


@on_postgresql
def test_nul_in_text(writer: Database, reader: Database) -> None:
    """PostgreSQL cannot store a NUL in a text, so its symbol is stored instead; in JSON a NUL stays a NUL."""
    draft = Notification("0" * 26, "k", "info", "a\0b", "", None, None, 1, T0, T0)
    notify(writer, draft, window_ms=1, keep=10)
    assert page(reader, 1)[0].title == "a\N{SYMBOL FOR NULL}b"
    set_meta(writer, "nul", {"x": "a\0b"})
    assert get_meta(reader, "nul") == {"x": "a\0b"}


@on_postgresql
def test_bytewise_order(writer: Database, reader: Database) -> None:
    """Texts are ordered bytewise."""
    for key in ("b", "B", "a", "ä", "Z", "_"):
        set_meta(writer, key, 1)
    keys_found = [row[0] for row in reader.rows("SELECT key FROM meta ORDER BY key")]
    assert keys_found == sorted(keys_found, key=str.encode)


@on_postgresql
def test_query_limit(path: str, writer: Database) -> None:
    """The server stops a reader's query at its limit; a writer has no limit."""
    short = open_hurried_reader(path, limit_s=0.05)
    with pytest.raises(QueryTimeout):
        short.rows("SELECT pg_sleep(60)")

    def read_one() -> list[Any]:
        with suppress(QueryTimeout):  # with so little time several attempts may be needed
            return short.rows("SELECT 1")
        return []

    assert until(read_one, "an answer in time") == [(1,)]
    short.close()
    assert writer.rows("SHOW statement_timeout") == [("0",)]


@on_postgresql
def test_sessions_ended_by_the_server(path: str, writer: Database, reader: Database, postgres: PostgresServer) -> None:
    """After the server has ended all sessions, the next calls open new ones; the writer's has its lock again."""
    set_meta(writer, "k", 1)
    assert get_meta(reader, "k") == 1
    postgres.hang_up()
    assert until(lambda: get_or_none(reader), "the reader") == 1
    set_meta(writer, "k", 2)
    assert get_meta(reader, "k") == 2
    with pytest.raises(DatabaseLocked):
        open_writer(path)


def get_or_none(db: Database) -> object:
    try:
        return get_meta(db, "k")
    except ServerUnreachable:
        return None


@on_postgresql
def test_temporarily_read_only_server(path: str, writer: Database, postgres: PostgresServer) -> None:
    """A writer whose session is read-only gets another one as soon as the server accepts writes."""
    name = path.rpartition("%3D")[2]
    postgres.ask("ALTER DATABASE postgres SET default_transaction_read_only = on")
    try:
        postgres.hang_up()
        for _ in range(2):
            with pytest.raises(ReadOnly):
                set_meta(writer, "k", 1)
    finally:
        postgres.ask("BEGIN READ WRITE; ALTER DATABASE postgres RESET ALL; COMMIT")
    set_meta(writer, "k", 2)
    assert postgres.ask(f"SELECT value FROM {name}.meta WHERE key = 'k'") == [("2",)]


@on_postgresql
def test_session_ended_within_a_transaction(writer: Database, postgres: PostgresServer) -> None:
    """A transaction whose session ends is not stored: neither its earlier writes nor its later ones."""

    def cut() -> None:
        with writer.transaction():
            set_meta(writer, "before", 1)
            postgres.hang_up()
            for key in ("after", "later"):
                with pytest.raises(ServerUnreachable):
                    set_meta(writer, key, 1)
            raise KeyError

    with pytest.raises(KeyError):
        cut()
    set_meta(writer, "next", 1)
    assert writer.rows("SELECT key FROM meta") == [("next",)]


@on_postgresql
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_connection_lost_during_a_commit(
    path: str, monkeypatch: pytest.MonkeyPatch, stored: bool, together: bool
) -> None:
    """If the connection breaks during a commit, the store checks its outcome, so nothing is stored twice."""
    real = PostgresConnection._script
    cuts: list[int] = []

    def script(self: PostgresConnection, sql: str) -> None:
        if sql != "COMMIT" or cuts:
            real(self, sql)
            return
        cuts.append(1)
        if stored:
            real(self, sql)
        self._raw.close()
        raise ServerUnreachable("(cut)")

    store = StoreThread(open_writer(path))
    results: list[Any] = []
    inside, go = threading.Event(), threading.Event()

    def append(db: Database) -> int:
        inside.set()
        go.wait(30)
        return events.append(db, "a", {}, T0)

    monkeypatch.setattr(PostgresConnection, "_script", script)
    number = 3 if together else 1
    for _ in range(number):
        store.submit(append, results.append)
    assert inside.wait(30)
    go.set()
    store.close()
    reader = open_reader(path, limit_s=None)
    stored_events = [event.seq for event in events.since(reader, 0)]
    assert [outcome for outcome in results if isinstance(outcome, int)] == stored_events
    assert stored_events == list(range(1, len(stored_events) + 1))
    assert all(isinstance(outcome, int | ServerUnreachable) for outcome in results)
    if stored:
        assert len(stored_events) == number
    reader.close()


def test_refused_login(postgres: PostgresServer) -> None:
    """A refused login is distinguished from a server that is down; the error has no secret."""
    with pytest.raises(ConnectionRefused, match="no_such_database") as caught:
        open_writer(postgres.url("no_such_database"))
    assert PASSWORD not in str(caught.value)
    url = postgres.create()
    wrong = url.replace(PASSWORD.replace(" ", "%20"), "wrong%20secret")
    assert wrong != url
    with postgres.asking_passwords():
        until(lambda: _refuses(wrong), "the new rules")
        with pytest.raises(ConnectionRefused, match="password") as caught:
            open_writer(wrong)
        assert "wrong secret" not in str(caught.value)
        open_writer(url).close()
    postgres.drop(url)


@pytest.mark.parametrize("option", ["sslmode=bogus", "target_session_attrs=bogus", "port=1,2"])
def test_options_refused_by_libpq(option: str, tmp_path: Path) -> None:
    """Options that libpq refuses are an error at once, because no server was asked and waiting cannot help."""
    with pytest.raises(DatabaseUnusable, match=option.partition("=")[0].split("_")[0]) as caught:
        open_writer(f"postgresql://me:hidden@/db?host={tmp_path}&{option}")
    assert "hidden" not in str(caught.value)


def _refuses(url: str) -> bool:
    try:
        open_writer(url).close()
    except ConnectionRefused:
        return True
    return False


@on_postgresql
def test_server_away(path: str, postgres: PostgresServer) -> None:
    """While the server is away, readers and writers report it; they continue when it is back."""
    writer = open_writer(path)
    reader = open_reader(path)
    set_meta(writer, "k", 1)
    postgres.stop()
    try:
        for attempt in (lambda: set_meta(writer, "k", 2), lambda: get_meta(reader, "k"), lambda: open_writer(path)):
            with pytest.raises(ServerUnreachable) as caught:
                attempt()
            assert PASSWORD not in str(caught.value)
    finally:
        postgres.start()
    assert get_meta(reader, "k") == 1
    set_meta(writer, "k", 3)
    assert get_meta(reader, "k") == 3
    reader.close()
    writer.close()


@on_postgresql
def test_slow_query_blocks_no_greenlet(path: str) -> None:
    """Under gevent, a query in a pool thread blocks no greenlet, however long it takes."""
    code = """
import gevent.monkey
gevent.monkey.patch_all()
import sys, gevent
from gevent.threadpool import ThreadPool
from store.database import open_reader, open_writer
from store.errors import QueryTimeout
from store.daemon_values import get_meta, set_meta

writer = open_writer(sys.argv[1])
set_meta(writer, "k", 7)
reader, pool, beats = open_reader(sys.argv[1], limit_s=None), ThreadPool(2), []

def beat():
    while True:
        beats.append(1)
        gevent.sleep(0.001)

def request():
    assert pool.apply(get_meta, (reader, "k")) == 7

heart = gevent.spawn(beat)
gevent.joinall([gevent.spawn(request) for _ in range(300)], raise_error=True)
assert 1 <= len(reader._idle) <= 2, len(reader._idle)
before = len(beats)
try:
    pool.apply(open_reader(sys.argv[1]).rows, ("SELECT pg_sleep(600)",))
except QueryTimeout:
    assert len(beats) > before + 10
    print("fine")
heart.kill()
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.stdout == "fine\n", done.stderr


def test_sqlite_needs_no_driver(tmp_path: Path) -> None:
    """A daemon on SQLite works without psycopg. For the URL of a server, the error says how to install it."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from store.database import open_writer, open_reader\n"
        "open_writer(sys.argv[1]).close(); open_reader(sys.argv[1]).close()\n"
        "try: open_writer('postgresql://x/y')\n"
        "except Exception as err: print(err)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.db")], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert "pip install" in done.stdout
    assert issubclass(DatabaseUnusable, StoreError)


@on_postgresql
def test_query_plans(writer: Database) -> None:
    """Queries use indexes, even on tables without planner statistics; deleted runs are looked up."""
    visible = "SELECT seq FROM runs WHERE runs.seq NOT IN (SELECT run FROM deleted_runs)"
    sums = f"SELECT SUM(n) FROM run_counts WHERE width = 27 AND bucket IN {NUMBERS} AND task_name = ''"
    for query, params, looked_up in ((visible, [], "Anti Join"), (sums, ["[1, 2]"], "run_counts_pkey")):
        plan = "\n".join(row[0] for row in writer.rows(f"EXPLAIN {query}", params))
        assert looked_up in plan
        assert "Seq Scan" not in plan


@on_postgresql
def test_session_ended_while_it_is_checked(
    writer: Database, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that ends while the tables are looked up is reported as that, not as missing tables."""
    real, cuts = PostgresConnection.rows, [1]

    def rows(self: PostgresConnection, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        if "pg_class" in sql and cuts:
            cuts.pop()
            postgres.hang_up()
        return real(self, sql, params)

    monkeypatch.setattr(PostgresConnection, "rows", rows)
    postgres.hang_up()
    with pytest.raises(ServerUnreachable):
        set_meta(writer, "k", 1)
    set_meta(writer, "k", 2)
    assert get_meta(writer, "k") == 2


def test_removed_tables(postgres: PostgresServer) -> None:
    """A writer that reconnects to an empty schema leaves it empty for a restore, and continues after it."""
    url = postgres.create()
    name = url.rpartition("%3D")[2]
    writer = open_writer(url)
    set_meta(writer, "k", 1)
    postgres.ask(f"ALTER SCHEMA {name} RENAME TO {name}_away; CREATE SCHEMA {name}")
    postgres.hang_up()
    for _ in range(2):
        with pytest.raises(DatabaseUnusable, match="tables are gone"):
            set_meta(writer, "k", 2)
    assert postgres.ask(f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}'") == []
    postgres.ask(f"DROP SCHEMA {name}; ALTER SCHEMA {name}_away RENAME TO {name}")
    assert get_meta(writer, "k") == 1
    set_meta(writer, "k", 3)
    writer.close()
    postgres.drop(url)
