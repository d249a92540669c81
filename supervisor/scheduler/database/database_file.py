"""The file that a daemon has as its SQLite database: which one it is, and what is wrong with it.

========================  ===============================================================================
``database``              which file the schedulers of this daemon have open, in the runtime directory
``database.problem``      why nothing can be stored until a person acts, there as well: API workers read it
========================  ===============================================================================
"""

import contextlib
import json
import os
from collections.abc import Callable

from store.errors import Replaced, StoreError
from store.recovery.replaced_files import NO_FILE, File
from store.store_thread import StoreThread
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.startup.new_history import new_history_allowed

REPLACED = "move that file away to go on with the history before, or restart the daemon to go on with that file"
"""What a person can do about a database in whose place there is another one."""


def note_file(boot: Boot, file: File) -> None:
    """Note which file is the database from now on.

    Raises:
        OSError: it cannot be noted.
    """
    _write(_place(boot), {"daemon": boot.started_at, "file": file})


def noted_file(boot: Boot) -> File:
    """Return the file that an earlier scheduler of this daemon had as its database; zeros: none is known."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(_place(boot), encoding="utf-8") as file:
        found = json.load(file)
        if found["daemon"] == boot.started_at:
            device, inode = found["file"]
            return int(device), int(inode)
    return NO_FILE


def forget_file(boot: Boot) -> None:
    """Whatever file has the name next is the database."""
    _remove(_place(boot))


def tell_problem(boot: Boot, summary: str, detail: str) -> None:
    """Have API workers say what is wrong; the summary to everybody, the detail to those who may see it.

    Raises:
        OSError: it cannot be written.
    """
    _write(boot.database_problem, {"daemon": boot.started_at, "summary": summary, "detail": detail})


def no_problem(boot: Boot) -> None:
    """Have them say it no more."""
    _remove(boot.database_problem)


def forget_all(boot: Boot) -> None:
    """Leave nothing of it when the daemon ends."""
    forget_file(boot)
    no_problem(boot)


def _place(boot: Boot) -> str:
    return f"{boot.runtime_dir}/database"


def _write(path: str, content: dict[str, object]) -> None:
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o644)  # the directory is for us and the user of the API workers alone
        json.dump(content, file)
    os.replace(new, path)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


LOOK_MS = 2000


class DatabaseWatch:
    """Tells people of files that were removed or replaced.

    Args:
        leave: called when a person wants a new history in the place of a database that nothing can repair.
    """

    def __init__(
        self,
        loop: Loop,
        boot: Boot,
        store: StoreThread,
        engine: RunEngine,
        committer: Committer,
        notifications: Notifications,
        log: Log,
        leave: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._boot = boot
        self._engine = engine
        self._committer = committer
        self._notifications = notifications
        self._log = log
        self._leave = leave
        self._problem = False
        self._lost = False
        store.on_placing = lambda file: note_file(boot, file)
        store.on_rescued = self._rescued
        loop.after(LOOK_MS, self._look)

    def _look(self) -> None:
        self._loop.after(LOOK_MS, self._look)
        if self._lost and new_history_allowed(self._boot.data_dir):
            self._leave()
        elif self._committer.idle:
            change = self._engine.change()
            change.write(lambda _db: None)
            self._engine.commit(change)

    def _rescued(self, text: str) -> None:
        self._log.error(text)
        change = self._engine.change()
        self._notifications.database_restored(text, change, "The files of the database were put back")
        self._engine.commit(change)

    def met(self, error: StoreError) -> None:
        """A change could not be stored."""
        if isinstance(error, Replaced) and not self._problem:
            self._log.error(f"nothing is stored: {error}; {REPLACED}")
            self._tell(error, REPLACED)

    def lost(self, error: StoreError, remedy: str) -> None:
        """The database is damaged, and so is its copy, or there is none."""
        self._lost = True
        self._tell(error, remedy)

    def _tell(self, error: StoreError, remedy: str) -> None:
        self._problem = True
        with contextlib.suppress(OSError):  # the log says it as well
            tell_problem(self._boot, str(type(error).__doc__), f"{error}; {remedy}")

    def stored(self) -> None:
        """A change was stored."""
        if self._problem and not self._lost and self._committer.storing:
            self._problem = False
            no_problem(self._boot)
