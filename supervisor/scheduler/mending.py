"""Starting again from the copy of the database, when it is damaged or gone. Only when a scheduler starts.

One that meets damage later has all of the database read, and ends for the next one: see :mod:`.damage`.
"""

import os
import time

from store.connection import Durability
from store.copies import Restored, check, copied_at_ms, is_suspect, restore, suspected_by
from store.database import Database, open_writer
from store.errors import Damaged
from store.events import last_seq
from store.meta import get_meta, set_meta
from store.runs import unfinished_runs
from store.tasks import all_tasks, instances
from supervisor.logline import Log, stamp
from supervisor.messages import Boot
from supervisor.scheduler.commit import Change
from supervisor.scheduler.notices import Notices

TAKEN_UP = "taken_up"
"""Name in the store of the start time of the daemon whose first scheduler took up the work last."""
_RESTORED = "restored"
"""Name in the store of what people are to be told."""


def open_mended(boot: Boot, durability: Durability, log: Log) -> Database:
    """The writer of an SQLite database, started again from its copy when that has to be.

    Raises:
        Damaged: it is damaged, and so is its copy, or there is none.
        StoreError, OSError: it cannot be opened, or not be started again.
    """
    path = boot.database
    suspecting = suspected_by(path)
    try:
        return _opened(path, durability, log)
    except Damaged as err:
        if copied_at_ms(path) is None:
            remedy = "there is no copy; restore a backup, or move it away to begin with an empty history"
            raise Damaged(f"{err.detail}; {remedy}") from err
        why = err
    # Its scheduler had taken up the work, which the copy may be too old to know.
    known = {TAKEN_UP: boot.started_at} if suspecting == boot.started_at else {}
    found = restore(
        path, time.time_ns() // 1_000_000, lambda found: {_RESTORED: f"It was {_told(found)}. {why}", **known}
    )
    log.error(f"the database is {_told(found)}: {why}")
    return open_writer(path, durability)


def _told(found: Restored) -> str:
    where = "" if found.damaged is None else f"; the damaged one is {found.damaged}"
    return f"started again from its copy of {stamp(found.copied_at_ms)}; what happened after that is lost{where}"


def restored(database: Database) -> str | None:
    """What people are to hear of that, if it was so."""
    told: str | None = get_meta(database, _RESTORED)
    return told


def tell_restored(told: str | None, change: Change, notices: Notices) -> None:
    """Have them hear of it, once."""
    if told is not None:
        notices.database_restored(told, change)
        change.write(lambda db: set_meta(db, _RESTORED, None))


def _has_content(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except FileNotFoundError:
        return False


def _opened(path: str, durability: Durability, log: Log) -> Database:
    """Opened, and all read that a scheduler begins with; all of it when there was damage."""
    if is_suspect(path):
        log.info("reading all of the database, in which there was damage")
        check(path)
    if copied_at_ms(path) is not None and not _has_content(path):
        raise Damaged(f"({path} is gone)")
    database = open_writer(path, durability)
    try:
        for read in (unfinished_runs, all_tasks, instances, last_seq):
            read(database)
    except BaseException:  # whatever it is: nobody else would close it
        database.close()
        raise
    return database
