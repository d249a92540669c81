"""Opening the database, whose server may start later than we do, or that a person has to restore."""

import os
from contextlib import suppress

from store.database import Database, check_writable, open_reader, open_writer
from store.errors import Away, InDoubt, Lost, Refused, Replaced, SchemaTooNew, StoreError
from store.recovery.copies import copy_path, suspect
from store.recovery.replaced_files import NO_FILE, file_of
from supervisor.config.model import Config
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.database.database_file import tell_problem
from supervisor.scheduler.database.restore_copy import open_mended
from supervisor.scheduler.loop.root_connection import RootLink
from supervisor.startup.new_history import new_history_allowed

_RETRY_S = 1.0


def open_database(boot: Boot, config: Config, root: RootLink, log: Log) -> Database:
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


def _rest_until_changed(boot: Boot, root: RootLink) -> None:
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
