"""Looks after the files of the SQLite database while the scheduler works.

Each transaction looks whether they still have their names (:mod:`store.recovery.replaced_files`). While nothing is
written, an empty transaction every two seconds does so.
"""

import contextlib
from collections.abc import Callable

from store.errors import Replaced, StoreError
from store.store_thread import StoreThread
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.database.database_file import REPLACED, no_problem, note_file, tell_problem
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.notifications.notifications import Notices
from supervisor.scheduler.runs.run_engine import Engine
from supervisor.startup.new_history import new_history_allowed

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
        engine: Engine,
        committer: Committer,
        notices: Notices,
        log: Log,
        leave: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._boot = boot
        self._engine = engine
        self._committer = committer
        self._notices = notices
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
        self._notices.database_restored(text, change, "The files of the database were put back")
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
