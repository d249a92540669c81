"""A copy of a SQLite database, from which :mod:`store.recovery.salvage` restores a database that is lost.

=========================  ===========================================================================
``ringward.db.copy``       the newest copy, which was checked completely when it was made
``ringward.db.suspect``    exists from the first sign of damage until the whole database was checked
``ringward.db.new``        the next database, while it is being created
``ringward.db.damaged-T``  a database that was moved aside at time T; Ringward never removes it
=========================  ===========================================================================
"""

import contextlib
import os
from collections.abc import Iterator

import apsw

from store.backends.sqlite import translated
from store.errors import DatabaseDamaged, DatabaseUnusable
from store.recovery.online_copy import duplicate, flush

RESERVE = "reserve"
"""Name of a file beside the database that reserves disk space for it."""
_BUSY_MS = 5000


def had_history(path: str) -> bool:
    """Return whether there was a database of that name: other files of it still exist."""
    reserve = f"{os.path.dirname(path)}/{RESERVE}"
    return any(map(os.path.exists, (f"{path}-wal", f"{path}-shm", reserve)))


def copy_path(path: str) -> str:
    """Return the path of a database's copy."""
    return f"{path}.copy"


def copied_at_ms(path: str) -> int | None:
    """Return the time at which the copy of a database was made, ms since the epoch; None if there is no copy."""
    with contextlib.suppress(OSError):
        return os.stat(copy_path(path)).st_mtime_ns // 1_000_000
    return None


def suspect(path: str) -> None:
    """Make the next start check the whole database.

    Raises:
        OSError: the mark cannot be created.
    """
    os.close(os.open(f"{path}.suspect", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def is_suspect(path: str) -> bool:
    """Return whether damage was reported and the database not checked since."""
    return os.path.exists(f"{path}.suspect")


def check_copy(path: str) -> int:
    """Check the whole copy of a database; return the time at which it was made, ms since the epoch.

    Raises:
        DatabaseUnusable: there is no copy, or it is damaged.
        StoreError: the copy cannot be read.
    """
    made_ms = copied_at_ms(path)
    if made_ms is None:
        raise DatabaseUnusable(f"there is no copy of {path}")
    check_file(copy_path(path))
    return made_ms


def check(path: str) -> None:
    """Check a whole database; if it is intact, remove the mark of `suspect`.

    Raises:
        DatabaseDamaged: the database is damaged or gone.
        StoreError: it cannot be read.
    """
    if not os.path.exists(path):
        raise DatabaseDamaged(f"{path} is gone")
    check_file(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.suspect")


def make_copy(path: str) -> None:
    """Copy a database that may be written meanwhile. The previous copy stays until the new one is complete.

    Raises:
        DatabaseUnusable: the database is damaged.
        StoreError: the database cannot be read, or there is no space.
        OSError: the copy cannot be renamed.
    """
    new = f"{copy_path(path)}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    duplicate(path, new)
    put(new, copy_path(path))


def is_closed(path: str) -> bool:
    """Return whether all data is in the database file itself, as after a clean close."""
    try:
        return os.path.getsize(f"{path}-wal") == 0
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def _opened(path: str) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        yield connection
    finally:
        connection.close()


def check_file(path: str) -> None:
    """Check a whole database file.

    Raises:
        DatabaseDamaged: the file is damaged.
        StoreError: it cannot be read.
    """
    try:
        with _opened(path) as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    except apsw.Error as err:
        raise translated(err, path) from err
    if problems != ["ok"]:
        raise DatabaseDamaged(f"{path}: {'; '.join(problems)}")


def put(new: str, path: str) -> None:
    """Rename `new` to `path`. A power failure leaves either the old file or the new one."""
    flush(new)
    os.rename(new, path)
    flush(os.path.dirname(path))
