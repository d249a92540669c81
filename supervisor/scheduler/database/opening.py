"""Opening the database, whose server may start later than we do, or that a person has to restore."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from store.connection import Durability
from store.database import Database, check_writable, open_reader, open_writer
from store.errors import Away, Damaged, InDoubt, Lost, Refused, Replaced, SchemaTooNew, StoreError
from store.events import last_seq
from store.meta import get_meta, set_meta
from store.recovery.copies import check, copied_at_ms, copy_path, had_history, is_closed, is_suspect, suspect
from store.recovery.replaced_files import NO_FILE, file_of
from store.recovery.salvage import Restored, begin_anew, restore, take_as_restored
from store.runs.writes import unfinished_runs
from store.tasks import all_tasks, instances
from supervisor.config.model import Config
from supervisor.ipc.log_line import Log, stamp
from supervisor.ipc.messages import Boot
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.database.database_file import (
    REPLACED,
    forget_file,
    no_problem,
    note_file,
    noted_file,
    tell_problem,
)
from supervisor.scheduler.loop.event_log import announced
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.startup.new_history import allow_new_history, new_history_allowed

if TYPE_CHECKING:
    from store.recovery.salvage import Salvaged

TAKEN_UP = "taken_up"
"""Name in the store of the start time of the daemon whose first scheduler took up the work last."""
_RESTORED = "restored"
"""Name in the store of what has to be known of that until it is told."""


class Restoration(NamedTuple):
    """What a scheduler has to know that starts again from the copy.

    Attributes:
        told: What people are to hear.
        waiting: Ids of runs that wait, and have not begun.
    """

    told: str
    waiting: frozenset[str]


def open_mended(
    boot: Boot, durability: Durability, log: Log, *, worked: bool, running: bool, lost: bool = False
) -> Database:
    """Open the writer of an SQLite database, after it was started again from its copy if that has to be.

    Args:
        boot: the settings of the daemon.
        durability: see :func:`open_writer`.
        log: hears what was done.
        worked: a scheduler of this daemon has taken up the work, which the copy may be too old to know.
        running: this is not the first scheduler of the daemon, so there was a history.
        lost: the history was lost a moment ago, so what is there now was restored by somebody.

    Raises:
        Replaced: another file is in the place of the database that this daemon had.
        Lost: it is damaged or gone, and so is its copy, and nobody has said that a new history may begin.
        StoreError, OSError: it cannot be opened, or not be started again.
    """
    path = boot.database
    noted, found = noted_file(boot), file_of(path)
    if NO_FILE not in (noted, found) and noted != found:
        raise Replaced(f"({path}): {REPLACED}")
    newest_event = announced(boot.runtime_dir) or (0 if is_closed(path) else None)
    known = {TAKEN_UP: boot.started_at} if worked else {}
    try:
        database = _opened(path, durability, log, expected=running or had_history(path))
        if lost:
            again = Restoration("Its history was lost, and somebody has restored another one", frozenset())
            take_as_restored(database, time.time_ns() // 1_000_000, _remembered(again) | known, newest_event or 0)
    except Damaged as err:
        forget_file(boot)
        _start_again(boot, err, known, newest_event, log, running=running)
        database = open_writer(path, durability)
    note_file(boot, file_of(path))
    allow_new_history(boot.data_dir, allowed=False)
    no_problem(boot)
    return database


def _start_again(
    boot: Boot, why: Damaged, known: Mapping[str, object], newest_event: int | None, log: Log, *, running: bool
) -> None:
    """From the copy; without one with an empty history, if a person has said so.

    Raises:
        Lost: neither is possible.
    """
    path, now_ms = boot.database, time.time_ns() // 1_000_000
    no_copy = "there is no copy"
    if copied_at_ms(path) is not None:
        try:
            found = restore(path, now_ms, lambda found: _remembered(_from_copy(found, why)) | dict(known), newest_event)
        except Damaged as err:
            no_copy = f"its copy cannot be used either: {err.detail}"
        else:
            log.error(f"the database is {_told(found)}: {why}")
            return
    if not new_history_allowed(boot.data_dir):
        command = "recover" if running else "up"
        remedy = f"restore a backup, or begin an empty history with: ringward {command} --new-history"
        raise Lost(f"{why.detail}; {no_copy}; {remedy}") from why
    aside = begin_anew(path, now_ms, lambda aside: _remembered(_from_nothing(aside, why)) | dict(known), newest_event)
    log.error(f"the database is {_begun(aside)}: {why}")


def _remembered(again: Restoration) -> dict[str, object]:
    return {_RESTORED: {**again._asdict(), "waiting": sorted(again.waiting)}}


def _from_copy(found: Restored, why: Damaged) -> Restoration:
    return Restoration(f"It was {_told(found)}. {why}", found.salvaged.waiting)


def _from_nothing(aside: str | None, why: Damaged) -> Restoration:
    return Restoration(f"It was {_begun(aside)}. {why}", frozenset())


def _begun(aside: str | None) -> str:
    where = "" if aside is None else f"; the damaged one is {aside}"
    return f"begun anew, with an empty history, as somebody has asked for{where}"


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


def restored(database: Database) -> Restoration | None:
    """What is to be known of that, if it was so."""
    stored = get_meta(database, _RESTORED)
    return stored and Restoration(stored["told"], frozenset(stored["waiting"]))


def tell_restored(again: Restoration | None, change: Change, notifications: Notifications) -> None:
    """Have people hear of it, once."""
    if again is not None:
        notifications.database_restored(again.told, change, "The database was started again")
        change.write(lambda db: set_meta(db, _RESTORED, None))


def _has_content(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except FileNotFoundError:
        return False


def _opened(path: str, durability: Durability, log: Log, *, expected: bool) -> Database:
    """Open it and read all that a scheduler begins with; all of it when there was damage.

    Raises:
        Damaged: it is damaged, or it is `expected` and gone.
    """
    if is_suspect(path):
        log.info("reading all of the database, in which there was damage")
        check(path)
    if (expected or copied_at_ms(path) is not None) and not _has_content(path):
        raise Damaged(f"({path} is gone)")
    database = open_writer(path, durability)
    try:
        for read in (unfinished_runs, all_tasks, instances, last_seq):
            read(database)
    except BaseException:  # whatever it is: nobody else would close it
        database.close()
        raise
    return database


_RETRY_S = 1.0


def open_database(boot: Boot, config: Config, root: RootConnection, log: Log) -> Database:
    """The writer; waits for a server that is away, or for a person, for as long as the root is there.

    A server that refuses us is waited for only when it took us before: at the start of the daemon that is a mistake.
    It is alike with a history that is lost: what runs goes on while a person decides. Under a root of another version
    nothing is migrated.

    Raises:
        RootGone: the root has ended.
        StoreError: it cannot be used, and waiting would not help.
    """
    told = ""
    lost = False
    while True:
        try:
            if root.refusal is not None:
                open_reader(boot.database).close()  # refuses what is to be migrated
            if boot.database_url is None and root.refusal is None:
                # A first scheduler that died before it had made a database has left no history behind.
                durability, worked = config.storage.durability, root.worked
                database = open_mended(boot, durability, log, worked=worked, running=worked, lost=lost)
            else:
                database = open_writer(boot.database, config.storage.durability)
        except (Away, InDoubt, Lost, Replaced) as err:
            if root.epoch == 1 and isinstance(err, (Refused, Lost)):
                raise
            if str(err) != told:
                told = str(err)
                log.error(f"waiting for the database, trying again every second: {told}")
                if boot.database_url is None:
                    tell_problem(boot, str(type(err).__doc__), told)
            if isinstance(err, Lost):
                lost = True
                _rest_until_changed(boot, root)
        else:
            if told:
                log.info("the database answers")
            return database
        root.rest(_RETRY_S)
        if root.epoch == 1 and root.is_early("shutdown"):  # nothing was started yet
            root.ask({"op": "ready_to_end"})
            root.wait("nothing")


def _rest_until_changed(boot: Boot, root: RootConnection) -> None:
    """Wait until somebody has restored a database, or its copy, or has said that a new history may begin.

    What comes is read through before it is used: it may be half copied.
    """
    path = boot.database
    before = _state(path)
    while not new_history_allowed(boot.data_dir) and _state(path) == before:
        root.rest(_RETRY_S)
    if file_of(path) != NO_FILE:
        suspect(path)


def _state(path: str) -> list[tuple[int, int, int, int]]:
    found = []
    for name in (path, copy_path(path)):
        with suppress(OSError):  # ENOENT
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def obstacle(target: str) -> str | None:
    """Why a scheduler of this version will never open the database; None: nothing is known that would hinder it."""
    try:
        reader = open_reader(target)
        try:
            check_writable(reader)
        finally:
            reader.close()
    except SchemaTooNew as err:
        return str(err)
    except StoreError:  # it is to be migrated, or away: that is for the scheduler
        pass
    return None
