"""The database as the rest of the program sees it: one writer and any number of readers.

Only the scheduler opens a writer, which creates and migrates the schema. Readers cannot be opened before (`NotReady`).
The database is a file (SQLite), or a URL that begins with `postgresql://`. The PostgreSQL driver is only loaded for
such a URL. After a server was away, the next call connects again.

A reader lends a connection to each call. So there are as many connections as concurrent calls, and none belongs to a
thread: threads, gevent's pool threads and greenlets are treated alike.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from store.backends import sqlite
from store.connection import Connection, Durability, Row, Value
from store.errors import (
    DatabaseClosed,
    DatabaseUnusable,
    DiskFailed,
    InDoubt,
    ServerUnreachable,
    StoreError,
)
from store.migrations import runner
from store.recovery.replaced_files import File

QUERY_LIMIT_S = 1.0
"""Processor time of a query. It is a limit of the work, so a busy host does not reach it sooner."""
POSTGRESQL = "postgresql://"
"""Prefix of a server's URL."""


class Database(ABC):
    """A database for queries, created by `open_writer` and `open_reader`.

    Each method can raise any `StoreError`; the docstrings only mention special ones.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        """Name of the database in messages: a path, or a URL without its password."""

    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a query."""
        with self.lent() as connection:
            return connection.rows(sql, params)

    def row(self, sql: str, params: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a query; None if there are no rows."""
        with self.lent() as connection:
            return connection.row(sql, params)

    def execute(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run a statement that changes data; return the number of changed rows. A reader raises `ReadOnly`."""
        with self.lent() as connection:
            return connection.execute(sql, params)

    def fetch(self, query: Any) -> list[Any]:
        """Return all rows of a peewee select query."""
        with self.lent() as connection:
            return connection.fetch(query)

    def apply(self, query: object) -> int:
        """Run a peewee insert, update or delete query; return the number of changed rows."""
        with self.lent() as connection:
            return connection.apply(query)

    def has_backlog(self) -> bool:
        """Return whether a large part of the WAL has not been checkpointed."""
        with self.lent() as connection:
            return connection.has_backlog()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Lend a connection whose queries all see the same state and share one limit."""
        with self.lent() as connection, connection.snapshot():
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection whose changes are stored together or not at all. A nested one is part of the outer one."""
        with self.lent() as connection, connection.transaction():
            yield connection

    def is_stored(self, doubt: InDoubt) -> bool:
        """Return whether that transaction was committed after all. Ask a writer before it writes anything else."""
        with self.lent() as connection:
            return connection.is_stored(doubt.transaction)

    @abstractmethod
    def close(self) -> None:
        """Close all connections; later calls raise `DatabaseClosed`."""

    def lent(self) -> AbstractContextManager[Connection]:
        """Lend a connection. It is in no transaction other than the caller's own."""
        return self._lent()

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        connection = self._take()
        try:
            yield connection
        except (DatabaseUnusable, DiskFailed, ServerUnreachable, InDoubt):
            self._give_back(connection, keep=False)  # the file may have been replaced, or the server be gone
            raise
        except BaseException:  # including GreenletExit: the connection is intact
            self._give_back(connection, keep=True)
            raise
        self._give_back(connection, keep=True)

    @abstractmethod
    def _take(self) -> Connection: ...

    @abstractmethod
    def _give_back(self, connection: Connection, *, keep: bool) -> None: ...


class FilesListener:
    """Listener for removed database files. The default methods do nothing."""

    def before_replace(self, file: File) -> None:
        """Called with the file that is about to become the database, because its own file was removed."""

    def rescued(self, text: str) -> None:
        """Called after the database files were restored, with a message for the administrator."""


class _Writer(Database):
    """One connection. After a thread has taken it over, only that thread may use it, because of its transactions."""

    def __init__(self, connect: Callable[[bool], Connection]) -> None:
        """Open the connection.

        `connect` gets a flag, True for repeated calls: it then neither creates nor marks the database.
        """
        self._connect = connect
        self._connection: Connection | None = connect(False)
        super().__init__(self._connection.location)
        self._owner: int | None = None
        self._borrowed = False
        self._listener = FilesListener()

    def own(self, listener: FilesListener) -> None:
        """Give the calling thread exclusive use of this database; see :func:`take_over`."""
        self._owner = threading.get_ident()
        self._listener = listener

    def close(self) -> None:
        connection = self._mine()
        self._connection = None
        connection.close()

    def _mine(self) -> Connection:
        if self._connection is None:
            raise DatabaseClosed(f"{self.location}")
        if self._owner is not None and self._owner != threading.get_ident():
            raise StoreError(f"{self.location} belongs to the store thread; use submit")
        return self._connection

    def lent(self) -> AbstractContextManager[Connection]:
        """Lend the connection. Within a transaction it is never replaced: the changes so far exist only there."""
        return nullcontext(self._mine()) if self._borrowed else self._lent()

    def _take(self) -> Connection:
        connection = self._mine()
        if not connection.usable():
            rescued = connection.rescue(self._listener.before_replace)
            moved = rescued is not None and rescued.moved
            if not moved:
                connection.close()
            self._connection = self._connect(True)
            if moved:
                connection.close()
            connection = self._connection
            if rescued is not None:
                self._listener.rescued(rescued.text)
        self._borrowed = True
        return connection

    def _give_back(self, connection: Connection, *, keep: bool) -> None:  # noqa: ARG002 - the seam's signature
        """Keep the connection in any case: the next call checks whether it is usable."""
        self._borrowed = False


class _Reader(Database):
    """A stack of idle connections. It needs no lock, because the operations of `deque` are atomic."""

    def __init__(self, location: str, connect: Callable[[], Connection]) -> None:
        super().__init__(location)
        self._connect = connect
        self._idle: deque[Connection] = deque()
        self._closed = False
        self._pid = os.getpid()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Connection:
        if self._closed:
            raise DatabaseClosed(f"{self.location}")
        if os.getpid() != self._pid:
            raise StoreError(f"{self.location} was opened before the fork; open it in the child")
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connect()
            if connection.usable():
                return connection
            connection.close()

    def _give_back(self, connection: Connection, *, keep: bool) -> None:
        if keep and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()


class _Backend(Protocol):
    """A module for one kind of database."""

    def connect_writer(self, target: str, durability: Durability, /, *, again: bool) -> Connection: ...

    def connect_reader(self, target: str, limit_s: float | None, /, *, alone: bool) -> Connection: ...

    def location(self, target: str, /) -> str: ...


def _backend(target: str) -> _Backend:
    if target.startswith(POSTGRESQL):
        from store.backends import postgres  # only loaded when needed: the driver takes 0.1 s and 15 MB

        return postgres
    return sqlite


def load_driver(target: str) -> None:
    """Load the driver that this database needs.

    Raises:
        StoreError: The driver is not installed.
    """
    _backend(target)


def open_writer(target: str, durability: Durability = "crash") -> Database:
    """Open the database for writing; create missing parts, and bring the schema up to date.

    Args:
        target: A file in an existing directory, or the URL of a PostgreSQL database.
        durability: With "crash", a crash of any process loses nothing, but a power failure may lose the last
            transactions. With "power", an acknowledged transaction is on the disk.

    Raises:
        SchemaTooNew: A newer release wrote the database.
        DatabaseUnusable: The database is damaged, belongs to another application, is not a database, or cannot be
            opened.
        DatabaseLocked: Another process is writing and does not stop.
        ServerUnreachable: The server cannot be reached (`ConnectionRefused`: it rejects the connection).
    """
    backend = _backend(target)
    writer = _Writer(lambda again: backend.connect_writer(target, durability, again=again))
    try:
        with writer.lent() as connection:
            runner.migrate(connection)
    except BaseException:  # no other code would close the writer
        writer.close()
        raise
    return writer


def open_reader(target: str, limit_s: float | None = QUERY_LIMIT_S, *, alone: bool = False) -> Database:
    """Open the database for reading, from any number of threads or greenlets. A reader never changes anything.

    Every query, or every snapshot as a whole, is limited (`QueryTimeout`).

    Args:
        target: A file or a URL, as for `open_writer`.
        limit_s: Seconds of processor time; None for no limit. A server does not report that time, so its queries may
            take several times as long by the clock (`ServerSlow`).
        alone: No other process opens the file. It can then be read on a full or read-only disk.

    Raises:
        NotReady: The database is missing, empty or not migrated yet.
        ServerUnreachable: Its server cannot be reached.
        SchemaTooNew: A newer release wrote the database in a form that this release cannot read.
        DatabaseUnusable: The database is damaged, belongs to another application, is not a database, or cannot be
            opened.
    """
    backend = _backend(target)
    reader = _Reader(backend.location(target), lambda: backend.connect_reader(target, limit_s, alone=alone))
    reader.rows("SELECT 1")
    return reader


def check_writable(database: Database) -> None:
    """Check that a writer of this release could open a database that a reader has open.

    Raises:
        SchemaTooNew: A newer release wrote the database in a form to which this release must not write, although
            it can read it.
        StoreError: The database cannot be read.
    """
    with database.snapshot() as view:
        runner.check_writable(view)


def take_over(database: Database, listener: FilesListener) -> None:
    """Give the calling thread exclusive use of a writer.

    Args:
        database: The writer.
        listener: Called in the thread after the database files were removed.

    Raises:
        TypeError: `database` is not a writer.
    """
    if not isinstance(database, _Writer):
        raise TypeError("only a writer can be taken over")
    database.own(listener)
