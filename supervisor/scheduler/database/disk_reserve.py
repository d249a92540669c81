"""A file of 16 MiB that reserves disk space for the database. When the disk is full, it is removed to free the space.

Methods that access the disk run in the store thread, which a hung disk blocks anyway; all others run in the loop.
"""

import contextlib
import os

from supervisor.ipc.log_line import Log
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.startup.data_directory import RESERVE

BYTES = 16 << 20
_SPARE = 2
"""The free space that creation requires, in multiples of the file's size: the file itself must not fill the disk."""
_FIRST_MS = 1_000
_AGAIN_MS = 10_000


class DiskReserve:
    """Creates and releases the file, and reports a full disk.

    Args:
        directory: the directory of the database, which gets the file.
    """

    def __init__(
        self,
        loop: Loop,
        directory: str,
        notifications: Notifications,
        log: Log,
        committer: Committer,
    ) -> None:
        self._loop = loop
        self._path = f"{directory}/{RESERVE}"
        self._directory = directory
        self._notifications = notifications
        self._log = log
        self._committer = committer
        self._exists = True
        """Whether the file exists; the store thread sets it."""
        self.missing = False
        """Whether a full disk was reported, because there is no space for the file."""
        self._timer = loop.after(_FIRST_MS, self._restore)
        """Timer of the next attempt to create the file."""

    def release(self) -> bool:
        """Remove the file to free its space; return False if that is impossible. Runs in the store thread."""
        try:
            os.unlink(self._path)
        except OSError:  # ENOENT; EROFS, EIO
            return False
        self._exists = False
        return True

    def check(self) -> None:
        """Report a full disk if the file was released or cannot be created."""
        if self._exists or self.missing:
            return
        self.missing = True
        message = f"the disk with {self._directory} has no room for the {BYTES >> 20} MiB reserved for the database"
        self._log.error(f"{message}: nothing more can be stored once the disk is full")
        with self._committer.changing() as change:
            self._notifications.disk_full(f"T{message[1:]}. Nothing more can be stored once the disk is full.", change)
        self._retry_later()

    def _restore(self) -> None:
        """Create the file if it is missing, because of a full disk or a removal, and the disk has space."""
        with self._committer.changing(lambda _error: self._retry_later()) as change:
            change.write(lambda _db: self._try_create())
            change.then(self._report)

    def _retry_later(self) -> None:
        """Schedule the next attempt; it replaces a scheduled attempt."""
        self._timer.cancel()
        self._timer = self._loop.after(_AGAIN_MS, self._restore)

    def _try_create(self) -> None:
        try:
            self._exists = _create(self._path)
        except OSError:  # ENOSPC, EDQUOT, EROFS
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._exists = False

    def _report(self) -> None:
        self._retry_later()
        if not self._exists:
            self.check()
        elif self.missing:
            self.missing = False
            self._log.info("the disk has free space again")
            with self._committer.changing() as change:
                self._notifications.disk_recovered(self._directory, change)


def _create(path: str) -> bool:
    """Create the file unless it exists in full; return False if the disk has too little space.

    posix_fallocate(3) allocates the blocks; a sparse file would reserve nothing.

    Raises:
        OSError: the file cannot be created; a part of it may exist.
    """
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        if status.st_size == BYTES and status.st_blocks * 512 >= BYTES:
            return True
        os.unlink(path)
    system = os.statvfs(os.path.dirname(path))
    if system.f_bavail * system.f_frsize < _SPARE * BYTES:
        return False
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, BYTES)
    finally:
        os.close(fd)
    return True
