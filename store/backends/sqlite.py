"""SQLite: peewee's APSWDatabase with apsw, which contains its own SQLite.

SQLite 3.7.0 to 3.51.2, which most distributions still ship, can damage a WAL database if two connections write or
checkpoint at the same moment. apsw has a fixed version. In addition, only the writer checkpoints: a reader has
`wal_autocheckpoint = 0` and does not checkpoint on close either.

The file, its -wal and its -shm have mode 0600 under any umask: SQLite gives the last two the owner and mode of the
first. In a directory of mode 0710, its group may read them (0640). Readers that cannot write the -shm read it as it is.
While no writer has it open, they build their own index of the WAL (https://sqlite.org/wal.html#readonly).
"""

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import apsw
from peewee import PeeweeException
from playhouse.apsw_ext import APSWDatabase

from store.connection import Connection, Durability, Row, Value
from store.errors import (
    Conflict,
    DatabaseClosed,
    DatabaseDamaged,
    DatabaseLocked,
    DatabaseNotOpened,
    DatabaseUnusable,
    DiskFailed,
    DiskFull,
    NotReady,
    QueryTimeout,
    ReadOnly,
    StoreError,
)
from store.migrations.runner import check_readable
from store.recovery.replaced_files import NO_FILE, DatabaseFiles, File, FileRepair, file_of, files_of, has_wal, rescue

APPLICATION_ID = 0x52575244  # "RWRD", in the header of the file: https://sqlite.org/pragma.html#pragma_application_id
BUSY_WAIT_S = 5.0
_WAL_PAUSE_S = 0.01
_READER_STATEMENTS = 100
_WRITER_STATEMENTS = 400
"""Size of the driver's cache of the most recently used statements.

The writer's cache must also keep rarer statements, even after a transaction with the maximum number of events.
"""
_FOR_READERS = 0o710
"""Mode of a directory whose files its group may read, as in :mod:`logring.logfile.file_owner`."""
PROGRESS_STEPS = 20_000  # virtual machine steps between two checks of the limit: about a millisecond

