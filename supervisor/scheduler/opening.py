"""Opening the database, whose server may start later than we do."""

from store.database import Database, open_writer
from store.errors import Away
from supervisor.config.model import Config
from supervisor.logline import Log
from supervisor.messages import Boot
from supervisor.scheduler.rootlink import RootLink

_RETRY_S = 1.0


def open_database(boot: Boot, config: Config, root: RootLink, log: Log) -> Database:
    """The writer; waits for a server that is away, for as long as the root is there.

    Raises:
        RootGone: the root has ended.
        StoreError: it cannot be used, and waiting would not help.
    """
    told = ""
    while True:
        try:
            database = open_writer(boot.database, config.storage.durability)
        except Away as err:
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
