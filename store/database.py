"""The database as the rest of the package sees it: one writer, any number of readers.

Only the scheduler opens a writer, which creates and migrates the file. Readers wait for that (`NotReady`).
The file, its -wal and its -shm are 0600 under any umask: SQLite gives the latter two the mode of the first.

A reader lends a connection to each call and takes it back afterwards, so there are as many connections as there
are calls at the same time, and none belongs to a thread: real threads, gevent's pool threads and greenlets are alike.
"""

import os
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from store.connection import Connection, Row, Value
from store.errors import Closed, DiskFailed, NotReady, StoreError, Unusable
from store.migrations import check_readable, migrate

APPLICATION_ID = 0x52575244  # "RWRD", in the header of the file: https://sqlite.org/pragma.html#pragma_application_id
QUERY_LIMIT_S = 1.0
NOT_READY_POLL_S = 0.05

Durability = Literal["crash", "power"]


class Database(ABC):
    """What queries run against; made by `open_writer` and `open_reader`.

    Each method may raise any `StoreError`; the ones below name only what is special.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """All rows of a query."""
        with self._lent() as connection:
            return connection.rows(sql, params)

    def row(self, sql: str, params: Sequence[Value] = ()) -> Row | None:
        """The first row of a query, or None."""
        with self._lent() as connection:
            return connection.row(sql, params)

    def execute(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run a statement that changes something; returns the number of rows changed (`ReadOnly` for a reader)."""
        with self._lent() as connection:
            return connection.execute(sql, params)

    def fetch(self, query: Any) -> list[Any]:
        """All rows of a peewee select query."""
        with self._lent() as connection:
            return connection.fetch(query)

    def apply(self, query: Any) -> int:
        """Run a peewee insert, update or delete query; returns the number of rows changed."""
        with self._lent() as connection:
            return connection.apply(query)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection whose queries all see the same state, and share one time limit."""
        with self._lent() as connection, connection.snapshot():
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection whose changes are stored together or not at all; inside another one: a part of that."""
        with self._lent() as connection, connection.transaction():
            yield connection

    @abstractmethod
    def close(self) -> None:
        """Close all connections; later calls raise `Closed`."""

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        connection = self._take()
        try:
            yield connection
        except (Unusable, DiskFailed):
            self._give_back(connection, keep=False)  # the file may have been replaced: begin afresh
            raise
        except BaseException:
            self._give_back(connection, keep=True)
            raise
        self._give_back(connection, keep=True)

    @abstractmethod
    def _take(self) -> Connection: ...

    @abstractmethod
    def _give_back(self, connection: Connection, *, keep: bool) -> None: ...


class _Writer(Database):
    """One connection. Once a thread has taken it over, no other may use it: it could land in that one's transaction."""

    def __init__(self, path: str, connection: Connection) -> None:
        super().__init__(path)
        self._connection: Connection | None = connection
        self._owner: int | None = None

    def own(self) -> None:
        """From now on only the calling thread may use this database."""
        self._owner = threading.get_ident()

    def close(self) -> None:
        connection = self._take()
        self._connection = None
        connection.close()

    def _take(self) -> Connection:
        if self._connection is None:
            raise Closed(f"({self.path})")
        if self._owner is not None and self._owner != threading.get_ident():
            raise StoreError(f"({self.path} belongs to the store thread; use submit)")
        return self._connection

    def _give_back(self, connection: Connection, *, keep: bool) -> None:
        """The writer's connection stays, whatever happened."""


class _Reader(Database):
    """Idle connections in a stack. `deque` and the int are enough: both are changed by single atomic operations."""

    def __init__(self, path: str, limit_s: float | None) -> None:
        super().__init__(path)
        self._limit_s = limit_s
        self._idle: deque[Connection] = deque()
        self._closed = False
        self._pid = os.getpid()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Connection:
        if self._closed:
            raise Closed(f"({self.path})")
        if os.getpid() != self._pid:
            raise StoreError(f"({self.path} was opened before the fork; open it in the child)")
        try:
            return self._idle.pop()
        except IndexError:
            return _connect_reader(self.path, self._limit_s)

    def _give_back(self, connection: Connection, *, keep: bool) -> None:
        if keep and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()


