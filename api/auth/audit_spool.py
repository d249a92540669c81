"""A file of audit entries that are not in the database yet; it survives the death of the worker that wrote it.

A worker writes each entry before it answers the request. The file is in the runtime directory, which is in memory, and
is removed once all entries are stored. A worker owns its file as long as it holds the lock. A file without a lock
belongs to a dead worker; the next worker that starts takes it over.
"""

import contextlib
import errno
import fcntl
import itertools
import logging
import os
import stat
from collections.abc import Iterator
from typing import Annotated

import msgspec

log = logging.getLogger("gunicorn.error")

Entries = dict[str, list[object]]
"""Entries by key, in the order in which they were recorded."""

_MOST = 10_000
_BEGINNING, _ENDING = "audit-", ".entries"
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_line = msgspec.json.Decoder(tuple[str, tuple[_Number, str, str, str, str, _Number, str, bool]])


class Spool:
    """The file of one worker; it exists while entries wait.

    Args:
        directory: Directory of the files of all workers; it contains nothing else.
        name: Unique name of the worker, made of letters and digits.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._path = f"{directory}/{_BEGINNING}{name}{_ENDING}"
        self._fd = -1
        self._written = 0

    def add(self, entries: Entries) -> bool:
        """Write entries. Return False if that fails; the entries are then only in this worker's memory."""
        if not entries or self._written >= _MOST:
            return not entries
        self._written += len(entries)
        try:
            if self._fd < 0:
                self._fd = self._create()
            self._append(b"".join(msgspec.json.encode(item) + b"\n" for item in entries.items()))
        except OSError as err:  # ENOSPC, EDQUOT, EROFS
            log.warning("cannot keep audit entries in %s: %s", self._path, err.strerror)
            return False
        return True

    def _append(self, data: bytes) -> None:
        """Write all of the data or nothing: a partial line would make the following lines unreadable."""
        before = os.fstat(self._fd).st_size
        if os.write(self._fd, data) < len(data):
            os.ftruncate(self._fd, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def keep(self, entries: Entries) -> None:
        """Keep only these entries, because all others are stored."""
        if not entries:
            self._close()
        elif self._fd >= 0 and self._written > 2 * len(entries):
            os.ftruncate(self._fd, 0)
            self._written = 0
            self.add(entries)

    def take_over(self) -> Entries:
        """Return the entries of dead workers and move them into this worker's file.

        A file is removed only after its entries are in this worker's file. Other files in the directory, and unreadable
        ones, are skipped: any process of the same user can create them.
        """
        entries: Entries = {}
        os.makedirs(self._directory, 0o700, exist_ok=True)  # a root process of an older release does not create it
        for name in sorted(os.listdir(self._directory)):
            if name.startswith(_BEGINNING) and name.endswith(_ENDING):
                path = f"{self._directory}/{name}"
                with contextlib.suppress(OSError), _locked(path) as fd:
                    leftover = _read(fd)
                    if self.add(leftover):
                        os.unlink(path)
                    entries |= leftover
        return entries

    def _close(self) -> None:
        self._written = 0
        if self._fd >= 0:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the directory was removed
                os.unlink(self._path)
            os.close(self._fd)
            self._fd = -1

    def _create(self) -> int:
        """Create the file and lock it; retry if another worker took it over in between."""
        while True:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.fchmod(fd, 0o600)  # independent of the umask
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise FileNotFoundError(path)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(fd).st_nlink:  # its worker has removed it, and may have created a new one
            raise FileNotFoundError(path)
        yield fd
    finally:
        os.close(fd)


def _read(fd: int) -> Entries:
    entries: Entries = {}
    with open(fd, "rb", closefd=False) as file:
        for line in itertools.islice(file, _MOST):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # a full disk truncated the last line
                key, entry = _line.decode(line)
                entries[key] = list(entry)
    return entries
