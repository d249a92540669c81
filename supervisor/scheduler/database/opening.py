"""Open the database: wait for its server, or restore its file from the copy.

A scheduler that finds damage while it works marks the database as suspect and exits. The next one checks it here, and
restores it if necessary. Nothing else restores a database.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from store.connection import Durability
from store.daemon_values import get_meta, set_meta
from store.database import Database, check_writable, open_reader, open_writer
from store.errors import (
    ConnectionRefused,
    DatabaseDamaged,
    DatabaseReplaced,
    HistoryLost,
    InDoubt,
    SchemaTooNew,
    ServerUnreachable,
    StoreError,
)
from store.events import last_seq
from store.recovery.copies import check, copied_at_ms, copy_path, had_history, is_closed, is_suspect, suspect
from store.recovery.replaced_files import NO_FILE, file_of
from store.recovery.salvage import RestoreResult, prepare_restored, restore, start_anew
from store.runs.writes import unfinished_runs
from store.tasks import all_tasks, instances
from supervisor.config.model import Config
from supervisor.ipc.log_line import Log, stamp
from supervisor.ipc.messages import DaemonSettings
from supervisor.ipc.plural import counted
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.database.database_file import (
    REPLACED,
    clear_problem,
    forget_file,
    note_file,
    noted_file,
    write_problem,
)
from supervisor.scheduler.loop.event_log import announced
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.startup.new_history import allow_new_history, new_history_allowed

if TYPE_CHECKING:
    from store.recovery.salvage import SalvageResult

TAKEN_UP = "taken_up"
"""Name in the store of the start time of the latest daemon that has taken over."""
_RESTORED = "restored"
"""Name in the store of a restoration that users have not been told of."""


class Restoration(NamedTuple):
    """Facts about a restored database.

    Attributes:
        text: text of the notification.
        waiting: ids of pending runs that certainly did not start.
    """

    text: str
    waiting: frozenset[str]


def open_or_restore(
    settings: DaemonSettings, durability: Durability, log: Log, *, worked: bool, lost: bool = False
) -> Database:
    """Open an SQLite database for writing; restore it from its copy if necessary.

    Args:
        settings: the settings of the daemon.
        durability: see :func:`open_writer`.
        log: the log of the scheduler.
        worked: an earlier scheduler of this daemon took over, so a history must exist; the copy may be older.
        lost: the history was lost, so a user has restored the present file.

    Raises:
        DatabaseReplaced: another file has taken the place of this daemon's database.
        HistoryLost: database and copy are damaged or missing, and the user has not allowed a new history.
        StoreError, OSError: the database cannot be opened or restored.
    """
    path = settings.database
    noted, actual = noted_file(settings), file_of(path)
    if NO_FILE not in (noted, actual) and noted != actual:
        raise DatabaseReplaced(path, REPLACED)
    newest_event = announced(settings.runtime_dir) or (0 if is_closed(path) else None)
    meta_values = {TAKEN_UP: settings.started_at} if worked else {}
    try:
        database = _opened(path, durability, log, expected=worked or had_history(path))
        if lost:
            again = Restoration("Its history was lost, and a user restored another one", frozenset())
            prepare_restored(database, time.time_ns() // 1_000_000, _remembered(again) | meta_values, newest_event or 0)
    except DatabaseDamaged as err:
        forget_file(settings)
        _start_again(settings, err, meta_values, newest_event, log, worked=worked)
        database = open_writer(path, durability)
    note_file(settings, file_of(path))
    allow_new_history(settings.data_dir, allowed=False)
    return database


def _start_again(
    settings: DaemonSettings,
    reason: DatabaseDamaged,
    meta_values: Mapping[str, object],
    newest_event: int | None,
    log: Log,
    *,
    worked: bool,
) -> None:
    """Restore the database from its copy, or begin an empty history if the user has allowed that.

    Raises:
        HistoryLost: there is no usable copy, and a new history is not allowed.
    """
    path, now_ms = settings.database, time.time_ns() // 1_000_000
    no_copy = "there is no copy"
    if copied_at_ms(path) is not None:
        try:
            outcome = restore(
                path, now_ms, lambda result: _remembered(_from_copy(result, reason)) | dict(meta_values), newest_event
            )
        except DatabaseDamaged as err:
            no_copy = f"its copy cannot be used either: {err.detail}"
        else:
            log.error(f"the database is {_restored_text(outcome)}: {reason}")
            return
    if not new_history_allowed(settings.data_dir):
        command = "recover" if worked else "up"
        remedy = f"restore a backup, or begin an empty history with: ringward {command} --new-history"
        raise HistoryLost(f"{reason.detail}; {no_copy}", remedy) from reason
    damaged_path = start_anew(
        path,
        now_ms,
        lambda damaged_path: _remembered(_from_nothing(damaged_path, reason)) | dict(meta_values),
        newest_event,
    )
    log.error(f"the database is {_new_history_text(damaged_path)}: {reason}")


def _remembered(again: Restoration) -> dict[str, object]:
    return {_RESTORED: {"told": again.text, "waiting": sorted(again.waiting)}}


def _from_copy(result: RestoreResult, reason: DatabaseDamaged) -> Restoration:
    return Restoration(f"It was {_restored_text(result)}. {reason}", result.salvaged.waiting)


def _from_nothing(damaged_path: str | None, reason: DatabaseDamaged) -> Restoration:
    return Restoration(f"It was {_new_history_text(damaged_path)}. {reason}", frozenset())


def _new_history_text(damaged_path: str | None) -> str:
    where = "" if damaged_path is None else f"; the damaged one is {damaged_path}"
    return f"new, with an empty history, as requested{where}"


def _restored_text(result: RestoreResult) -> str:
    where = "" if result.damaged is None else f"; the damaged one is {result.damaged}"
    return f"restored from its copy of {stamp(result.copied_at_ms)}; {_saved_text(result.salvaged)}{where}"


def _saved_text(salvaged: "SalvageResult") -> str:
    """Return a summary of the data newer than the copy that was saved from the damaged file."""
    if salvaged.failed:
        return f"later data is lost: {salvaged.failed}"
    if not (salvaged.runs or salvaged.changes or salvaged.current):
        return "later data is lost"
    parts = [f"saved {counted(salvaged.runs, 'later run')} and {counted(salvaged.changes, 'change')} of earlier ones"]
    if salvaged.gaps or salvaged.invalid:
        parts.append(f"unreadable parts: {salvaged.gaps}, invalid rows: {salvaged.invalid}")
    if not salvaged.current:
        parts.append("the newest data may be lost")
    return ", ".join(parts)


def restored(database: Database) -> Restoration | None:
    """Return the restoration of which users have not been told, if any."""
    stored = get_meta(database, _RESTORED)
    return stored and Restoration(stored["told"], frozenset(stored["waiting"]))


def tell_restored(again: Restoration | None, change: Change, notifications: Notifications) -> None:
    """Notify users of a restoration as part of `change`, so that it happens once."""
    if again is not None:
        notifications.database_restored(again.text, change, "The database was restored")
        change.write(set_meta, _RESTORED, None)


def _has_content(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except FileNotFoundError:
        return False


def _opened(path: str, durability: Durability, log: Log, *, expected: bool) -> Database:
    """Open the database, and read what every scheduler needs first; check the whole file if it is suspect.

    Raises:
        DatabaseDamaged: the database is damaged, or it is missing although it is `expected` or a copy exists.
    """
    if is_suspect(path):
        log.info("checking the whole database after earlier damage")
        check(path)
    if (expected or copied_at_ms(path) is not None) and not _has_content(path):
        raise DatabaseDamaged(f"({path} is missing)")
    database = open_writer(path, durability)
    try:
        for read in (unfinished_runs, all_tasks, instances, last_seq):
            read(database)
    except BaseException:  # the caller never gets the connection to close it
        database.close()
        raise
    return database


_RETRY_S = 1.0


def open_database(settings: DaemonSettings, config: Config, root: RootConnection, log: Log) -> Database:
    """Open the database for writing; wait until its server is reachable, or until a user restores its file.

    If a server refuses the connection, or the history is lost, the first scheduler of a daemon fails. A later one
    waits, and active runs continue. Under a root of another version, the schema is not migrated.

    Raises:
        RootGone: the root exited.
        StoreError: the database cannot be used, and waiting would not help.
    """
    last_error = ""
    lost = False
    while True:
        try:
            if root.refusal is not None:
                open_reader(settings.database).close()  # raises an error if the schema needs a migration
            if settings.database_url is None and root.refusal is None:
                # Not the epoch: earlier schedulers may have died before they created a database, so none is expected.
                database = open_or_restore(settings, config.storage.durability, log, worked=root.worked, lost=lost)
            else:
                database = open_writer(settings.database, config.storage.durability)
        except (ServerUnreachable, InDoubt, HistoryLost, DatabaseReplaced) as err:
            if root.epoch == 1 and isinstance(err, (ConnectionRefused, HistoryLost)):
                raise
            if str(err) != last_error:
                last_error = str(err)
                log.error(f"waiting for the database, retrying every second: {last_error}")
                if settings.database_url is None:
                    write_problem(settings, str(type(err).__doc__), last_error)
            if isinstance(err, HistoryLost):
                lost = True
                _wait_for_repair(settings, root)
        else:
            if last_error:
                log.info("the database answers")
            clear_problem(settings)
            return database
        root.wait_for_any(_RETRY_S)
        if root.epoch == 1 and root.must_shut_down:  # no run has started, so there is nothing to stop
            root.ask({"op": "ready_to_end"})
            root.wait("nothing")


def _wait_for_repair(settings: DaemonSettings, root: RootConnection) -> None:
    """Wait until the user restores the database or its copy, or allows a new history.

    A restored file is marked as suspect, because it may still be half copied; the next attempt checks it.
    """
    path = settings.database
    before = _state(path)
    while not new_history_allowed(settings.data_dir) and _state(path) == before:
        root.wait_for_any(_RETRY_S)
    if file_of(path) != NO_FILE:
        suspect(path)


def _state(path: str) -> list[tuple[int, int, int, int]]:
    files = []
    for name in (path, copy_path(path)):
        with suppress(OSError):  # ENOENT
            status = os.stat(name)
            files.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return files


def obstacle(target: str) -> str | None:
    """Return the reason why this version can never open the database; None if it can, or if waiting may help."""
    try:
        reader = open_reader(target)
        try:
            check_writable(reader)
        finally:
            reader.close()
    except SchemaTooNew as err:
        return str(err)
    except StoreError:  # it needs a migration, or is unreachable; a starting scheduler handles both
        pass
    return None
