"""A copy of a SQLite database beside it, from which :mod:`store.recovery.salvage` starts again when that is lost.

=========================  ===========================================================================
``ringward.db.copy``       the newest copy; it was read through when it was made
``ringward.db.suspect``    exists from the first sign of damage until the whole database was read
``ringward.db.new``        the next database, while it is made
``ringward.db.damaged-T``  a database that was moved aside at the time T; nothing ever removes it
=========================  ===========================================================================
"""

import contextlib
import os
from collections.abc import Iterator

import apsw

from store.backends.sqlite import translated
from store.errors import Damaged, Unusable
from store.recovery.online_copy import duplicate, flush

RESERVE = "reserve"
"""Name of a file beside the database, which is room that is kept for it."""
_BUSY_MS = 5000


def had_history(path: str) -> bool:
    """Return whether there was a database of that name once: others of its files are still there."""
    reserve = f"{os.path.dirname(path)}/{RESERVE}"
    return any(map(os.path.exists, (f"{path}-wal", f"{path}-shm", reserve)))


def copy_path(path: str) -> str:
    """Return where the copy of a database is."""
    return f"{path}.copy"


def copied_at_ms(path: str) -> int | None:
    """When the copy of a database was made, ms since the epoch; None: there is none."""
    with contextlib.suppress(OSError):
        return os.stat(copy_path(path)).st_mtime_ns // 1_000_000
    return None


def suspect(path: str) -> None:
    """Have the next start read all of the database.

    Raises:
        OSError: that cannot be noted.
    """
    os.close(os.open(f"{path}.suspect", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def is_suspect(path: str) -> bool:
    """Return whether damage has been reported."""
    return os.path.exists(f"{path}.suspect")


def check_copy(path: str) -> int:
    """Read all of the copy of a database; returns when it was made, ms since the epoch.

    Raises:
        Unusable: there is none, or something is wrong in it.
        StoreError: it cannot be read.
    """
    made_ms = copied_at_ms(path)
    if made_ms is None:
        raise Unusable(f"there is no copy of {path}")
    check_file(copy_path(path))
    return made_ms


def check(path: str) -> None:
    """Read all of a database; clear the report of damage when it is intact.

    Raises:
        Damaged: there is something wrong in it, or it is gone.
        StoreError: it cannot be read.
    """
    if not os.path.exists(path):
        raise Damaged(f"{path} is gone")
    check_file(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.suspect")


def make_copy(path: str) -> None:
    """Copy a database that others write meanwhile; the copy of before stays until the new one is whole.

    Raises:
        Unusable: there is something wrong in it.
        StoreError: it cannot be read, or there is no room.
        OSError: the copy cannot be put in its place.
    """
    new = f"{copy_path(path)}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    duplicate(path, new)
    put(new, copy_path(path))


def is_closed(path: str) -> bool:
    """Return whether all data is in the file itself, as a proper close leaves it."""
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
    """Read all of a file that has a database.

    Raises:
        Damaged: there is something wrong in it.
        StoreError: it cannot be read.
    """
    try:
        with _opened(path) as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    except apsw.Error as err:
        raise translated(err, path) from err
    if found != ["ok"]:
        raise Damaged(f"{path}: {'; '.join(found)}")


def put(new: str, path: str) -> None:
    """Give a file its name, so that a power failure leaves the one or the other."""
    flush(new)
    os.rename(new, path)
    flush(os.path.dirname(path))
