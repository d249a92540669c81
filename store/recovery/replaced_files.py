"""Repair after other programs remove or replace the files of a SQLite database while a writer has them open.

The writer holds descriptors, so after a removal it writes to files without a name. Before each transaction it compares
its open files with the files at their paths. It only uses stat(2): closing any other descriptor of the database would
drop SQLite's locks on it (https://sqlite.org/howtocorrupt.html#_posix_advisory_locks).

===========================  =======================================================================================
database removed             a complete copy is made from the open connection and gets the name, which is free
-wal or -shm removed         the content of the WAL moves into the database; the next connection creates new files
database replaced            nothing is stored or touched: an operator may be restoring a backup
===========================  =======================================================================================
"""

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

import apsw

from store.errors import DatabaseLocked, DatabaseReplaced, DiskFailed
from store.recovery.online_copy import copy_from, flush

File = tuple[int, int]
"""Device and inode, which distinguish files of the same name."""
NO_FILE: File = (0, 0)


class DatabaseFiles(NamedTuple):
    """The three files of a database."""

    database: File
    wal: File
    shm: File


class FileRepair(NamedTuple):
    """A repair after other programs removed files."""

    text: str
    """What happened and how it was repaired, as sentences for users."""
    moved: bool
    """Whether the database is another file now. Keep the old connection until the next one has opened that file."""


def file_of(path: str) -> File:
    """Return the file that has the name; `NO_FILE` if there is none, or stat(2) fails."""
    try:
        status = os.stat(path)
    except OSError:  # ENOENT
        return NO_FILE
    return status.st_dev, status.st_ino


def has_wal(path: str) -> bool:
    """Return whether a database has a -wal with content; without one, and without a writer, its file is complete."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except FileNotFoundError:
        return False


def files_of(path: str) -> DatabaseFiles:
    """Return the files that have the names of a database, its -wal and its -shm."""
    return DatabaseFiles(file_of(path), file_of(f"{path}-wal"), file_of(f"{path}-shm"))


def rescue(
    writer: apsw.Connection, path: str, opened: DatabaseFiles, before_replace: Callable[[File], None]
) -> FileRepair:
    """Make the data that a writer has stored available under the database's name again; the caller then reopens it.

    Args:
        writer: the writer's connection, outside of any transaction.
        path: path of the database.
        opened: the files that the writer has open.
        before_replace: called with the file that is about to get the name.

    Raises:
        DatabaseReplaced: another file has one of the names; nothing was changed.
        StoreError, OSError: the repair fails at present.
    """
    now = files_of(path)
    for part, name in ((now.database, path), (now.wal, f"{path}-wal")):
        # A reader that finds no -wal creates one, which stays empty.
        if part not in (NO_FILE, *opened) and (name == path or os.path.getsize(name)):
            raise DatabaseReplaced(f"{name}")
    if now.database != NO_FILE:
        _move_wal(writer)
        text = f"The -wal or -shm of {path} was removed while it was open; its content was saved, nothing is lost."
        return FileRepair(text, moved=False)
    new = f"{path}.rescued"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    copy_from(writer, new)
    before_replace(file_of(new))
    for name, mine in ((f"{path}-wal", opened.wal), (f"{path}-shm", opened.shm)):
        if file_of(name) == mine:  # the copy has its content
            os.unlink(name)
    try:
        os.link(new, path)  # unlike rename(2), this never replaces a file
    except FileExistsError as err:
        raise DatabaseReplaced(f"{path}") from err
    os.unlink(new)
    flush(os.path.dirname(path))
    text = f"{path} was removed while it was open; a whole copy was put in its place, nothing is lost."
    return FileRepair(text, moved=True)


def _move_wal(writer: apsw.Connection) -> None:
    """Checkpoint the whole WAL, because the next connection will not find it.

    Raises:
        DatabaseLocked, DiskFailed: that fails.
    """
    try:
        writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as err:
        kind = DatabaseLocked if isinstance(err, apsw.BusyError) else DiskFailed
        raise kind(f"(its WAL cannot be moved into the database: {err})") from err
