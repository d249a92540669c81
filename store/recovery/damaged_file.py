"""Reading the intact data of a damaged SQLite database.

Tables are read only by their keys, because indexes may be damaged as well. Unreadable pages are skipped. If the schema
cannot be read, a duplicate of the database gets the schema pages of its copy: they never move after the first migration
has created them.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

import apsw

from store.connection import Row, Value
from store.errors import DatabaseDamaged
from store.recovery.replaced_files import has_wal

_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.TooBigError, UnicodeDecodeError)
_LONGEST = 64 << 20
"""Maximum size of a value in bytes; a value that seems to be longer is damaged."""
_LAST_KEY = 2**63 - 1
_BUSY_MS = 5000
_HEADER = 100
_VERSIONS, _PAGES = slice(18, 20), slice(28, 32)
"""Fields of the header: the file format versions and the number of pages. https://sqlite.org/fileformat2.html"""


class DamagedFile:
    """A damaged database that is being read.

    Args:
        connection: a read-only connection.
        limit_s: time limit in seconds, after which nothing more is read.
    """

    def __init__(self, connection: apsw.Connection, limit_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + limit_s
        self.gaps = 0
        """Number of key ranges or single rows that could not be read."""

    def late(self) -> bool:
        """Return whether the time limit is reached."""
        return time.monotonic() > self._deadline

    def has_table(self, name: str) -> bool:
        """Return whether the schema has a table."""
        return next(iter(self._connection.execute("SELECT 1 FROM pragma_table_info(?)", [name])), None) is not None

    def columns(self, table: str, names: Iterable[str]) -> str:
        """Return columns for a query, with NULL for columns that the table lacks because its schema is older."""
        there = {name for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", [table])}
        return ", ".join(name if name in there else f"NULL AS {name}" for name in names)

    def rows(self, table: str, columns: str, first: int = 0) -> Iterator[Row]:
        """Yield the readable rows of a table from key `first` on, in key order. Each row starts with its key."""
        query = f"SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid >= ? ORDER BY rowid"  # noqa: S608 - ours
        at: int | None = first
        while at is not None and not self.late():
            try:
                for row in self._connection.execute(query, [at]):
                    if row[0] < at:
                        raise apsw.CorruptError("keys out of order")
                    at = row[0] + 1
                    yield row
                    if self.late():
                        break
                else:
                    return
            except _UNREADABLE:
                self.gaps += 1
                at = self._behind(query, at)
        if self.late():
            self.gaps += 1

    def row(self, query: str, params: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a query; None if there is none, or if it is unreadable, which is counted."""
        try:
            return next(iter(self._connection.execute(query, params)), None)
        except _UNREADABLE:
            self.gaps += 1
            return None

    def ordered(self, query: str, by: str) -> Iterator[Row]:
        """Yield the rows of a query from both ends up to the unreadable part; some rows may appear twice."""
        for order in ("ASC", "DESC"):
            try:
                yield from self._connection.execute(f"{query} ORDER BY {by} {order}")
            except _UNREADABLE:
                continue
            return
        self.gaps += 1

    def _behind(self, query: str, bad: int) -> int | None:
        """Return a key after an unreadable one from which rows are readable again; None if there is none.

        Some readable rows between two damaged pages may be skipped.
        """
        start, good = bad, bad + 1
        while not self._begins(query, good):
            bad, good = good, good + 1 + (good - start) // 8
            if good > _LAST_KEY or self.late():
                return None
        while good - bad > 1:
            middle = (bad + good) // 2
            if self._begins(query, middle):
                good = middle
            else:
                bad = middle
        return good

    def _begins(self, query: str, key: int) -> bool:
        try:
            next(iter(self._connection.execute(query, [key])), None)
        except _UNREADABLE:
            return False
        return True


@contextlib.contextmanager
def opened(path: str, copy: str, limit_s: float) -> Iterator[DamagedFile]:
    """Open a damaged database for reading; it must have no writer.

    Args:
        path: path of the database.
        copy: path of an intact database with the same schema.
        limit_s: see :class:`DamagedFile`.

    Raises:
        DatabaseDamaged: nothing can be read.
        OSError: there is no space for a duplicate.
    """
    duplicate = f"{path}.salvage"
    try:
        try:
            connection = _connect(path)
        except _UNREADABLE:
            _duplicate(path, copy, duplicate)
            connection = _connect(duplicate)
        with contextlib.closing(connection):
            yield DamagedFile(connection, limit_s)
    except apsw.Error as err:
        raise DatabaseDamaged(f"{path}: {err}") from err
    finally:
        _remove(duplicate)


def _connect(path: str) -> apsw.Connection:
    """Connect to a damaged database. Without a -wal, nothing is locked and no file is created beside it."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(path)}?immutable={int(not has_wal(path))}", flags=flags)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, _LONGEST)
        connection.execute("PRAGMA cell_size_check = 1")
        connection.execute("SELECT 1 FROM runs LIMIT 0")
    except BaseException:  # no other code would close the connection
        connection.close()
        raise
    return connection


def _duplicate(path: str, copy: str, target: str) -> None:
    """Create a duplicate of a database, with the schema pages of its copy."""
    import shutil  # only a damaged database needs it; with its decompressors, it takes half a megabyte

    with contextlib.closing(apsw.Connection(copy, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        size = int(connection.pragma("page_size"))
        pages = [row[0] for row in connection.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'")]
    _remove(target)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    shutil.copyfile(path, target)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(f"{path}-wal", f"{target}-wal")
    with open(copy, "rb") as source, open(target, "r+b") as file:
        for number in pages:
            source.seek((number - 1) * size)
            file.seek((number - 1) * size)
            file.write(source.read(size))
        file.seek(0)
        header = bytearray(file.read(_HEADER))
        header[_VERSIONS] = b"\x02\x02"  # WAL mode, because there may be a -wal
        header[_PAGES] = bytes(4)  # 0: SQLite uses the size of the file
        file.seek(0)
        file.write(header)


def _remove(path: str) -> None:
    for part in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + part)
