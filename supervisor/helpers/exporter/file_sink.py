"""The type ``file``: newline-delimited JSON in a file that other programs follow.

The file is rotated by renaming: ``PATH`` becomes ``PATH.1``, which becomes ``PATH.2``, and so on. A file that reaches
the limit on the size of files (``ulimit -f``) is rotated early. Records are only ever appended. An incomplete last line
is removed after a crash or if the disk is full. If another program renames or removes the file, the exporter creates it
again.
"""

import contextlib
import errno
import os
import stat
import threading
import time

from supervisor.helpers.exporter.cursors import Cursors
from supervisor.helpers.exporter.log_records import DeliveryFailed, JsonEncoder, Piece
from supervisor.ipc.log_jobs import ExportJob

_MODE = 0o640
_FOLDER_MODE = 0o750
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""O_NONBLOCK, because opening must not block if the path is a FIFO, which is then refused."""
_SINCE = "since"
_TAIL_BYTES = 1 << 16
_EARLY_BYTES = 2 << 20
"""Number of written bytes after which a sync begins, while the next records are encoded."""


class _EarlySync(threading.Thread):
    """Syncs the file in a thread of its own, while the main thread writes more records.

    Attributes:
        error: Why the sync failed. The kernel reports an error only once, so a later sync would succeed.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(name="sync", daemon=True)
        self.error: OSError | None = None
        self._fd = fd
        self.start()

    def run(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as err:
            self.error = err


class FileSink:
    """Appends records to a file."""

    def __init__(self, job: ExportJob, cursors: Cursors) -> None:
        self._path = job.path
        self._max_size_bytes = job.max_size_bytes
        self._max_age_ms = job.max_age_ms
        self._keep = job.keep
        self._cursors = cursors
        self._encoder = JsonEncoder(job.host)
        self._fd = -1
        self._size = 0
        self._unsynced = 0
        self._early: _EarlySync | None = None

    def deliver(self, pieces: list[Piece]) -> int:
        """Append all records and wait for the disk; return the number of pieces.

        Raises:
            DeliveryFailed: the file cannot be written.
        """
        written = synced = 0
        try:
            self._open()
            for piece in pieces:
                if self._is_due():
                    self._sync(synced)
                    synced = written
                    self._rotate()
                data = self._encoder.encode(piece)
                try:
                    self._append(data)
                except OSError as err:
                    if err.errno != errno.EFBIG or not self._size:
                        raise
                    self._sync(synced)
                    synced = written
                    self._rotate()
                    self._append(data)
                written += 1
        except OSError as err:
            if written > synced:
                self._sync(synced)
            raise DeliveryFailed(self._cannot_write(err), written) from err
        self._sync(synced)
        return written

    def _sync(self, synced: int) -> None:
        """Wait for the disk.

        Args:
            synced: The number of pieces of this delivery that are on the disk already.

        Raises:
            DeliveryFailed: the sync failed; only the pieces before it count as delivered.
        """
        try:
            self._finish_early_sync()
            os.fdatasync(self._fd)
        except OSError as err:
            raise DeliveryFailed(self._cannot_write(err), synced) from err
        self._unsynced = 0

    def _sync_early(self) -> None:
        """Begin a sync if many bytes are unsynced, unless an earlier sync is in progress or has failed."""
        early = self._early
        if self._unsynced < _EARLY_BYTES or (early is not None and (early.is_alive() or early.error is not None)):
            return
        self._unsynced = 0
        self._early = _EarlySync(self._fd)

    def _finish_early_sync(self) -> None:
        """Wait for the sync in progress, if there is one.

        Raises:
            OSError: the sync failed, so no record since the last sync counts as delivered.
        """
        early, self._early = self._early, None
        if early is not None:
            early.join()
            if early.error is not None:
                raise early.error

    def _cannot_write(self, err: OSError) -> str:
        return f"cannot write {self._path}: {err.strerror or err}"

    def idle(self) -> None:
        """Rotate the file if it is old enough, also the file of an earlier process.

        Raises:
            DeliveryFailed: the file cannot be rotated.
        """
        try:
            if self._fd < 0 and _SINCE in self._cursors.facts and os.path.lexists(self._path):
                self._open()
            if self._fd >= 0 and self._is_due():
                self._open()
                self._rotate()
        except OSError as err:
            raise DeliveryFailed(f"cannot rotate {self._path}: {err.strerror or err}") from err

    def _open(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(self._fd)):
                    return
            self.close()
        os.makedirs(os.path.dirname(self._path), _FOLDER_MODE, exist_ok=True)
        fd = os.open(self._path, _FLAGS, _MODE)
        try:
            self._size = _prepare(fd)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        if not self._size or _SINCE not in self._cursors.facts:
            self._cursors.note(_SINCE, _now_ms())

    def _is_due(self) -> bool:
        if not self._size:
            return False
        age_ms = _now_ms() - self._cursors.facts[_SINCE]
        return self._size >= self._max_size_bytes or 0 < self._max_age_ms <= age_ms

    def _rotate(self) -> None:
        for number in range(self._keep - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        if self._keep:
            os.replace(self._path, f"{self._path}.1")
        else:
            os.unlink(self._path)
        self.close()
        self._open()

    def _append(self, data: bytes) -> None:
        view, before = memoryview(data), self._size
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError:
                # The piece is delivered again, so none of its lines may remain.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, before)
                raise
        self._size += len(data)
        self._unsynced += len(data)
        self._sync_early()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # undelivered lines are delivered again later
                self._finish_early_sync()
            os.close(self._fd)
            self._fd = -1


def _prepare(fd: int) -> int:
    """Set the mode of a file, remove an incomplete last line, and return the size.

    Raises:
        OSError: the file is not a regular file or cannot be changed.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is not a regular file")
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != _MODE:
        os.fchmod(fd, _MODE)
    return _cut_to_whole_lines(fd, status.st_size)


def _cut_to_whole_lines(fd: int, size: int) -> int:
    """Remove an incomplete last line that a crash has left; return the remaining size."""
    end = size
    while end:
        start = max(0, end - _TAIL_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)
    return end


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
