"""Reading the intact data of a damaged SQLite database.

Its tables are read by their keys alone, since an index may be damaged as well. Where pages cannot be read, reading goes
on behind them. Of a database whose schema cannot be read, a duplicate gets that of its copy: none of its pages moves
after the first migration has made it.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import apsw

from store.connection import Row, Value
from store.errors import Damaged

_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.TooBigError, UnicodeDecodeError)
_LONGEST = 64 << 20
"""Bytes of a value; a value that seems to be longer is damaged."""
_LAST_KEY = 2**63 - 1
_BUSY_MS = 5000
_HEADER = 100
_VERSIONS, _PAGES = slice(18, 20), slice(28, 32)
"""In the header: how it is written, and how many pages there are. https://sqlite.org/fileformat2.html"""


class Wreck:
    """A damaged database that is read.

    Args:
        connection: opened for reading only.
        limit_s: nothing more is read after so many seconds.
    """

    def __init__(self, connection: apsw.Connection, limit_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + limit_s
        self.gaps = 0
        """How many ranges of keys, or single rows, could not be read."""

    def late(self) -> bool:
        """Return whether the time limit is reached."""
        return time.monotonic() > self._deadline

    def rows(self, table: str, columns: str, first: int = 0) -> Iterator[Row]:
        """Yield the rows of a table from a key on that can be read, each behind its key, in the order of their keys."""
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
        """Return the first row of a query; None: there is none, or it cannot be read, which is counted."""
        try:
            return next(iter(self._connection.execute(query, params)), None)
        except _UNREADABLE:
            self.gaps += 1
            return None

    def ordered(self, query: str, by: str) -> Iterator[Row]:
        """Yield the rows of a query from either end up to the unreadable part; some may come twice."""
        for order in ("ASC", "DESC"):
            try:
                yield from self._connection.execute(f"{query} ORDER BY {by} {order}")
            except _UNREADABLE:
                continue
            return
        self.gaps += 1

    def _behind(self, query: str, bad: int) -> int | None:
        """Return a key after an unreadable one from which rows are readable again; None: there is none.

        Short of that may be some rows that are between two damaged pages.
        """
        begin, good = bad, bad + 1
        while not self._begins(query, good):
            bad, good = good, good + 1 + (good - begin) // 8
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
def opened(path: str, copy: str, limit_s: float) -> Iterator[Wreck]:
    """Open a damaged database without a writer for reading.

    Args:
        path: of the database.
        copy: of one with the same schema, which is well.
        limit_s: see :class:`Wreck`.

    Raises:
        Damaged: nothing can be read.
        OSError: there is no room for a duplicate.
    """
    duplicate = f"{path}.salvage"
    try:
        try:
            connection = _connect(path)
        except _UNREADABLE:
            _duplicate(path, copy, duplicate)
            connection = _connect(duplicate)
        with contextlib.closing(connection):
            yield Wreck(connection, limit_s)
    except apsw.Error as err:
        raise Damaged(f"{path}: {err}") from err
    finally:
        _remove(duplicate)


def _connect(path: str) -> apsw.Connection:
    """Without a -wal nothing is locked, and no file is made beside it."""
    alone = not os.path.exists(f"{path}-wal") or os.path.getsize(f"{path}-wal") == 0
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(path)}?immutable={int(alone)}", flags=flags)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, _LONGEST)
        connection.execute("PRAGMA cell_size_check = 1")
        connection.execute("SELECT 1 FROM runs LIMIT 0")
    except BaseException:  # close it on every error, as no other code does
        connection.close()
        raise
    return connection


def _duplicate(path: str, copy: str, target: str) -> None:
    """A duplicate of a database with the schema of its copy."""
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
        header[_VERSIONS] = b"\x02\x02"  # a -wal may belong to it
        header[_PAGES] = bytes(4)  # as many as the file has
        file.seek(0)
        file.write(header)


def _remove(path: str) -> None:
    for part in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + part)
