"""Waits for a frozen file system at a point where waiting is harmless.

SQLite maps its -shm file for writing. A thread that writes to such a page while the file system is frozen (fsfreeze(8),
or a snapshot of the host) waits in the kernel. It holds the lock on the memory of the process, so every other thread
waits as soon as it needs new memory. An empty write to a file waits for the same event, but without a lock. So each
transaction is preceded by an empty write.
"""

import os
from contextlib import suppress


class Thaw:
    """For the file system of one database.

    Args:
        path: The database file. Its -wal is opened: SQLite holds no lock on that file, so closing it drops none.
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
