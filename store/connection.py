"""One connection to the database: peewee's APSWDatabase around apsw, which carries its own SQLite.

Why apsw: SQLite 3.7.0 to 3.51.2, which most distributions still ship, can damage a WAL database when two connections
write or checkpoint in the same moment. Besides that fixed version, only the writer checkpoints: a reader has
`wal_autocheckpoint = 0` and does not checkpoint on close either.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw
from peewee import PeeweeException
from playhouse.apsw_ext import APSWDatabase

from store.errors import translated

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
T = TypeVar("T")

BUSY_WAIT_S = 5.0
PROGRESS_STEPS = 20_000  # virtual machine steps between two looks at the clock: about a millisecond

_WRITER_PRAGMAS: tuple[tuple[str, str | int], ...] = (
    ("wal_autocheckpoint", 4000),  # pages: a commit in about a hundred pays for it
    ("journal_size_limit", 64 << 20),  # bytes: what the WAL shrinks to after a burst
    ("cache_size", -32_000),  # KiB at most; it grows with use
    ("temp_store", "MEMORY"),
    ("trusted_schema", 0),
)
_READER_PRAGMAS: tuple[tuple[str, str | int], ...] = (
    ("query_only", 1),
    ("wal_autocheckpoint", 0),
    ("cache_size", -8_000),
    ("temp_store", "MEMORY"),
    ("trusted_schema", 0),
)


class Connection:
    """One connection, for one thread at a time (any thread; it keeps nothing per thread or greenlet).

    Args:
        path: The database file, which exists.
        readonly: Open without the right to write, checkpoint or change the schema.
        limit_s: Stop a query, or all queries of one `snapshot` together, after this many seconds; None: never.
    """

    def __init__(self, path: str, *, readonly: bool, limit_s: float | None = None) -> None:
        self.path = path
        self._limit_s = limit_s
        self._deadline: float | None = None
        self._in_snapshot = False
        self._readonly = readonly
        self._generation: int | None = None
        self._remembered: dict[Hashable, Any] = {}
        flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE
        # thread_safe=False: peewee would keep the connection in a threading.local, which under gevent is one per
        # greenlet. The holder of this object is the one who may use it, whatever its thread.
        self._orm: Any = APSWDatabase(path, thread_safe=False, lock_type="IMMEDIATE", timeout=BUSY_WAIT_S, flags=flags)
        try:
            self._orm.connect()
            self._raw: apsw.Connection = self._orm.connection()
            self._raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            self._raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(readonly))
            for name, value in _READER_PRAGMAS if readonly else _WRITER_PRAGMAS:
                self._raw.execute(f"PRAGMA {name} = {value}")
        except (apsw.Error, PeeweeException) as err:
            self._orm.close()
            raise translated(err, path) from err
        if limit_s is not None:
            self._raw.set_progress_handler(self._expired, PROGRESS_STEPS)

    def in_transaction(self) -> bool:
        """Whether a transaction is open. SQLite itself ends one on some errors (disk full, out of memory)."""
        return bool(self._raw.in_transaction)

    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """All rows of a query.

        Raises:
            StoreError: The subclass that says why (see store.errors).
        """
        self._start_clock()
        try:
            return self._raw.execute(sql, params).fetchall()
        except apsw.Error as err:
            raise translated(err, self.path) from err

    def row(self, sql: str, params: Sequence[Value] = ()) -> Row | None:
        """The first row of a query, or None."""
        rows = self.rows(sql, params)
        return rows[0] if rows else None

    def execute(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run a statement that changes something; returns the number of rows that it changed itself."""
        self.rows(sql, params)
        return self._raw.changes()

    def last_rowid(self) -> int:
        """The row number of the newest insert of this connection."""
        return self._raw.last_insert_rowid()

    def fetch(self, query: Any) -> list[Any]:
        """All rows of a peewee select query, in the form that the query asks for (`.tuples()`, `.namedtuples()` …)."""
        self._start_clock()
        try:
            return list(query.execute(self._orm))
        except (apsw.Error, PeeweeException) as err:
            raise translated(err, self.path) from err

    def apply(self, query: Any) -> int:
        """Run a peewee insert, update or delete query; returns the number of rows changed."""
        self._start_clock()
        try:
            query.execute(self._orm)
        except (apsw.Error, PeeweeException) as err:
            raise translated(err, self.path) from err
        return self._raw.changes()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All queries inside see the same state, and share one time limit."""
        if self.in_transaction():
            yield
            return
        self.rows("BEGIN")
        self._in_snapshot = True
        try:
            yield
        finally:
            self._in_snapshot = False
            if self.in_transaction():
                self._raw.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: BEGIN IMMEDIATE (a lock taken later could fail in the middle), nested: a savepoint."""
        begin, commit, rollback = "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"
        if self.in_transaction():
            begin, commit, rollback = "SAVEPOINT inner_part", "RELEASE inner_part", "ROLLBACK TO inner_part"
        self.rows(begin)
        try:
            yield
            self.rows(commit)
        except BaseException:
            if self.in_transaction():  # SQLite has not ended it by itself
                self.rows(rollback)
                if rollback != "ROLLBACK":
                    self.rows(commit)
            raise

    @contextmanager
    def without_triggers(self) -> Iterator[None]:
        """Statements inside fire no trigger; whoever runs them does the triggers' work, in the same transaction."""
        self._raw.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        try:
            yield
        finally:
            self._raw.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` gave for the key, again and again until anybody commits a change. Only for readers.

        Called in a snapshot, so that what is computed belongs to the generation that was looked at.
        """
        if not self._readonly:  # data_version tells of the commits of other connections only
            return compute()
        generation = self.rows("PRAGMA data_version")[0][0]
        if generation != self._generation:
            self._generation = generation
            self._remembered.clear()
        if key not in self._remembered:
            self._remembered[key] = compute()
        value: T = self._remembered[key]
        return value

    def close(self) -> None:
        """Close; a writer moves the WAL into the database first when nobody else has it open."""
        try:
            self._orm.close()
        except (apsw.Error, PeeweeException) as err:
            raise translated(err, self.path) from err

    def _start_clock(self) -> None:
        if self._limit_s is not None and not self._in_snapshot:
            self._deadline = time.monotonic() + self._limit_s

    def _expired(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline
