"""Starting again from the copy of the database, when it is damaged or gone. Only when a scheduler opens it.

A scheduler that meets damage later marks the database as suspect and ends. The next one then reads all of it here:
``main`` does so for a scheduler that still starts, :mod:`.damage` for one that works.
"""

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from store.connection import Durability
from store.copies import Restored, check, copied_at_ms, is_closed, is_suspect, restore
from store.database import Database, open_writer
from store.errors import Damaged
from store.events import last_seq
from store.meta import get_meta, set_meta
from store.runs import unfinished_runs
from store.tasks import all_tasks, instances
from supervisor.logline import Log, stamp
from supervisor.messages import Boot
from supervisor.scheduler.announce import announced
from supervisor.scheduler.commit import Change
from supervisor.scheduler.notices import Notices

if TYPE_CHECKING:
    from store.salvage import Salvaged

TAKEN_UP = "taken_up"
"""Name in the store of the start time of the daemon whose first scheduler took up the work last."""
_RESTORED = "restored"
"""Name in the store of what has to be known of that until it is told."""


class Again(NamedTuple):
    """What a scheduler has to know that starts again from the copy.

    Attributes:
        told: What people are to hear.
        waiting: Ids of runs that wait, and have not begun.
    """

    told: str
    waiting: frozenset[str]


def open_mended(boot: Boot, durability: Durability, log: Log, *, worked: bool) -> Database:
    """The writer of an SQLite database, started again from its copy when that has to be.

    `worked`: a scheduler of this daemon has taken up the work, which the copy may be too old to know.

    Raises:
        Damaged: it is damaged, and so is its copy, or there is none.
        StoreError, OSError: it cannot be opened, or not be started again.
    """
    path = boot.database
    newest_event = announced(boot.runtime_dir) or (0 if is_closed(path) else None)
    try:
        return _opened(path, durability, log)
    except Damaged as err:
        if copied_at_ms(path) is None:
            remedy = "there is no copy; restore a backup, or move it away to begin with an empty history"
            raise Damaged(f"{err.detail}; {remedy}") from err
        why = err
    known = {TAKEN_UP: boot.started_at} if worked else {}

    def remember(found: Restored) -> dict[str, object]:
        again = Again(f"It was {_told(found)}. {why}", found.salvaged.waiting)
        return {_RESTORED: {**again._asdict(), "waiting": sorted(again.waiting)}, **known}

    found = restore(path, time.time_ns() // 1_000_000, remember, newest_event)
    log.error(f"the database is {_told(found)}: {why}")
    return open_writer(path, durability)


def _told(found: Restored) -> str:
    where = "" if found.damaged is None else f"; the damaged one is {found.damaged}"
    return f"started again from its copy of {stamp(found.copied_at_ms)}; {_left(found.salvaged)}{where}"


def _left(salvaged: "Salvaged") -> str:
    """What there is of what happened after the copy."""
    if salvaged.failed:
        return f"what happened after that is lost: {salvaged.failed}"
    if not (salvaged.runs or salvaged.changes or salvaged.current):
        return "what happened after that is lost"
    parts = [f"{salvaged.runs} later runs and {salvaged.changes} changes of others were saved"]
    if salvaged.gaps or salvaged.invalid:
        parts.append(f"{salvaged.gaps} parts could not be read, {salvaged.invalid} rows were not valid")
    if not salvaged.current:
        parts.append("what happened last may be lost")
    return ", ".join(parts)


def restored(database: Database) -> Again | None:
    """What is to be known of that, if it was so."""
    stored = get_meta(database, _RESTORED)
    return stored and Again(stored["told"], frozenset(stored["waiting"]))


def tell_restored(again: Again | None, change: Change, notices: Notices) -> None:
    """Have people hear of it, once."""
    if again is not None:
        notices.database_restored(again.told, change)
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
