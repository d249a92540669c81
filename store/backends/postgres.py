"""PostgreSQL, through psycopg.

The SQL of this package uses the common dialect of both databases. Here `?` becomes `$1`, `$2` …; index hints for
SQLite's planner and `OR FAIL` are left out. `NOT IN` a column of a table becomes `NOT EXISTS`, which is the same where
nothing is NULL: PostgreSQL would read the whole column first. `IN` a set of numbers becomes `= ANY` of an array, which
is looked up in an index in half the time. The migrations add the few functions that PostgreSQL lacks.

All queries are made for indexes, and a table is read through only where none can be used. Left to itself the planner
does so as well when it takes the sums of all runs for many of the rows in `run_counts`, as it knows nothing of how the
columns there depend on each other.

There is one writer: it holds an advisory lock of its session, so a second daemon on the same database is refused. Each
of its transactions counts itself in the table `ringward_writer`, which also identifies the database as ours. When the
connection breaks in the middle of a commit, the next session of the writer reads from that number whether the commit
was done. The next session gets the lock only after the server has ended the last one.

A NUL cannot stand in a text of PostgreSQL; it is stored as U+2400, its symbol.
"""

import functools
import re
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from peewee import PostgresqlDatabase

from store.connection import NUMBERS, Connection, Durability, Row, Value
from store.errors import (
    Away,
    Busy,
    Conflict,
    DiskFailed,
    DiskFull,
    InDoubt,
    NotReady,
    QueryTimeout,
    ReadOnly,
    Refused,
    StoreError,
    Unusable,
)
from store.migrations.runner import check_readable

try:
    import psycopg
    from psycopg.adapt import Buffer, Dumper, Loader
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import ConnStatus, PGconn, Ping, TransactionStatus
    from psycopg.types.string import StrDumper
except ImportError as err:
    raise Unusable(f'a PostgreSQL database needs psycopg: pip install "ringward[postgresql]"; {err}') from err

BUSY_WAIT_S = 5.0
_LOCK_POLL_S = 0.1
_OLDEST_SERVER = 13
_DEFAULTS: Mapping[str, str | int] = {
    "connect_timeout": 5,  # seconds
    "keepalives_idle": 15,  # seconds; with the next two: a host that is gone is noticed within half a minute
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
    "application_name": "ringward",
}
"""Where the URL says nothing else."""
_SETTINGS = f"""
SET lock_timeout = {int(BUSY_WAIT_S * 1000)};
SET jit = off;
SET enable_seqscan = off;
SET work_mem = '64MB';
SET client_min_messages = warning;
SET tcp_keepalives_idle = 15;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
"""  # of the server's own: the lock of a host that is gone is free again within half a minute
_READER_SETTINGS = """
SET default_transaction_read_only = on;
SET plan_cache_mode = force_custom_plan;
"""
# "crash" also waits for the server's disk: the server loses data held only in memory when one of its processes crashes.
_SYNCHRONOUS: Mapping[Durability, str] = {"crash": "local", "power": "on"}
_BY_STATE: tuple[tuple[str, type[StoreError]], ...] = (
    ("57014", QueryTimeout),
    ("25006", ReadOnly),
    ("55P03", Busy),  # lock_timeout
    ("40", Busy),  # deadlock
    ("53100", DiskFull),
    ("58", DiskFailed),
    ("XX001", Unusable),  # damaged
    ("XX002", Unusable),
    ("42501", Unusable),  # a right is missing
    ("23", Conflict),
    ("22", Conflict),  # outside of its range
)
"""By the beginning of the SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""
_ARRAY = "(CAST(translate(?, '[]', '{}') AS BIGINT[]))"
_OF_SQLITE = re.compile(r" INDEXED BY \w+|(?<=^INSERT) OR FAIL|(?<=^UPDATE) OR FAIL")
_NOT_IN = re.compile(r"(\w+\.\w+) NOT IN \(SELECT (\w+) FROM (\w+)\)")


class _NumberLoader(Loader):
    """Sums and means come as `numeric`: whole ones become int, the others float, as SQLite has them."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class _TextDumper(StrDumper):
    """Text, for which PostgreSQL need not guess a type."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\N{SYMBOL FOR NULL}") if "\0" in obj else obj)


class _FlagDumper(Dumper):
    """Flags are whole numbers here, as SQLite has them."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