_WRITER_PRAGMAS: tuple[tuple[str, str | int], ...] = (
    ("journal_size_limit", 64 << 20),  # bytes to which the WAL shrinks after a burst
    ("cache_size", -32_000),  # maximum in KiB; the cache grows with use
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
# One entry for each SQLite result code that matters to callers (https://sqlite.org/rescode.html).
_BY_CODE: tuple[tuple[type[apsw.Error], type[StoreError]], ...] = (
    (apsw.FullError, DiskFull),  # SQLITE_FULL: ENOSPC, EDQUOT
    (apsw.IOError, DiskFailed),  # SQLITE_IOERR: EIO and similar errors
    (apsw.BusyError, DatabaseLocked),
    (apsw.LockedError, DatabaseLocked),
    (apsw.InterruptError, QueryTimeout),
    (apsw.ReadOnlyError, ReadOnly),
    (apsw.ConstraintError, Conflict),
    (apsw.NotADBError, DatabaseDamaged),
    (apsw.CorruptError, DatabaseDamaged),
    (apsw.CantOpenError, DatabaseUnusable),
    (apsw.PermissionsError, DatabaseUnusable),
    (apsw.ConnectionClosedError, DatabaseClosed),
)


_FOR_THE_WRITER = frozenset(
    {apsw.SQLITE_READONLY_DIRECTORY, apsw.SQLITE_READONLY_CANTINIT, apsw.SQLITE_READONLY_RECOVERY}
)
"""Errors of a reader that finds no usable -shm and may not create one."""

PAGES_BESIDE = 500
"""Number of new pages in the WAL at which the thread runs a checkpoint."""
PAGES_OF_BACKLOG = 2000
"""Number of pages in the WAL at which bulk work lets the thread checkpoint all of them."""
PAGES_BY_WRITER = 4000
"""Number of pages in the WAL at which the writer itself checkpoints, if at most 2 * `PAGES_BESIDE` are left."""
MOST_PAGES = 64_000
"""Number of pages at which the writer checkpoints, however many are left."""


class UnfreezeWait:
    """Waits for a frozen file system at a point where waiting is harmless.

    SQLite maps its -shm file for writing. A thread that writes to such a page while the file system is frozen
    (fsfreeze(8), or a snapshot of the host) waits in the kernel. Meanwhile it holds the memory lock of the process, so
    every other thread waits as soon as it needs new memory. An empty write to a file waits for the same event, but
    without a lock. So each transaction is preceded by an empty write.

    Args:
        path: The database file. Its -wal is opened instead, because SQLite holds no lock there that closing could drop.
    """

    def __init__(self, path: str) -> None:
        self._name = f"{path}-wal"
        self._fd = -1

    def wait(self) -> None:
        """Wait until the file system accepts or refuses writes. The file is not changed."""
        with suppress(OSError):  # ENOENT: the file does not exist yet; EROFS, EACCES, EMFILE
            if self._fd < 0:
                self._fd = os.open(self._name, os.O_WRONLY | os.O_CLOEXEC)
            os.pwrite(self._fd, b"", 0)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Checkpoints:
    """A thread that checkpoints the WAL of one writer, so that the two fsyncs of a checkpoint delay no commit.

    The thread starts when it is first needed. A passive checkpoint neither waits nor blocks. If the writer commits
    during a checkpoint, some pages are left over, and the WAL grows instead of restarting. So when the WAL has many
    pages, the writer runs a checkpoint itself as soon as the thread has left only a few. Bulk work without a deadline
    waits for the thread instead.

    Args:
        writer: The writer's connection, which reports each commit.
        path: The database file.
    """

    def __init__(self, writer: apsw.Connection, path: str) -> None:
        self._path = path
        self._file = file_of(path)
        self._thread: threading.Thread | None = None
        self._due = threading.Event()
        self._closing = False
        self._pages = 0
        self._requested_pages = 0
        self._moved = 0
        self._move_all = False
        writer.set_wal_hook(self._committed)

    def has_backlog(self) -> bool:
        """Return whether a large part of the WAL has not been checkpointed."""
        self._move_all = self._pages >= PAGES_OF_BACKLOG
        return self._move_all

    def _committed(self, writer: apsw.Connection, name: str, pages: int) -> int:
        if pages < self._requested_pages:  # the WAL was restarted
            self._requested_pages = self._moved = 0
        self._pages = pages
        few = pages - self._moved <= 2 * PAGES_BESIDE
        if self._move_all:
            self._move_all = False
            self._ask(pages)
        elif pages >= MOST_PAGES or (few and pages >= PAGES_BY_WRITER):
            # An error does not concern this commit, which is complete. Either the thread is checkpointing, or the disk
            # is full, which the next write reports.
            with contextlib.suppress(apsw.Error):
                writer.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
        elif pages >= self._requested_pages + PAGES_BESIDE:
            self._ask(pages)
        return apsw.SQLITE_OK

    def _ask(self, pages: int) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started now; try again after a later commit
                return
            self._thread = thread
        self._requested_pages = pages
        self._due.set()

    def _work(self) -> None:
        thaw = UnfreezeWait(self._path)
        thaw.wait()
        if file_of(self._path) != self._file:  # another file has the name: the writer detects that and is reopened
            return
        connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        with contextlib.closing(thaw), contextlib.closing(connection):
            connection.wal_autocheckpoint(0)
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()  # opens the WAL
            while True:
                self._due.wait()
                self._due.clear()
                if self._closing:
                    return
                thaw.wait()
                # Errors such as a full disk are ignored here: the writer gets and reports them too.
                with contextlib.suppress(apsw.Error):
                    _, self._moved = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        """Stop the thread. The writer closes its connection afterwards, so that it is the last one."""
        self._closing = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()


class SqliteConnection(Connection):
    """One connection to a file.

    Args:
        path: The database file, which must exist.
        readonly: Whether the connection cannot write, checkpoint or change the schema.
        limit_s: Processor time of a query, or of all queries in one `snapshot` together; None for no limit. The queries
            of a snapshot run in one thread.
        immutable: Whether no connection changes the file, which then needs neither locks nor files beside it.
    """

    sqlite = True
    _ATTEMPT = "attempt"  # a progress handler beside that of the time limit

    def __init__(self, path: str, *, readonly: bool, limit_s: float | None = None, immutable: bool = False) -> None:
        super().__init__(path, remembers=readonly)  # data_version only reflects commits of other connections
        self._reader = readonly
        self._limit_s = limit_s
        self._until_s: float | None = None
        self._in_snapshot = False
        self._checkpoints: Checkpoints | None = None
        self._thaw = UnfreezeWait(path)
        self._thaw.wait()
        self._files: DatabaseFiles | None = None
        self._closed = False
        flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE
        if immutable:  # https://sqlite.org/uri.html#uriimmutable
            flags |= apsw.SQLITE_OPEN_URI
        # thread_safe=False, because peewee would keep the connection in a threading.local, which exists per greenlet
        # under gevent. The owner of this object may use it from any thread.
        self._orm: Any = APSWDatabase(
            f"file:{quote(path)}?immutable=1" if immutable else path,
            thread_safe=False,
            lock_type="IMMEDIATE",
            timeout=BUSY_WAIT_S,
            flags=flags,
            statementcachesize=_READER_STATEMENTS if readonly else _WRITER_STATEMENTS,
        )
        try:
            self._orm.connect()
            self._raw: apsw.Connection = self._orm.connection()
            self._raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            self._raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(readonly))
            for name, value in _READER_PRAGMAS if readonly else _WRITER_PRAGMAS:
                self._raw.execute(f"PRAGMA {name} = {value}")
        except (apsw.Error, PeeweeException) as err:
            self._orm.close()
            self._thaw.close()
            raise translated(err, path, reader=readonly) from err
        if not readonly:
            self._checkpoints = Checkpoints(self._raw, path)
        if limit_s is not None:
            self._raw.set_progress_handler(self._expired, PROGRESS_STEPS)

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, as SQLite knows it."""
        return bool(self._raw.in_transaction)

    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a query of the file."""
        self._start_clock()
        try:
            return self._raw.execute(sql, params).fetchall()
        except apsw.Error as err:
            raise translated(err, self.location, reader=self._reader) from err

    def attempt(self, sql: str, params: Sequence[Value], most_steps: int) -> list[Row] | None:
        """Return all rows of a query, or None when it is stopped after a little more than `most_steps` steps.

        SQLite calls all progress handlers whenever one of them is due. The first call can come early, because steps
        of earlier statements count. So this counts the calls and ignores the first one.
        """
        between = min(max(1, most_steps // 32), PROGRESS_STEPS)
        steps_left = -(-most_steps // between)

        def give_up() -> bool:
            nonlocal steps_left
            steps_left -= 1
            return steps_left < 0

        self._raw.set_progress_handler(give_up, between, id=self._ATTEMPT)
        try:
            return self.rows(sql, params)
        except QueryTimeout:
            if steps_left < 0:
                return None
            raise
        finally:
            self._raw.set_progress_handler(None, id=self._ATTEMPT)

    def execute(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run a statement on the file; return the number of rows that it changed."""
        self.rows(sql, params)
        return self._raw.changes()

    def fetch(self, query: Any) -> list[Any]:
        """Return all rows of a peewee query, in the form that the query asks for."""
        self._start_clock()
        try:
            return list(query.execute(self._orm))
        except (apsw.Error, PeeweeException) as err:
            raise translated(err, self.location, reader=self._reader) from err

    def apply(self, query: Any) -> int:
        """Run a peewee query that changes rows; return their number."""
        self._start_clock()
        try:
            query.execute(self._orm)
        except (apsw.Error, PeeweeException) as err:
            raise translated(err, self.location, reader=self._reader) from err
        return self._raw.changes()

    def _begin_snapshot(self) -> None:
        self.rows("BEGIN")
        self._in_snapshot = True

    def _end_snapshot(self) -> None:
        self._in_snapshot = False
        if self.in_transaction():
            self._raw.execute("ROLLBACK")

    def _begin(self) -> None:
        self.rows("BEGIN IMMEDIATE")  # taking the lock later could fail in the middle of the transaction

    def _commit(self) -> None:
        self.rows("COMMIT")

    @contextmanager
    def without_triggers(self) -> Iterator[None]:
        """Disable the triggers of this connection."""
        self._raw.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        try:
            yield
        finally:
            self._raw.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)

    def has_backlog(self) -> bool:
        """Return whether a large part of the WAL has not been checkpointed."""
        return self._checkpoints is not None and self._checkpoints.has_backlog()

    def _generation(self) -> Hashable:
        number: int = self.rows("PRAGMA data_version")[0][0]
        return number

    def know_files(self) -> None:
        """Remember the files. From now on the connection is usable only while they keep their names."""
        self.rows("SELECT 1 FROM sqlite_master LIMIT 1")  # creates the -wal and the -shm
        self._files = files_of(self.location)

    def usable(self) -> bool:
        """Return whether the connection is open, and its files still have their names."""
        return not self._closed and (self._files is None or self._files == files_of(self.location))

    def rescue(self, before_replace: Callable[[File], None]) -> FileRepair | None:
        """Restore database files that other programs removed; return None if there is nothing to do."""
        if self._closed or self._files is None:
            return None
        try:
            return rescue(self._raw, self.location, self._files, before_replace)
        except OSError as err:
            raise DatabaseUnusable(f"{self.location}: {err.strerror}") from err

    def is_stored(self, transaction: int) -> bool:  # noqa: ARG002 - the seam's signature
        """Return False. SQLite always reports the result of a commit, so none is in doubt."""
        return False

    def close(self) -> None:
        """Close the file."""
        if self._closed:
            return
        self._closed = True
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._thaw.wait()
        self._thaw.close()
        try:
            self._orm.close()
        except (apsw.Error, PeeweeException) as err:
            raise translated(err, self.location, reader=self._reader) from err

    def _start_clock(self) -> None:
        if not self._raw.in_transaction:
            self._thaw.wait()
        if self._limit_s is not None and not self._in_snapshot:
            self._until_s = time.thread_time() + self._limit_s

    def _expired(self) -> bool:
        return self._until_s is not None and time.thread_time() > self._until_s


def location(path: str) -> str:
    """Return the name of the database in messages: its path."""
    return path


def connect_writer(path: str, durability: Durability, *, again: bool = False) -> Connection:
    """Open the file for writing. If it does not exist, create it, but not with `again`.

    Raises:
        DatabaseDamaged: With `again`, the file is gone.
        StoreError: See `store.database.open_writer`.
    """
    if again and file_of(path) == NO_FILE:
        raise DatabaseDamaged(f"{path} is gone")
    try:
        _make_private(path)
    except OSError as err:  # ENOENT (no directory), EACCES, EROFS, EISDIR, ENOSPC
        raise DatabaseUnusable(f"{path}: {err.strerror}") from err
    connection = SqliteConnection(path, readonly=False)
    try:
        _claim(connection)
        _use_wal(connection)
        connection.rows(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
        connection.know_files()
    except BaseException:  # no other code would close the connection
        connection.close()
        raise
    return connection


def _use_wal(connection: SqliteConnection) -> None:
    """Switch to WAL mode.

    SQLite answers with SQLITE_BUSY at once, without its busy time-out, if another connection is switching the mode.
    """
    until_s = time.monotonic() + BUSY_WAIT_S
    while True:
        try:
            connection.rows("PRAGMA journal_mode = WAL")
        except DatabaseLocked:
            if time.monotonic() >= until_s:
                raise
            time.sleep(_WAL_PAUSE_S)
        else:
            return


def connect_reader(path: str, limit_s: float | None, *, alone: bool = False) -> Connection:
    """Open the file for reading. If this process is `alone`, no file is created beside one without a -wal.

    Raises:
        StoreError: See `store.database.open_reader`.
    """
    try:
        if os.stat(path).st_size == 0:
            raise NotReady(f"{path} is empty")
    except FileNotFoundError as err:
        raise NotReady(f"{path} does not exist") from err
    except OSError as err:
        raise DatabaseUnusable(f"{path}: {err.strerror}") from err
    immutable = alone and not has_wal(path)
    connection = SqliteConnection(path, readonly=True, limit_s=limit_s, immutable=immutable)
    try:
        _check_set_up(connection)
        check_readable(connection)
        connection.know_files()
    except BaseException:  # no other code would close the connection
        connection.close()
        raise
    return connection


def translated(error: BaseException, path: str, *, reader: bool = False) -> StoreError:
    """Return the store error for an error of apsw or peewee, on the connection of a `reader` or a writer."""
    cause = getattr(error, "orig", error)  # peewee's attribute for the wrapped error
    if reader and (
        getattr(cause, "extendedresult", 0) in _FOR_THE_WRITER
        or (isinstance(cause, apsw.CantOpenError) and _waits_for_the_writer(path))
    ):
        return DatabaseNotOpened(f"{path}")
    if isinstance(cause, apsw.IOError) and getattr(cause, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        return DiskFull(f"{path}: no room for its -shm")
    for code, kind in _BY_CODE:
        if isinstance(cause, code):
            return kind(f"{path}: {cause}")
    return StoreError(f"{path}: {type(cause).__name__}: {cause}")


def _waits_for_the_writer(path: str) -> bool:
    """Return whether a reader may read the existing files, but may not create the missing ones.

    A writer creates the files one after the other.
    """
    parts = (path, f"{path}-wal", f"{path}-shm")
    readable = all(os.access(part, os.R_OK) for part in parts if os.path.exists(part))
    return readable and not os.access(os.path.dirname(path) or ".", os.W_OK)


def _make_private(path: str) -> None:
    """Create the file with permissions that suit its directory, or set them on existing files.

    An existing file is not opened: closing any descriptor of a file drops all of this process's POSIX locks on it,
    including the locks of other SQLite connections.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    directory = os.stat(os.path.dirname(path) or ".")
    shared = stat.S_IMODE(directory.st_mode) == _FOR_READERS
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError):
            status = os.stat(name)
            mode = 0o600
            if shared:
                with suppress(PermissionError):  # this process is not in the group: the file stays private
                    if status.st_gid != directory.st_gid:
                        os.chown(name, -1, directory.st_gid)
                    mode = 0o640
            if stat.S_IMODE(status.st_mode) != mode:  # the umask may have cleared bits
                os.chmod(name, mode)


def _application_id(connection: Connection) -> int:
    row = connection.row("PRAGMA application_id")
    return int(row[0]) if row else 0


def _claim(connection: Connection) -> None:
    """Mark an empty database as Ringward's.

    Raises:
        DatabaseUnusable: The database belongs to another application.
    """
    if connection.row("SELECT 1 FROM sqlite_master LIMIT 1") is None and _application_id(connection) == 0:
        connection.rows(f"PRAGMA application_id = {APPLICATION_ID}")
    _check_application(connection)


def _check_set_up(connection: Connection) -> None:
    if _application_id(connection) == 0:
        raise NotReady(f"{connection.location} has not been set up yet")
    _check_application(connection)


def _check_application(connection: Connection) -> None:
    if _application_id(connection) != APPLICATION_ID:
        raise DatabaseUnusable(f"{connection.location} belongs to another application")
