import itertools
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from store import database as database_module
from store.connection import Connection, Durability
from store.daemon_values import get_meta, set_meta
from store.database import Database, FilesListener, open_reader, open_writer, take_over
from store.errors import (
    DatabaseClosed,
    DatabaseLocked,
    DatabaseUnusable,
    DiskFull,
    NotReady,
    QueryTimeout,
    ReadOnly,
    StoreError,
)
from store.models import MetaModel
from store.runs.writes import get_run, insert_run
from tests.store.databases import on_postgresql, on_sqlite, open_hurried_reader
from tests.store.making import make_run, reader_once_created
from tests.support.paths import ROOT
from tests.support.waiting import until

ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


def files(path: str) -> dict[str, int]:
    where = Path(path)
    return {name: os.stat(where.parent / name).st_mode for name in sorted(os.listdir(where.parent))}


@pytest.mark.own
@on_sqlite
def test_reader_alone_creates_no_files(path: str) -> None:
    """A reader that is alone reads a closed database without new files, and a killed writer's with its -wal."""
    open_writer(path).close()
    for value, closing in ((1, "database.close()"), (2, "os._exit(0)")):
        code = "import os; from store.database import open_writer; from store.daemon_values import set_meta;"
        code += f" database = open_writer({path!r}); set_meta(database, 'k', {value}); {closing}"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
        before = files(path)
        reader = open_reader(path, alone=True)
        assert get_meta(reader, "k") == value
        assert files(path) == before
        reader.close()


@pytest.mark.own
@on_sqlite
@pytest.mark.parametrize("mask", [0, 0o022, 0o277, 0o777])
def test_files_are_private(path: str, mask: int) -> None:
    """The database, its -wal and its -shm are 0600 under any umask, even if a reader creates them."""
    before = os.umask(mask)
    try:
        with_writer = open_writer(path)
        set_meta(with_writer, "k", 1)
        assert {stat.S_IMODE(mode) for mode in files(path).values()} == {0o600}
        assert len(files(path)) == 3
        with_writer.close()
        reader = open_reader(path)
        assert get_meta(reader, "k") == 1
        assert {stat.S_IMODE(mode) for mode in files(path).values()} == {0o600}
        reader.close()
    finally:
        os.umask(before)


@on_sqlite
def test_wide_mode_is_narrowed(path: str, writer: Database) -> None:
    """A database that was copied with a wider mode is set back to 0600."""
    writer.rows("SELECT 1")
    os.chmod(path, 0o644)
    open_writer(path).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


@on_sqlite
@pytest.mark.parametrize(("durability", "level"), [("crash", 1), ("power", 2)])
def test_durability(path: str, durability: Durability, level: int) -> None:
    """The writer uses WAL, with synchronous NORMAL or FULL as configured."""
    writer = open_writer(path, durability)
    assert writer.rows("PRAGMA journal_mode") == [("wal",)]
    assert writer.rows("PRAGMA synchronous") == [(level,)]
    writer.close()


def test_fixed_sqlite() -> None:
    """The SQLite in use does not have the WAL-reset bug, which 3.51.3 fixed."""
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO meta VALUES ('x', '1')",
        "DELETE FROM runs",
        "CREATE TABLE t (a TEXT)",
        "DROP TABLE runs",
    ],
)
def test_reader_cannot_write(reader: Database, statement: str) -> None:
    """A reader can change neither rows nor the schema."""
    with pytest.raises(ReadOnly):
        reader.execute(statement)


@on_sqlite
def test_reader_of_a_file_cannot_write(reader: Database) -> None:
    """A reader of SQLite cannot write even if its query_only is switched off."""
    reader.rows("PRAGMA query_only = 0")
    for statement in ("DELETE FROM runs", "PRAGMA user_version = 7"):
        with pytest.raises(ReadOnly):
            reader.execute(statement)


