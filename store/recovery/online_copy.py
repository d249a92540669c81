"""A copy of an SQLite database, made while others read and write it."""

import contextlib
import os

import apsw

from store.errors import DiskFailed, DiskFull, StoreError, Unusable

_CHECKED = "ok"
_BUSY_MS = 5000


def duplicate(source: str, target: str) -> None:
    """Copy a database as it is at one moment, by SQLite's backup interface, and check the copy.

    Writers of the source continue meanwhile. The copy is one file, mode 0600, and on the disk when this returns.

    Args:
        source: the file; it is opened for reading only.
        target: does not exist yet.

    Raises:
        Unusable: the source cannot be read, or the copy is damaged.
        DiskFull, DiskFailed: the copy cannot be written.
        StoreError: anything else that SQLite complains of.
        OSError: the file of the copy cannot be made.
    """
    try:
        reading = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as err:
        raise Unusable(f"{source}: {err}") from err
    with contextlib.closing(reading):
        reading.set_busy_timeout(_BUSY_MS)
        copy_from(reading, target)


def copy_from(reading: apsw.Connection, target: str) -> None:
    """Do the same from a connection that is open already, outside of any transaction of its own.

    Raises:
        Unusable, DiskFull, DiskFailed, StoreError, OSError: as :func:`duplicate`.
    """
    source = reading.filename
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        writing = apsw.Connection(target)
        try:
            with writing.backup("main", reading, "main") as copying:
                copying.step(-1)  # all at once: in WAL mode that is one snapshot, and blocks no writer
            # One file: without it, readers would need a -wal and a -shm beside the copy.
            writing.execute("PRAGMA journal_mode = DELETE").fetchall()
            found = [row[0] for row in writing.execute("PRAGMA quick_check(3)")]
        finally:
            writing.close()
    except apsw.FullError as err:
        raise DiskFull(f"{target}: {err}") from err
    except apsw.IOError as err:
        raise DiskFailed(f"{target}: {err}") from err
    except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError, apsw.PermissionsError) as err:
        raise Unusable(f"{source}: {err}") from err
    except apsw.Error as err:
        raise StoreError(f"({source}: {err})") from err
    if found != [_CHECKED]:
        raise Unusable(f"{source}: {'; '.join(map(str, found))}")
    flush(target)


def flush(path: str) -> None:
    """Write a file, or the entries of a directory, to the disk.

    Raises:
        OSError: it cannot be opened, or its disk fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
