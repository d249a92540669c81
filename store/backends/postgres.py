"""PostgreSQL, through psycopg.

The SQL of the store uses the common dialect of both databases. Here `?` becomes `$1`, `$2` …; index hints for SQLite's
planner and `OR FAIL` are removed. `NOT IN` a column of a table becomes `NOT EXISTS`, which is equivalent without NULLs:
PostgreSQL would read the whole column first. `IN` a set of numbers becomes `= ANY` of an array, which takes half the
time in an index. The migrations add the few functions that PostgreSQL lacks.

All queries are written for indexes, so sequential scans are disabled except where no index can be used. Otherwise the
planner would also scan `run_counts` for the sums over all runs: it does not know how its columns depend on each other,
and overestimates the number of rows.

There is one writer. It holds an advisory lock of its session, so a second daemon cannot use the same database. Each of
its transactions increments a number in the table `ringward_writer`, which also identifies the database as Ringward's.
If the connection breaks during a commit, the writer's next session learns from that number whether the commit
succeeded. It gets the lock only after the server has ended the previous session.

PostgreSQL text cannot contain NUL; it is stored as its symbol, U+2400.
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
    Conflict,
    ConnectionRefused,
    DatabaseLocked,
    DatabaseUnusable,
    DiskFailed,
    DiskFull,
    InDoubt,
    NotReady,
    ReadOnly,
    ServerSlow,
    ServerUnreachable,
    StoreError,
)
from store.migrations.runner import check_readable

try:
    import psycopg
    from psycopg.adapt import Buffer, Dumper, Loader
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import ConnStatus, PGconn, Ping, TransactionStatus
    from psycopg.types.string import StrDumper
except ImportError as err:
    raise DatabaseUnusable(f'a PostgreSQL database needs psycopg: pip install "ringward[postgresql]"; {err}') from err

BUSY_WAIT_S = 5.0
_MARGIN = 4
"""Time by the clock, as a multiple of the processor time that a query may take."""
_LOCK_POLL_S = 0.1
_OLDEST_SERVER = 13
_DEFAULTS: Mapping[str, str | int] = {
    "connect_timeout": 5,  # seconds
    "keepalives_idle": 15,  # seconds; with the next two, a dead host is detected within half a minute
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
    "application_name": "ringward",
}
"""Connection parameters that the URL does not set."""
_SETTINGS = f"""
SET lock_timeout = {int(BUSY_WAIT_S * 1000)};
SET jit = off;
SET enable_seqscan = off;
SET work_mem = '64MB';
SET client_min_messages = warning;
SET tcp_keepalives_idle = 15;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
"""  # the server's keepalives release the lock of a dead host within half a minute
_READER_SETTINGS = """
SET default_transaction_read_only = on;
SET plan_cache_mode = force_custom_plan;
"""
# "crash" waits for the server's disk too: when one of its processes crashes, the server loses data held in memory.
_SYNCHRONOUS: Mapping[Durability, str] = {"crash": "local", "power": "on"}
_BY_STATE: tuple[tuple[str, type[StoreError]], ...] = (
    ("57014", ServerSlow),
    ("25006", ReadOnly),
    ("55P03", DatabaseLocked),  # lock_timeout
    ("40", DatabaseLocked),  # deadlock
    ("53100", DiskFull),
    ("58", DiskFailed),
    ("XX001", DatabaseUnusable),  # damaged
    ("XX002", DatabaseUnusable),
    ("42501", DatabaseUnusable),  # insufficient privilege
    ("23", Conflict),
    ("22", Conflict),  # value out of range
)
"""Errors by prefix of the SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""
_ARRAY = "(CAST(translate(?, '[]', '{}') AS BIGINT[]))"
_OF_SQLITE = re.compile(r" INDEXED BY \w+|(?<=^INSERT) OR FAIL|(?<=^UPDATE) OR FAIL")
_NOT_IN = re.compile(r"(\w+\.\w+) NOT IN \(SELECT (\w+) FROM (\w+)\)")


class _NumberLoader(Loader):
    """Loads `numeric`, the type of sums and means: integers as int and other numbers as float, like SQLite."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class _TextDumper(StrDumper):
    """Dumps text with its type, so that PostgreSQL need not guess it; replaces NUL."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\N{SYMBOL FOR NULL}") if "\0" in obj else obj)


