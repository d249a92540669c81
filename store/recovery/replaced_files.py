"""The files of an SQLite database that others remove or replace while a writer has them open.

The writer holds descriptors, so after a removal it writes to files without a name. Before each transaction it compares
its files with the files of the names. It uses only stat(2): closing any other descriptor of the database file would
drop SQLite's locks on it (https://sqlite.org/howtocorrupt.html#_posix_advisory_locks).

===========================  =======================================================================================
nothing has the name         a whole copy is made from the open connection and gets the name, which replaces nothing
the ``-wal`` or ``-shm``     the content of the WAL moves into the database; the next connection creates new files
another file has the name    nothing is stored or touched: an operator may be restoring a backup
===========================  =======================================================================================
"""

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

import apsw

from store.errors import Busy, DiskFailed, Replaced
from store.recovery.online_copy import copy_from, flush

File = tuple[int, int]
"""Device and inode, which distinguish a file from another file of its name."""
NO_FILE: File = (0, 0)


class Files(NamedTuple):
    """The files of one database."""

    database: File
    wal: File
    shm: File


class Rescued(NamedTuple):
    """The repair after other programs removed files."""

    text: str
    """Their removal and the repair, as sentences for people."""
    moved: bool
    """The database is another file now; the writer still has all of it, until the next connection has opened that."""


def file_of(path: str) -> File:
    """Return the file that has the name; zeros when there is none, or none that can be asked."""
    try:
        found = os.stat(path)
    except OSError:  # ENOENT
        return NO_FILE
    return found.st_dev, found.st_ino


def files_of(path: str) -> Files:
    """Return the files that have the names of a database and of its parts."""
    return Files(file_of(path), file_of(f"{path}-wal"), file_of(f"{path}-shm"))


def rescue(writer: apsw.Connection, path: str, opened: Files, placing: Callable[[File], None]) -> Rescued:
    """Restore the names of a database to the data that a writer has stored; the caller then opens it anew.

    Args:
        writer: the connection, outside of any transaction.
        path: the name.
        opened: the files that the writer has open.
        placing: called with the file that is about to get the name.

    Raises:
        Replaced: another file has one of the names; nothing was changed.
        StoreError: it cannot be done now.
        OSError: the same.
    """
    now = files_of(path)
    for part, name in ((now.database, path), (now.wal, f"{path}-wal")):
        # A reader that finds no -wal makes one, which stays empty.
        if part not in (NO_FILE, *opened) and (name == path or os.path.getsize(name)):
            raise Replaced(f"{name}")
    if now.database != NO_FILE:
        _move_wal(writer)
        text = f"The -wal or -shm of {path} was removed while it was open; its content was saved, nothing is lost."
        return Rescued(text, moved=False)
    new = f"{path}.rescued"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    copy_from(writer, new)
    placing(file_of(new))
    for name, mine in ((f"{path}-wal", opened.wal), (f"{path}-shm", opened.shm)):
        if file_of(name) == mine:  # the copy has their content
            os.unlink(name)
    try:
        os.link(new, path)  # as a rename that replaces nothing
    except FileExistsError as err:
        raise Replaced(f"{path}") from err
    os.unlink(new)
    flush(os.path.dirname(path))
    text = f"{path} was removed while it was open; a whole copy was put in its place, nothing is lost."
    return Rescued(text, moved=True)


def _move_wal(writer: apsw.Connection) -> None:
    """Move all of it: the next program that opens the database does not know this WAL."""
    try:
        writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as err:
        kind = Busy if isinstance(err, apsw.BusyError) else DiskFailed
        raise kind(f"(its WAL cannot be moved into the database: {err})") from err