class _Peewee(PostgresqlDatabase):
    """The generator of SQL from peewee's queries; they run on the connection of ours that it is given."""

    param = "?"
    returning_clause = False

    def __init__(self, connection: "PostgresConnection") -> None:
        super().__init__(None, thread_safe=False)
        self._ours = connection

    def execute_sql(self, sql: str, params: Sequence[Value] | None = None) -> object:
        return self._ours.run(sql, params or ())

    def last_insert_id(self, cursor: object, query_type: object = None) -> None:  # noqa: ARG002 - peewee's signature
        return None


class PostgresConnection(Connection):
    """One session of a server.

    Args:
        url: The server and database to connect to.
        readonly: For queries only.
        limit_s: Stop a query after this many seconds, and begin none in a `snapshot` that is as old; None: never.
        durability: See `store.database.open_writer`.
    """

    sqlite = False

    def __init__(
        self, url: str, *, readonly: bool, limit_s: float | None = None, durability: Durability = "crash"
    ) -> None:
        super().__init__(place(url), remembers=readonly)
        self._password = str(_parts(url).get("password") or "")
        self._limit_s = limit_s
        self._deadline: float | None = None
        self._transaction = 0
        self._only_reads = False
        settings = _SETTINGS + f"SET statement_timeout = {int((limit_s or 0) * 1000)};"
        settings += _READER_SETTINGS if readonly else f"SET synchronous_commit = {_SYNCHRONOUS[durability]};"
        try:
            self._raw = psycopg.connect(
                _conninfo(url),
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
            )
        except psycopg.Error as err:
            raise Away(self._told(err)) from err
        self._raw.adapters.register_dumper(str, _TextDumper)
        self._raw.adapters.register_dumper(bool, _FlagDumper)
        self._raw.adapters.register_loader("numeric", _NumberLoader)
        self._orm = _Peewee(self)
        try:
            self._script(settings)
        except BaseException:  # close it on every error, as no other code does
            self.close()
            raise

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, as the driver knows it."""
        return self._raw.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def run(self, sql: str, params: Sequence[Value]) -> "psycopg.Cursor[Row]":
        """Run one statement; return the cursor with its result.

        Raises:
            StoreError: the server is away, or refused the statement.
        """
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise QueryTimeout(f"{self.place}")
        try:
            return self._raw.execute(_native(sql), params)
        except psycopg.Error as err:
            raise self._translated(err) from err

    def _script(self, sql: str) -> None:
        """Run statements without parameters in one round trip, and nothing prepared."""
        try:
            self._raw.execute(sql, prepare=False)
        except psycopg.Error as err:
            raise self._translated(err) from err

    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a query on the server."""
        cursor = self.run(sql, params)
        return cursor.fetchall() if cursor.description else []

    def execute(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run a statement on the server; return the number of rows that it changed."""
        return max(0, self.run(sql, params).rowcount)

    def fetch(self, query: Any) -> list[Any]:
        """Return all rows of a peewee query, in the form that the query asks for."""
        return list(query.execute(self._orm))

    def apply(self, query: object) -> int:
        """Run a peewee query that changes rows; return their number."""
        context: Any = self._orm.get_sql_context()
        sql, params = context.sql(query).query()
        return self.execute(sql, params)

    def _begin_snapshot(self) -> None:
        self._script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if self._limit_s is not None:
            self._deadline = time.monotonic() + self._limit_s

    def _end_snapshot(self) -> None:
        self._deadline = None
        if self.in_transaction():
            self._script("ROLLBACK")

    def _begin(self) -> None:
        self._script("BEGIN")
        try:
            self._transaction = self.rows(
                "UPDATE ringward_writer SET transactions = transactions + 1 RETURNING transactions"
            )[0][0]
        except BaseException:  # whatever it is, the transaction is not to stay open
            if self.in_transaction():
                self._script("ROLLBACK")
            raise

    def _commit(self) -> None:
        try:
            self._script("COMMIT")
        except Away as err:
            raise InDoubt(f"{self.place}", self._transaction) from err

    @contextmanager
    def without_triggers(self) -> Iterator[None]:
        """Disable the triggers, which ask for a setting of the transaction."""
        self.rows("SELECT set_config('ringward.triggers', 'off', true)")
        yield
        # After an error the transaction, and the setting with it, is rolled back.
        self.rows("SELECT set_config('ringward.triggers', 'on', true)")

    @contextmanager
    def scanning(self) -> Iterator[None]:
        """Allow sequential scans, which are fastest for statements that read every row."""
        self.rows("SELECT set_config('enable_seqscan', 'on', true)")
        yield
        self.rows("SELECT set_config('enable_seqscan', 'off', true)")

    def _generation(self) -> Hashable:
        """Which transactions can be seen: the same text, the same data."""
        text: str = self.rows("SELECT CAST(pg_current_snapshot() AS TEXT)")[0][0]
        return text

    def usable(self) -> bool:
        """Return whether the session is open."""
        if self._raw.closed or self._only_reads:
            return False
        try:
            for _ in range(2):  # neither waits: the server's last message, then the end of the stream
                self._raw.pgconn.consume_input()
        except psycopg.Error:
            return False
        return self._raw.pgconn.status == ConnStatus.OK

    def is_stored(self, transaction: int) -> bool:
        """Return whether the transaction with this number was committed."""
        return bool(self.rows("SELECT transactions >= ? FROM ringward_writer", [transaction])[0][0])

    def close(self) -> None:
        """End the session."""
        with suppress(psycopg.Error):
            self._raw.close()

    def _translated(self, err: psycopg.Error) -> StoreError:
        if self._raw.closed:  # psycopg closes a broken connection
            return Away(self._told(err))
        state = err.sqlstate or ""
        for beginning, kind in _BY_STATE:
            if state.startswith(beginning):
                # A session keeps the default from its start; the next session may be able to write.
                self._only_reads |= kind is ReadOnly
                return kind(self._told(err))
        return StoreError(self._told(err))

    def _told(self, err: psycopg.Error) -> str:
        text = " ".join(str(err).split())
        return f"{self.place}: {text.replace(self._password, '***') if self._password else text}"


@functools.lru_cache(maxsize=1024)
def _native(sql: str) -> Any:
    """Return the SQL as PostgreSQL takes it."""
    sql = _NOT_IN.sub(r"NOT EXISTS (SELECT 1 FROM \3 WHERE \2 = \1)", _OF_SQLITE.sub("", sql))
    sql = sql.replace(f"NOT IN {NUMBERS}", f"<> ALL {_ARRAY}").replace(f"IN {NUMBERS}", f"= ANY {_ARRAY}")
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


@functools.cache
def _parts(url: str) -> Mapping[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.Error:
        # Without the reason, which quotes the URL, and that has the password.
        raise Unusable(
            'the URL of the database is invalid; use "postgresql://user:password@host:5432/database",'
            " with %XX for characters that have a meaning in URLs"
        ) from None


def _conninfo(url: str) -> str:
    return make_conninfo("", **{**_DEFAULTS, **_parts(url), "client_encoding": "UTF8"})


def place(url: str) -> str:
    """How messages call it: without the password and what follows the database.

    Raises:
        Unusable: It is no such URL.
    """
    parts = _parts(url)
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or parts.get('hostaddr') or ''}{port}/{parts.get('dbname') or ''}"


def connect_writer(url: str, durability: Durability, *, again: bool = False) -> Connection:
    """Connect for writing, as the only one; nothing is written yet, so that `is_stored` can be asked.

    A database that was ours and is now empty is not set up `again`: an administrator may be about to restore it.

    Raises:
        StoreError: See `store.database.open_writer`.
    """
    try:
        connection = PostgresConnection(url, readonly=False, durability=durability)
    except Away:
        connection = _connect_again(url, durability)
    try:
        _check_server(connection)
        _lock(connection)
        if again:
            _check_kept(connection)
        else:
            _claim(connection)
    except BaseException:  # close it on every error, as no other code does
        connection.close()
        raise
    return connection


def _connect_again(url: str, durability: Durability) -> PostgresConnection:
    """Connect after a failure, whose reason libpq has in words alone, of any language; tell whose fault it is.

    Raises:
        Refused: The server takes connections, before this attempt and after it, but not this one.
        Away: It takes none.
        Unusable: libpq rejects the URL; no server was asked.
    """
    answers = _takes_connections(url)
    try:
        return PostgresConnection(url, readonly=False, durability=durability)
    except Away as err:
        if _ping(url) == Ping.NO_ATTEMPT:
            raise Unusable(err.detail) from err
        if answers and _takes_connections(url):
            raise Refused(err.detail) from err
        raise


def _takes_connections(url: str) -> bool:
    """Return whether the server is there, and neither starting nor stopping."""
    return _ping(url) == Ping.OK


def _ping(url: str) -> int:
    return PGconn.ping(_conninfo(url).encode())


def connect_reader(url: str, limit_s: float | None) -> Connection:
    """Connect for reading.

    Raises:
        StoreError: See `store.database.open_reader`.
    """
    connection = PostgresConnection(url, readonly=True, limit_s=limit_s)
    try:
        _check_set_up(connection)
        check_readable(connection)
    except BaseException:  # close it on every error, as no other code does
        connection.close()
        raise
    return connection


def _check_server(connection: Connection) -> None:
    version, encoding, schema = connection.rows(
        "SELECT current_setting('server_version_num'), current_setting('server_encoding'), current_schema()"
    )[0]
    if int(version) // 10_000 < _OLDEST_SERVER:
        raise Unusable(f"{connection.place}: PostgreSQL {_OLDEST_SERVER} or newer is needed")
    if encoding != "UTF8":
        raise Unusable(f"{connection.place} is encoded in {encoding}; create it with ENCODING 'UTF8'")
    if schema is None:
        raise Unusable(f"{connection.place} has none of the schemas in its search_path; create one")


def _lock(connection: Connection) -> None:
    """Become the only writer of the schema; the lock is that of the session, and goes with it."""
    deadline = time.monotonic() + BUSY_WAIT_S  # for a scheduler that is just ending
    while not connection.rows(
        "SELECT pg_try_advisory_lock(hashtext('ringward'), hashtext(CAST(current_schema() AS TEXT)))"
    )[0][0]:
        if time.monotonic() > deadline:
            raise Busy(f"{connection.place} belongs to another daemon{_holder(connection)}")
        time.sleep(_LOCK_POLL_S)


def _holder(connection: Connection) -> str:
    """Who has the lock, as far as we may know."""
    row = connection.row(
        "SELECT a.pid, COALESCE(host(a.client_addr), 'the host of the server') FROM pg_locks AS l"
        " JOIN pg_stat_activity AS a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted"
        " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND l.classid = CAST(CAST(hashtext('ringward') AS BIGINT) & 4294967295 AS OID)"
    )
    return "" if row is None else f": session {row[0]}, from {row[1]}"


def _check_set_up(connection: Connection) -> None:
    if not _is_ours(connection):
        raise NotReady(f"{connection.place} has not been set up yet")


def _check_kept(connection: Connection) -> None:
    """Return whether the tables set up earlier still exist."""
    try:
        _check_set_up(connection)
        check_readable(connection)
    except NotReady as err:
        why = "its tables are gone: restore them, or restart the daemon to begin with an empty history"
        raise Unusable(f"{connection.place}: {why}") from err


def _is_ours(connection: Connection) -> bool:
    return bool(_tables(connection, "ringward_writer"))


def _tables(connection: Connection, name: str) -> int:
    number: int = connection.rows(
        "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND c.relname LIKE ?",
        [name],
    )[0][0]
    return number


def _claim(connection: Connection) -> None:
    """Leave our mark in an empty schema; refuse another application's."""
    if _is_ours(connection):
        return
    if _tables(connection, "%"):
        raise Unusable(f"{connection.place} belongs to another application; give Ringward a database of its own")
    connection.rows("CREATE TABLE ringward_writer AS SELECT CAST(0 AS BIGINT) AS transactions")
