"""Copies of a SQLite database, made while others read and write it."""

import contextlib
import os

import apsw

from store.errors import DatabaseUnusable, DiskFailed, DiskFull, StoreError

_CHECKED = "ok"
_BUSY_MS = 5000


def duplicate(source: str, target: str) -> None:
    """Copy a consistent state of a database with SQLite's backup interface, and check the copy.

    Writers of the source can continue meanwhile. The copy is one file with mode 0600, and is on the disk on return.

    Args:
        source: the database file, which is opened read-only.
        target: path of the copy; it must not exist yet.

    Raises:
        DatabaseUnusable: the source cannot be read, or the copy is damaged.
        DiskFull, DiskFailed: the copy cannot be written.
        StoreError: any other error of SQLite.
        OSError: the file of the copy cannot be created.
    """
    try:
        reading = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as err:
        raise DatabaseUnusable(f"{source}: {err}") from err
    with contextlib.closing(reading):
        reading.set_busy_timeout(_BUSY_MS)
        copy_from(reading, target)


def copy_from(reading: apsw.Connection, target: str) -> None:
    """Like :func:`duplicate`, but copy from an open connection, which must not be in a transaction.

    Raises:
        DatabaseUnusable, DiskFull, DiskFailed, StoreError, OSError: as in :func:`duplicate`.
    """
    source = reading.filename
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        writing = apsw.Connection(target)
        try:
            with writing.backup("main", reading, "main") as copying:
                copying.step(-1)  # in one step: in WAL mode that is one snapshot, and blocks no writer
            # Leave WAL mode, so that readers of the copy need no -wal and -shm.
            writing.execute("PRAGMA journal_mode = DELETE").fetchall()
            problems = [row[0] for row in writing.execute("PRAGMA quick_check(3)")]
        finally:
            writing.close()
    except apsw.FullError as err:
        raise DiskFull(target) from err
    except apsw.IOError as err:  # the backup interface sets no message
        reason = apsw.mapping_extended_result_codes.get(getattr(err, "extendedresult", 0), str(err))
        raise DiskFailed(f"{target}: {reason}") from err
    except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError, apsw.PermissionsError) as err:
        raise DatabaseUnusable(f"{source}: {err}") from err
    except apsw.Error as err:
        raise StoreError(f"({source}: {err})") from err
    if problems != [_CHECKED]:
        raise DatabaseUnusable(f"{source}: {'; '.join(map(str, problems))}")
    flush(target)


def flush(path: str) -> None:
    """Flush a file, or the entries of a directory, to the disk.

    Raises:
        OSError: it cannot be opened, or its disk fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
