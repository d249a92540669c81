"""Puts back the data directory, its lock and its identity when they are moved or removed. Belongs to the file thread.

With another identity, the next daemon would not know the processes of this one, and would start services a second
time. Without the lock, a second daemon could use the directory. This root holds the lock and knows the rest.
"""

import fcntl
import os

from logring.logfile.file_owner import FOR_READERS
from supervisor.host.files import make_parents, replace_file
from supervisor.host.shortage import is_shortage, reason_of
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import LOCK, DaemonSettings


class DataDirectoryMonitor:
    """Checks the files and restores them.

    Args:
        settings: The settings.
        lock: The descriptor that holds the lock. It keeps its number when the lock moves to another file.
        log: The daemon's log.
    """

    def __init__(self, settings: DaemonSettings, lock: int, log: Log) -> None:
        self._settings = settings
        self._lock = lock
        self._log = log
        self._failing = ""
        """The last logged reason why the files cannot be restored; empty: no failure."""

    def check(self) -> None:
        """Put back what is missing or has another content, and log it.

        Raises:
            OSError, MemoryError: a shortage.
        """
        failing, restored = "", []
        try:
            restored = self._restore()
        except BlockingIOError:
            failing = "another process has locked it"
        except OSError as err:
            if is_shortage(err):
                raise
            failing = reason_of(err)
        if failing not in ("", self._failing):
            self._log.error(f"cannot restore the lock and the identity of {self._settings.data_dir}: {failing}")
        self._failing = failing
        if restored:
            self._log.error(f"{', '.join(restored)} in {self._settings.data_dir}: removed or changed, and restored")

    def _restore(self) -> list[str]:
        """Return the names of the restored files.

        Raises:
            OSError: a file cannot be restored; BlockingIOError: another process has locked the directory.
        """
        settings = self._settings
        if not os.path.isdir(settings.data_dir):
            make_parents(settings.data_dir)
            os.mkdir(settings.data_dir, 0o700)
            if settings.api_account is not None:
                os.chown(settings.data_dir, -1, settings.api_account[1])
                os.chmod(settings.data_dir, FOR_READERS)
        restored = [LOCK] if self._lock_again(f"{settings.data_dir}/{LOCK}") else []
        for name, text in settings.identity_files.items():
            path = f"{settings.data_dir}/{name}"
            if _content(path) != f"{text}\n":
                replace_file(path, f"{text}\n", durable=True)
                restored.append(name)
        return restored

    def _lock_again(self, path: str) -> bool:
        """Lock the file at `path` in place of the one that had this name; return False if it is still the same."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.path.samestat(os.fstat(fd), os.fstat(self._lock)):
                return False
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            os.dup2(fd, self._lock, inheritable=False)
        finally:
            os.close(fd)
        return True


def _content(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(256)
    except FileNotFoundError:
        return None
