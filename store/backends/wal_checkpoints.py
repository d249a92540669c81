"""A thread that moves SQLite's WAL into the database, so that its two fsyncs delay no commit.

A passive checkpoint neither waits nor blocks. A checkpoint that a writer overtook leaves some pages behind, and then
the WAL continues to grow instead of restarting. So the writer does a checkpoint itself when there are many pages, as
soon as the thread has left few of them. Bulk work without a deadline waits for the thread instead.
"""

import contextlib
import threading

import apsw

from store.backends.wait_unfrozen import Thaw
from store.recovery.replaced_files import file_of

PAGES_BESIDE = 500
"""So many new pages in the WAL are worth to be moved by the thread."""
PAGES_OF_BACKLOG = 2000
"""Pages in the WAL from which on bulk work is to let them be moved."""
PAGES_BY_WRITER = 4000
"""Pages in the WAL at which the writer moves the last few, within a commit: at most twice as many as these."""
MOST_PAGES = 64_000
"""Pages from which on it does, however many are left."""


class Checkpoints:
    """Looks after the WAL of one writer. The thread is started when it has something to do for the first time.

    Args:
        writer: Its connection, which calls this after each commit.
        path: The database file.
    """

    def __init__(self, writer: apsw.Connection, path: str) -> None:
        self._path = path
        self._file = file_of(path)
        self._thread: threading.Thread | None = None
        self._due = threading.Event()
        self._closing = False
        self._pages = 0
        self._asked = 0
        self._moved = 0
        self._move_all = False
        writer.set_wal_hook(self._committed)

    def has_backlog(self) -> bool:
        """See :meth:`store.connection.Connection.has_backlog`."""
        self._move_all = self._pages >= PAGES_OF_BACKLOG
        return self._move_all

    def _committed(self, writer: apsw.Connection, name: str, pages: int) -> int:
        if pages < self._asked:  # the WAL has begun anew
            self._asked = self._moved = 0
        self._pages = pages
        few = pages - self._moved <= 2 * PAGES_BESIDE
        if self._move_all:
            self._move_all = False
            self._ask(pages)
        elif pages >= MOST_PAGES or (few and pages >= PAGES_BY_WRITER):
            # Not of this commit, which is done. The thread is at it, or a full disk, which who writes meets as well.
            with contextlib.suppress(apsw.Error):
                writer.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
        elif pages >= self._asked + PAGES_BESIDE:
            self._ask(pages)
        return apsw.SQLITE_OK

    def _ask(self, pages: int) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads may be had: after the next commit, perhaps
                return
            self._thread = thread
        self._asked = pages
        self._due.set()

    def _work(self) -> None:
        thaw = Thaw(self._path)
        thaw.wait()
        if file_of(self._path) != self._file:  # another process has it: the writer detects that and is opened anew
            return
        connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        with contextlib.closing(thaw), contextlib.closing(connection):
            connection.wal_autocheckpoint(0)
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()  # before, it knows of no WAL
            while True:
                self._due.wait()
                self._due.clear()
                if self._closing:
                    return
                thaw.wait()
                # Whatever keeps it from being done (the disk is full, say): the writer meets it, too, and tells.
                with contextlib.suppress(apsw.Error):
                    _, self._moved = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        """End the thread; the writer's connection is closed after it, and so the last."""
        self._closing = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()
