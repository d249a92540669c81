"""Waits for a frozen file system where that harms nobody.

SQLite maps its -shm file for writing. Who writes to such a page while its file system is frozen (fsfreeze(8), or for a
snapshot of the host) waits in the kernel with the memory of the process locked, and then every thread of it waits with
that one as soon as it needs new memory. An empty write to a file waits for the same thing, but without a lock. So there
is one before each transaction.
"""

import os
from contextlib import suppress


class Thaw:
    """For the file system of one database.

    Args:
        path: The database file. Its -wal is what is opened: no lock of SQLite is on that, so closing it drops none.
    """

    def __init__(self, path: str) -> None:
        self._name = f"{path}-wal"
        self._fd = -1

    def wait(self) -> None:
        """Return when the file system takes writes, or refuses them; it is left as it is."""
        with suppress(OSError):  # ENOENT: there is none yet; EROFS, EACCES, EMFILE
            if self._fd < 0:
                self._fd = os.open(self._name, os.O_WRONLY | os.O_CLOEXEC)
            os.pwrite(self._fd, b"", 0)

    def close(self) -> None:
        """Give the file back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