class _FlagDumper(Dumper):
    """Dumps bool as an integer, like SQLite."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


class _Peewee(PostgresqlDatabase):
    """Generates SQL from peewee's queries, and runs them on the given `PostgresConnection`."""

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
        readonly: Whether the connection is for queries only.
        limit_s: Limit of a query in seconds; in a `snapshot` of the resulting age, no query starts. None for no limit.
        durability: See `store.database.open_writer`.
    """

    sqlite = False

    def __init__(
        self, url: str, *, readonly: bool, limit_s: float | None = None, durability: Durability = "crash"
    ) -> None:
        super().__init__(location(url), remembers=readonly)
        self._password = str(_parts(url).get("password") or "")
        self._limit_s = None if limit_s is None else limit_s * _MARGIN
        self._deadline: float | None = None
        self._transaction = 0
        self._only_reads = False
        settings = _SETTINGS + f"SET statement_timeout = {int((self._limit_s or 0) * 1000)};"
        settings += _READER_SETTINGS if readonly else f"SET synchronous_commit = {_SYNCHRONOUS[durability]};"
        try:
            self._raw = psycopg.connect(
                _conninfo(url),
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
            )
        except psycopg.Error as err:
            raise ServerUnreachable(self._message(err)) from err
        self._raw.adapters.register_dumper(str, _TextDumper)
        self._raw.adapters.register_dumper(bool, _FlagDumper)
        self._raw.adapters.register_loader("numeric", _NumberLoader)
        self._orm = _Peewee(self)
        try:
            self._script(settings)
        except BaseException:  # no other code would close the connection
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
            raise ServerSlow(f"{self.location}")
        try:
            return self._raw.execute(_native(sql), params)
        except psycopg.Error as err:
            raise self._translated(err) from err

    def _script(self, sql: str) -> None:
        """Run statements without parameters in one round trip, without preparing them."""
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
        except BaseException:  # no transaction may stay open, whatever the error
            if self.in_transaction():
                self._script("ROLLBACK")
            raise

    def _commit(self) -> None:
        try:
            self._script("COMMIT")
        except ServerUnreachable as err:
            raise InDoubt(f"{self.location}", self._transaction) from err

    @contextmanager
    def without_triggers(self) -> Iterator[None]:
        """Disable the triggers, which check a setting of the transaction."""
        self.rows("SELECT set_config('ringward.triggers', 'off', true)")
        yield
        # An error rolls back the transaction, and the setting with it.
        self.rows("SELECT set_config('ringward.triggers', 'on', true)")

    @contextmanager
    def scanning(self) -> Iterator[None]:
        """Allow sequential scans, which are fastest for statements that read every row."""
        self.rows("SELECT set_config('enable_seqscan', 'on', true)")
        yield
        self.rows("SELECT set_config('enable_seqscan', 'off', true)")

    def _generation(self) -> Hashable:
        """Return the visible transactions as text: equal text means equal data."""
        text: str = self.rows("SELECT CAST(pg_current_snapshot() AS TEXT)")[0][0]
        return text

    def usable(self) -> bool:
        """Return whether the session is open."""
        if self._raw.closed or self._only_reads:
            return False
        try:
            for _ in range(2):  # without waiting, read the server's last message, then the end of the stream
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
            return ServerUnreachable(self._message(err))
        state = err.sqlstate or ""
        for beginning, kind in _BY_STATE:
            if state.startswith(beginning):
                # A session keeps the default that it started with; the next session may be able to write.
                self._only_reads |= kind is ReadOnly
                return kind(self._message(err))
        return StoreError(self._message(err))

    def _message(self, err: psycopg.Error) -> str:
        text = " ".join(str(err).split())
        return f"{self.location}: {text.replace(self._password, '***') if self._password else text}"


@functools.lru_cache(maxsize=1024)
def _native(sql: str) -> Any:
    """Translate SQL from the common dialect to PostgreSQL's."""
    sql = _NOT_IN.sub(r"NOT EXISTS (SELECT 1 FROM \3 WHERE \2 = \1)", _OF_SQLITE.sub("", sql))
    sql = sql.replace(f"NOT IN {NUMBERS}", f"<> ALL {_ARRAY}").replace(f"IN {NUMBERS}", f"= ANY {_ARRAY}")
    first, *parts = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(parts, 1))


@functools.cache
def _parts(url: str) -> Mapping[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.Error:
        # The reason is left out, because it quotes the URL with the password.
        raise DatabaseUnusable(
            'the URL of the database is invalid; use "postgresql://user:password@host:5432/database",'
            " with %XX for characters that have a meaning in URLs"
        ) from None


def _conninfo(url: str) -> str:
    return make_conninfo("", **{**_DEFAULTS, **_parts(url), "client_encoding": "UTF8"})


def location(url: str) -> str:
    """Return the name of the database in messages: the URL without the password and the parameters.

    Raises:
        DatabaseUnusable: The URL is invalid.
    """
    parts = _parts(url)
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or parts.get('hostaddr') or ''}{port}/{parts.get('dbname') or ''}"


