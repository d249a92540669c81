"""Opening the database, whose server may start later than we do."""

from store.database import Database, check_writable, open_reader, open_writer
from store.errors import Away, InDoubt, Refused, SchemaTooNew, StoreError
from supervisor.config.model import Config
from supervisor.logline import Log
from supervisor.messages import Boot
from supervisor.scheduler.mending import open_mended
from supervisor.scheduler.rootlink import RootLink

_RETRY_S = 1.0


def open_database(boot: Boot, config: Config, root: RootLink, log: Log) -> Database:
    """The writer; waits for a server that is away, for as long as the root is there.

    A server that refuses us is waited for only when it took us before: at the start of the daemon that is a mistake.
    Under a root of another version nothing is migrated.

    Raises:
        RootGone: the root has ended.
        StoreError: it cannot be used, and waiting would not help.
    """
    told = ""
    while True:
        try:
            if root.refusal is not None:
                open_reader(boot.database).close()  # refuses what is to be migrated
            if boot.database_url is None and root.refusal is None:
                database = open_mended(boot, config.storage.durability, log, worked=root.worked)
            else:
                database = open_writer(boot.database, config.storage.durability)
        except (Away, InDoubt) as err:
            if isinstance(err, Refused) and root.epoch == 1:
                raise
            if str(err) != told:
                told = str(err)
                log.error(f"waiting for the database, trying again every second: {told}")
        else:
            if told:
                log.info("the database answers")
            return database
        root.rest(_RETRY_S)
        if root.epoch == 1 and root.is_early("shutdown"):  # nothing was started yet
            root.ask({"op": "ready_to_end"})
            root.wait("nothing")


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