@pytest.mark.own
@on_sqlite
def test_reader_never_checkpoints(path: str) -> None:
    """The WAL of a crashed writer stays unchanged, byte for byte, whatever readers do and however they close."""
    code = (
        "import os, sys; from store.database import open_writer; from store.daemon_values import set_meta\n"
        "db = open_writer(sys.argv[1])\n"
        "for i in range(2000): set_meta(db, f'k{i}', 'x' * 1000)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, cwd=ROOT)
    before = Path(path).read_bytes(), Path(f"{path}-wal").read_bytes()
    reader = open_reader(path)
    assert reader.rows("PRAGMA wal_autocheckpoint") == [(0,)]
    assert reader.rows("PRAGMA query_only") == [(1,)]
    assert reader.rows("SELECT count(*) FROM meta") == [(2000,)]
    reader.close()
    assert (Path(path).read_bytes(), Path(f"{path}-wal").read_bytes()) == before


def test_query_limit(path: str, writer: Database) -> None:
    """A reader's endless query is stopped, and the connection can serve the next one."""
    assert database_module.QUERY_LIMIT_S == 1.0
    set_meta(writer, "k", 1)
    short = open_hurried_reader(path, limit_s=0.05)
    with pytest.raises(QueryTimeout, match=re.escape(short.location)):
        short.rows(ENDLESS)

    def meta_rows() -> list[tuple[str, str]]:
        with suppress(QueryTimeout):  # with so little time several attempts may be needed
            return short.fetch(MetaModel.select().tuples())
        return []

    assert until(meta_rows, "an answer in time") == [("k", "1")]
    short.close()


@on_sqlite
@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize("limit_s", [None, 60.0])
def test_attempts_are_limited_in_steps(path: str, limit_s: float | None) -> None:
    """An attempt is limited in steps, beside any time limit and however many attempts came before it."""
    query = "WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < ?) SELECT count(*) FROM t"
    reader = open_reader(path, limit_s=limit_s)
    try:
        with reader.lent() as connection:
            steps = 17 * 5000  # as SQLite counts them
            for _ in range(30):
                assert connection.attempt(query, [5000], 2 * steps) == [(5000,)]
                assert connection.attempt(query, [20_000], 2 * steps) is None
                assert connection.rows(query, [7]) == [(7,)]
    finally:
        reader.close()


def test_limit_of_a_snapshot(path: str, writer: Database) -> None:
    """The queries of a snapshot share one limit, so many short ones are stopped as well."""
    assert writer.rows("SELECT 1")
    reader = open_hurried_reader(path, limit_s=0.5)
    part = ENDLESS.replace("FROM n)", "FROM n WHERE x < 100000)")
    with pytest.raises(QueryTimeout), reader.snapshot() as view:
        read_for_ever(view, part)
    reader.close()


def read_for_ever(view: Connection, sql: str) -> None:
    while True:
        view.rows(sql)


@on_sqlite
def test_writer_has_no_limit(path: str, writer: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only readers have a time limit; a query of the writer runs to its end."""
    long = ENDLESS.replace("FROM n)", "FROM n WHERE x < 300000)")
    reader = open_reader(path)
    hours = itertools.count()
    monkeypatch.setattr("time.thread_time", lambda: next(hours) * 3600.0)
    assert writer.rows(long) == [(300_000,)]
    with pytest.raises(QueryTimeout):
        reader.rows(long)
    reader.close()


@on_sqlite
@pytest.mark.usefixtures("writer")
def test_busy_host_stops_no_query(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that passes while a reader's query has no processor does not count against its limit."""
    reader = open_reader(path)
    hours = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: next(hours) * 3600.0)
    with reader.snapshot() as view:
        assert view.rows(ENDLESS.replace("FROM n)", "FROM n WHERE x < 300000)")) == [(300_000,)]
    reader.close()


@on_postgresql
def test_writer_has_no_limit_on_the_server(path: str, writer: Database) -> None:
    """PostgreSQL limits the time of readers' queries, with a margin for a busy server, and not of the writer's."""
    reader = open_reader(path)
    assert [database.rows("SHOW statement_timeout") for database in (writer, reader)] == [[("0",)], [("4s",)]]
    reader.close()


def test_snapshot(writer: Database, reader: Database) -> None:
    """Queries in one snapshot see the same state, whatever is committed meanwhile."""
    with reader.snapshot() as view:
        assert view.rows("SELECT count(*) FROM meta") == [(0,)]
        set_meta(writer, "k", 1)
        assert view.rows("SELECT count(*) FROM meta") == [(0,)]
    assert reader.rows("SELECT count(*) FROM meta") == [(1,)]


def test_failed_transactions(writer: Database) -> None:
    """A failed transaction leaves nothing; a failed inner part leaves the rest."""

    def fail() -> None:
        with writer.transaction():
            set_meta(writer, "lost", 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with writer.transaction():
        set_meta(writer, "kept", 1)
        with pytest.raises(KeyError):
            fail()
        set_meta(writer, "kept too", 1)
    assert writer.rows("SELECT key FROM meta ORDER BY key") == [("kept",), ("kept too",)]


def test_readers_in_threads(writer: Database, reader: Database) -> None:
    """Readers in several threads see every commit of a concurrent writer without errors, by raw SQL and peewee."""
    stop = threading.Event()

    def read(_: int) -> int:
        last = rounds = 0
        while not stop.is_set() or rounds == 0:
            rounds += 1
            raw = reader.rows("SELECT count(*) FROM meta")[0][0]
            orm = len(reader.fetch(MetaModel.select(MetaModel.key).tuples()))
            assert last <= raw <= orm
            last = orm
        return rounds

    def write() -> None:
        for n in range(250):
            set_meta(writer, f"k{n}", n)

    with ThreadPoolExecutor(5) as pool:
        reads = [pool.submit(read, n) for n in range(4)]
        try:
            pool.submit(write).result()
        finally:
            stop.set()
        assert all(read.result() > 0 for read in reads)
    assert isinstance(reader, database_module._Reader)
    assert len(reader._idle) <= 4
    assert get_meta(reader, "k249") == 249


def test_writer_belongs_to_one_thread(writer: Database) -> None:
    """A writer that a thread took over refuses every other thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(take_over, writer, FilesListener()).result()
        with pytest.raises(StoreError, match="submit"):
            writer.rows("SELECT 1")
        pool.submit(writer.close).result()
    with pytest.raises(DatabaseClosed):
        writer.rows("SELECT 1")


def test_reader_after_a_fork(reader: Database) -> None:
    """A reader refuses to work in a forked child, which does not own its locks."""
    assert reader.rows("SELECT 1")
    pid = os.fork()
    if pid == 0:
        try:
            reader.rows("SELECT 1")
        except StoreError as err:
            os._exit(0 if "fork" in str(err) else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.own
@on_sqlite
def test_database_not_ready(path: str) -> None:
    """If the database is missing, empty or not set up, a reader says that it is not ready."""
    with pytest.raises(NotReady, match=r"ringward\.db does not exist"):
        open_reader(path)
    assert not os.path.exists(path)
    Path(path).touch()
    with pytest.raises(NotReady, match="empty"):
        open_reader(path)
    with sqlite3.connect(path) as half_made:
        half_made.execute("PRAGMA journal_mode = WAL")
    half_made.close()
    with pytest.raises(NotReady, match="set up"):
        open_reader(path)


@pytest.mark.own
def test_reader_waits_for_the_database(path: str) -> None:
    """A reader that may wait gets the database once it was created."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader_once_created, path)
        writer = open_writer(path)
        reader = waiting.result(60)
    assert reader.rows("SELECT count(*) FROM runs") == [(0,)]
    reader.close()
    writer.close()


@pytest.mark.own
@on_sqlite
@pytest.mark.parametrize("content", [b"this is no database, but it is long enough " * 100, b"short"])
def test_file_is_not_a_database(path: str, content: bytes) -> None:
    """A file that is not a database is refused by name and not touched."""
    Path(path).write_bytes(content)
    for opening in (open_writer, open_reader):
        with pytest.raises(DatabaseUnusable, match=r"ringward\.db"):
            opening(path)
    assert Path(path).read_bytes() == content


@on_sqlite
def test_damaged_page(path: str, writer: Database) -> None:
    """Reading a damaged page raises an error that names the file."""
    with writer.transaction():
        for n in range(3000):
            set_meta(writer, f"k{n}", "x" * 100)
    writer.close()
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(4096 * 12)
        file.write(b"\xa5" * (size - 4096 * 12))
    with pytest.raises(DatabaseUnusable, match=r"ringward\.db"):
        open_reader(path).rows("SELECT sum(length(value)) FROM meta")


@pytest.mark.own
@on_sqlite
def test_other_application(path: str) -> None:
    """Another application's database is refused and not changed."""
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    before = Path(path).read_bytes()
    with pytest.raises(DatabaseUnusable, match="another application"):
        open_writer(path)
    assert Path(path).read_bytes() == before
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA application_id = 77")
    other.close()
    before = Path(path).read_bytes()
    for opening in (open_writer, open_reader):
        with pytest.raises(DatabaseUnusable, match="another application"):
            opening(path)
    assert Path(path).read_bytes() == before
    assert list(files(path)) == [Path(path).name]


@pytest.mark.parametrize("opening", [open_writer, open_reader])
def test_unusable_paths(tmp_path: Path, opening: type[Database]) -> None:
    """A path that is a directory, or lies in a missing one, raises a store error that names it."""
    with pytest.raises(StoreError, match=tmp_path.name):
        opening(str(tmp_path))
    with pytest.raises(StoreError, match="missing"):
        opening(str(tmp_path / "missing" / "x.db"))


@on_sqlite
def test_second_writer_is_busy(path: str, writer: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second writer gets Busy and stores nothing; readers continue."""
    monkeypatch.setattr("store.backends.sqlite.BUSY_WAIT_S", 0.05)
    second = open_writer(path)
    with writer.transaction():
        set_meta(writer, "k", 1)
        with pytest.raises(DatabaseLocked, match=r"ringward\.db"):
            set_meta(second, "k", 2)
        reader = open_reader(path)
        assert get_meta(reader, "k", "none") == "none"
        reader.close()
    assert get_meta(second, "k") == 1
    second.close()


@on_sqlite
def test_disk_full(writer: Database) -> None:
    """A full disk raises DiskFull; stored rows stay readable, and writes succeed once there is room."""
    run = make_run()
    insert_run(writer, run)
    pages = writer.rows("PRAGMA page_count")[0][0]
    writer.rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull):
        set_meta(writer, "big", "x" * 1_000_000)
    assert get_run(writer, run.id) == run
    writer.rows("PRAGMA max_page_count = 1000000")
    set_meta(writer, "big", "x" * 1_000_000)


def test_closed_database(path: str, writer: Database) -> None:
    """Use of a closed database raises Closed."""
    reader = open_reader(path)
    with reader.snapshot():
        reader.close()
    assert writer.rows("SELECT 1")
    with pytest.raises(DatabaseClosed):
        reader.rows("SELECT 1")
