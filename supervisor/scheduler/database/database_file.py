"""The file of the SQLite database: its identity, its replacement, and problems to publish.

========================  ===============================================================================
``database``              device and inode of the database of this daemon, in the runtime directory
``database.problem``      why nothing can be stored until a user acts, in the same directory; for API workers
========================  ===============================================================================
"""

import contextlib
import json
import os
from collections.abc import Callable

from store.errors import DatabaseReplaced, StoreError
from store.recovery.replaced_files import NO_FILE, File
from supervisor.host.files import DAMAGED, read_json, replace_file
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.startup.new_history import new_history_allowed

REPLACED = "move that file away to continue with the previous history, or restart the daemon to use that file"
"""The remedy for a replaced database file."""


def note_file(settings: DaemonSettings, file: File) -> None:
    """Record `file` (device and inode) as the database of this daemon.

    Raises:
        OSError: the record cannot be written.
    """
    if noted_file(settings) != file:  # the runtime directory may have no room for writing the same again
        _write(_note_path(settings), {"daemon": settings.started_at, "file": file})


def noted_file(settings: DaemonSettings) -> File:
    """Return the database file that an earlier scheduler of this daemon recorded; ``NO_FILE`` if none."""
    with contextlib.suppress(OSError, *DAMAGED):
        noted = read_json(_note_path(settings))
        if noted["daemon"] == settings.started_at:
            device, inode = noted["file"]
            return int(device), int(inode)
    return NO_FILE


def forget_file(settings: DaemonSettings) -> None:
    """Forget the recorded file; the next scheduler accepts any file at the path."""
    _remove(_note_path(settings))


def write_problem(settings: DaemonSettings, summary: str, detail: str) -> None:
    """Publish a problem. API workers show the summary to all clients, and the detail to authenticated ones.

    Raises:
        OSError: the file cannot be written.
    """
    _write(settings.database_problem, {"daemon": settings.started_at, "summary": summary, "detail": detail})


def clear_problem(settings: DaemonSettings) -> None:
    """Withdraw the published problem."""
    _remove(settings.database_problem)


def forget_all(settings: DaemonSettings) -> None:
    """Remove both files when the daemon exits."""
    forget_file(settings)
    clear_problem(settings)


def _note_path(settings: DaemonSettings) -> str:
    return f"{settings.runtime_dir}/database"


def _write(path: str, content: dict[str, object]) -> None:
    replace_file(path, json.dumps(content), mode=0o644)  # only our user and the API's can enter the directory


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


CHECK_MS = 2000


class DatabaseWatch:
    """Detects that database files were removed or replaced, and reports it.

    Each transaction checks that the open files are still those at their paths (:mod:`store.recovery.replaced_files`).
    While there is nothing to store, an empty transaction checks it every two seconds.

    Args:
        leave: called when the user allows a new history in place of a lost database.
    """

    def __init__(
        self,
        loop: Loop,
        settings: DaemonSettings,
        committer: Committer,
        notifications: Notifications,
        log: Log,
        leave: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._committer = committer
        self._notifications = notifications
        self._log = log
        self._leave = leave
        self._problem = False
        self._lost = False
        loop.after(CHECK_MS, self._check)

    def _check(self) -> None:
        self._loop.after(CHECK_MS, self._check)
        if self._lost and new_history_allowed(self._settings.data_dir):
            self._leave()
        elif self._committer.idle:
            with self._committer.changing() as change:
                change.write(lambda _db: None)

    def rescued(self, text: str) -> None:
        """Report that removed database files were put back."""
        self._log.error(text)
        with self._committer.changing() as change:
            self._notifications.database_restored(text, change, "The database files were restored")

    def on_error(self, error: StoreError) -> None:
        """Report a replaced database file, once."""
        if isinstance(error, DatabaseReplaced) and not self._problem:
            self._log.error(f"nothing is stored: {error}; {REPLACED}")
            self._notify(error, REPLACED)

    def lost(self, error: StoreError, remedy: str) -> None:
        """Report a damaged database without an intact copy; wait for the user's decision."""
        self._lost = True
        self._notify(error, remedy)

    def _notify(self, error: StoreError, remedy: str) -> None:
        self._problem = True
        with contextlib.suppress(OSError):  # the log has the same message
            write_problem(self._settings, str(type(error).__doc__), f"{error}; {remedy}")

    def stored(self) -> None:
        """Withdraw the published problem once changes can be stored again."""
        if self._problem and not self._lost and self._committer.storing:
            self._problem = False
            clear_problem(self._settings)
