"""Starting again from the copy of the database, when it is damaged or gone. Only at the start of the daemon.

While it runs, damage changes nothing for what runs: what cannot be stored is tried again. So it is left to people when
the daemon is to start again from the copy; they hear of it, and the next start reads all of the database.
"""

import contextlib
import os
import time

from store.connection import Durability
from store.copies import check, copied_at_ms, is_suspect, restore, suspect
from store.database import Database, open_writer
from store.errors import Damaged
from store.events import last_seq
from store.meta import get_meta, set_meta
from store.runs import unfinished_runs
from store.tasks import all_tasks, instances
from supervisor.logline import Log, stamp
from supervisor.scheduler.commit import Change
from supervisor.scheduler.notices import Notices

_RESTORED = "restored"
"""Name in the store of what people are to be told."""


def open_mended(path: str, durability: Durability, log: Log) -> Database:
    """The writer of an SQLite database, started again from its copy when that has to be.

    Raises:
        Damaged: it is damaged, and so is its copy, or there is none.
        StoreError, OSError: it cannot be opened, or not be started again.
    """
    try:
        return _opened(path, durability, log)
    except Damaged as err:
        if copied_at_ms(path) is None:
            remedy = "there is no copy; restore a backup, or move it away to begin with an empty history"
            raise Damaged(f"{err.detail}; {remedy}") from err
        found = restore(path, time.time_ns() // 1_000_000)
        where = "" if found.damaged is None else f"; the damaged one is {found.damaged}"
        told = f"started again from its copy of {stamp(found.copied_at_ms)}; what happened after that is lost{where}"
        log.error(f"the database is {told}: {err}")
        database = open_writer(path, durability)
        set_meta(database, _RESTORED, f"It was {told}. {err}")
        return database


def restored(database: Database) -> str | None:
    """What people are to hear of that, if it was so."""
    told: str | None = get_meta(database, _RESTORED)
    return told


def tell_restored(told: str | None, change: Change, notices: Notices) -> None:
    """Have them hear of it, once."""
    if told is not None:
        notices.database_restored(told, change)
        change.write(lambda db: set_meta(db, _RESTORED, None))


def met_damage(path: str, error: BaseException, log: Log) -> None:
    """The database cannot be written; if that is because of damage, have the next start look for it."""
    if not isinstance(error, Damaged):
        return
    with contextlib.suppress(OSError):
        suspect(path)
    made_ms = copied_at_ms(path)
    then = "there is no copy of it" if made_ms is None else f"then it starts again from its copy of {stamp(made_ms)}"
    log.error(f"the database is damaged; what runs goes on, nothing new starts until the daemon is restarted: {then}")


def _has_content(path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.getsize(path) > 0
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
    except BaseException:
        database.close()
        raise
    return database