def connect_writer(url: str, durability: Durability, *, again: bool = False) -> Connection:
    """Connect as the only writer. Nothing but the mark of a new database is written, so `is_stored` can be called.

    With `again`, an empty database is not set up: it was in use before, and an administrator may be restoring it.

    Raises:
        StoreError: See `store.database.open_writer`.
    """
    try:
        connection = PostgresConnection(url, readonly=False, durability=durability)
    except ServerUnreachable:
        connection = _connect_again(url, durability)
    try:
        _check_server(connection)
        _lock(connection)
        if again:
            _check_kept(connection)
        else:
            _claim(connection)
    except BaseException:  # no other code would close the connection
        connection.close()
        raise
    return connection


def _connect_again(url: str, durability: Durability) -> PostgresConnection:
    """Connect after a failure, and find its cause: libpq only reports it as text, in any language.

    Raises:
        ConnectionRefused: The server accepts connections before and after this attempt, but not this one.
        ServerUnreachable: The server accepts no connections.
        DatabaseUnusable: libpq rejects the URL, and has not contacted a server.
    """
    answers = _takes_connections(url)
    try:
        return PostgresConnection(url, readonly=False, durability=durability)
    except ServerUnreachable as err:
        if _ping(url) == Ping.NO_ATTEMPT:
            raise DatabaseUnusable(err.detail) from err
        if answers and _takes_connections(url):
            raise ConnectionRefused(err.detail) from err
        raise


def _takes_connections(url: str) -> bool:
    """Return whether the server is up, and neither starting nor stopping."""
    return _ping(url) == Ping.OK


def _ping(url: str) -> int:
    return PGconn.ping(_conninfo(url).encode())


def connect_reader(url: str, limit_s: float | None, *, alone: bool = False) -> Connection:  # noqa: ARG001 - the seam's
    """Connect for reading.

    Raises:
        StoreError: See `store.database.open_reader`.
    """
    connection = PostgresConnection(url, readonly=True, limit_s=limit_s)
    try:
        _check_set_up(connection)
        check_readable(connection)
    except BaseException:  # no other code would close the connection
        connection.close()
        raise
    return connection


def _check_server(connection: Connection) -> None:
    version, encoding, schema = connection.rows(
        "SELECT current_setting('server_version_num'), current_setting('server_encoding'), current_schema()"
    )[0]
    if int(version) // 10_000 < _OLDEST_SERVER:
        raise DatabaseUnusable(f"{connection.location}: PostgreSQL {_OLDEST_SERVER} or newer is needed")
    if encoding != "UTF8":
        raise DatabaseUnusable(f"{connection.location} is encoded in {encoding}; create it with ENCODING 'UTF8'")
    if schema is None:
        raise DatabaseUnusable(f"{connection.location} has none of the schemas in its search_path; create one")


def _lock(connection: Connection) -> None:
    """Become the only writer of the schema. The lock belongs to the session and ends with it."""
    deadline = time.monotonic() + BUSY_WAIT_S  # a previous scheduler may be about to exit
    while not connection.rows(
        "SELECT pg_try_advisory_lock(hashtext('ringward'), hashtext(CAST(current_schema() AS TEXT)))"
    )[0][0]:
        if time.monotonic() > deadline:
            raise DatabaseLocked(f"{connection.location} belongs to another daemon{_holder(connection)}")
        time.sleep(_LOCK_POLL_S)


def _holder(connection: Connection) -> str:
    """Describe the session that holds the lock; empty if this user may not see it."""
    row = connection.row(
        "SELECT a.pid, COALESCE(host(a.client_addr), 'the host of the server') FROM pg_locks AS l"
        " JOIN pg_stat_activity AS a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted"
        " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND l.classid = CAST(CAST(hashtext('ringward') AS BIGINT) & 4294967295 AS OID)"
    )
    return "" if row is None else f": session {row[0]}, from {row[1]}"


def _check_set_up(connection: Connection) -> None:
    if not _is_ours(connection):
        raise NotReady(f"{connection.location} has not been set up yet")


def _check_kept(connection: Connection) -> None:
    """Check that the tables that were set up earlier still exist.

    Raises:
        DatabaseUnusable: They are gone.
    """
    try:
        _check_set_up(connection)
        check_readable(connection)
    except NotReady as err:
        reason = "its tables are gone: restore them, or restart the daemon to begin with an empty history"
        raise DatabaseUnusable(f"{connection.location}: {reason}") from err


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
    """Mark an empty schema as Ringward's.

    Raises:
        DatabaseUnusable: The schema belongs to another application.
    """
    if _is_ours(connection):
        return
    if _tables(connection, "%"):
        raise DatabaseUnusable(
            f"{connection.location} belongs to another application; give Ringward a database of its own"
        )
    connection.rows("CREATE TABLE ringward_writer AS SELECT CAST(0 AS BIGINT) AS transactions")