def open_writer(path: str, durability: Durability = "crash") -> Database:
    """Open the database for writing; create it when it is absent, and bring its schema up to date.

    Args:
        path: The file; its directory exists.
        durability: "crash": a crash of any process loses nothing, a power failure may lose the last transactions.
            "power": a transaction that was acknowledged is on the disk.

    Raises:
        SchemaTooNew: A newer release wrote it.
        Unusable: It is no database, damaged, another application's, or cannot be opened.
        Busy: Another process is writing and does not stop.
    """
    try:
        _make_private(path)
    except OSError as err:  # ENOENT (no directory), EACCES, EROFS, EISDIR, ENOSPC
        raise Unusable(f"({path}: {err.strerror})") from err
    connection = Connection(path, readonly=False)
    try:
        _claim(connection)
        connection.rows("PRAGMA journal_mode = WAL")
        connection.rows(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return _Writer(path, connection)


def open_reader(path: str, wait_s: float = 0.0, limit_s: float | None = QUERY_LIMIT_S) -> Database:
    """Open the database for reading, from any number of threads or greenlets; never changes anything.

    Every query, or every snapshot as a whole, is limited in time (`QueryTimeout`).

    Args:
        path: The file.
        wait_s: How long to wait for a scheduler that is still creating or migrating it.
        limit_s: That limit in seconds; None: without.

    Raises:
        NotReady: It is absent, empty, or older than this release and not migrated yet.
        SchemaTooNew: A newer release wrote it, in a form that this one cannot read.
        Unusable: It is no database, damaged, another application's, or cannot be opened.
    """
    reader = _Reader(path, limit_s)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            reader.rows("SELECT 1")
            return reader
        except NotReady:
            if time.monotonic() >= deadline:
                raise
        time.sleep(NOT_READY_POLL_S)


def take_over(database: Database) -> None:
    """Make the calling thread the only one that may use a writer.

    Raises:
        TypeError: It is no writer.
    """
    if not isinstance(database, _Writer):
        raise TypeError("only a writer can be taken over")
    database.own()


def _connect_reader(path: str, limit_s: float | None) -> Connection:
    try:
        if os.stat(path).st_size == 0:
            raise NotReady(f"({path} is empty)")
    except FileNotFoundError as err:
        raise NotReady(f"({path} does not exist)") from err
    except OSError as err:
        raise Unusable(f"({path}: {err.strerror})") from err
    connection = Connection(path, readonly=True, limit_s=limit_s)
    try:
        _check_set_up(connection)
        check_readable(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: str) -> None:
    """Create the file with mode 0600, or give that mode to what is there.

    An existing file is not opened: closing any descriptor of a file drops all of this process's POSIX locks on it,
    those of other SQLite connections too.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        for name in (path, f"{path}-wal", f"{path}-shm"):
            try:
                if stat.S_IMODE(os.stat(name).st_mode) != 0o600:
                    os.chmod(name, 0o600)
            except FileNotFoundError:
                continue
    else:
        try:
            os.fchmod(fd, 0o600)  # the umask may have taken bits away
        finally:
            os.close(fd)


def _application_id(connection: Connection) -> int:
    row = connection.row("PRAGMA application_id")
    return int(row[0]) if row else 0


def _claim(connection: Connection) -> None:
    """Write our mark into an empty database; refuse another application's."""
    if connection.row("SELECT 1 FROM sqlite_master LIMIT 1") is None and _application_id(connection) == 0:
        connection.rows(f"PRAGMA application_id = {APPLICATION_ID}")
    _check_application(connection)


def _check_set_up(connection: Connection) -> None:
    if _application_id(connection) == 0:
        raise NotReady(f"({connection.path} was not set up yet)")
    _check_application(connection)


def _check_application(connection: Connection) -> None:
    if _application_id(connection) != APPLICATION_ID:
        raise Unusable(f"({connection.path} belongs to another application)")
