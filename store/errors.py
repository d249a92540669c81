"""Errors of the store. A class's docstring is its default message.

StoreError
├── NotReady                  not created or not migrated yet: try again
│   └── DatabaseNotOpened     the scheduler has to open it first, because this reader may not create files beside it
├── ServerUnreachable         the database server cannot be reached
│   └── ConnectionRefused     the server rejects the connection
├── InDoubt                   the connection to the server was lost during a commit
├── SchemaTooNew              written by a newer release
├── DatabaseUnusable          not a database, another application's, or cannot be opened
│   ├── DatabaseDamaged       damaged
│   │   └── HistoryLost       its copy is damaged as well, or both are gone
│   └── DatabaseReplaced      another file has its name
├── DatabaseClosed            used after close()
├── ReadOnly                  a write through a reader, or a read-only file system
├── DatabaseLocked            another connection holds the write lock
├── QueryTimeout              a reader's query did too much work, or was late
│   └── ServerSlow            the database server needed too long for a query, perhaps only because it was busy
├── DiskFull                  the disk is full; nothing was stored
├── DiskFailed                the disk reported an error; nothing was stored
└── Conflict                  a row with that key already exists
    └── InstantTaken          the task already has a run for that scheduled instant
"""


class StoreError(Exception):
    """The store failed."""

    def __init__(self, detail: str = "", remedy: str = "") -> None:
        self.detail = detail
        message = type(self).__doc__ or "The store failed."
        if detail:
            message = f"{message.removesuffix('.')} ({detail})"
        super().__init__(f"{message}; {remedy}" if remedy else message)


class NotReady(StoreError):
    """The database is not ready yet; the scheduler creates and migrates it when it starts."""


class DatabaseNotOpened(NotReady):
    """The database waits for the scheduler to open it."""


class ServerUnreachable(StoreError):
    """The database server cannot be reached."""


class ConnectionRefused(ServerUnreachable):
    """The database server refuses the connection."""


class InDoubt(StoreError):
    """The database server went away during a commit."""

    def __init__(self, detail: str, transaction: int) -> None:
        super().__init__(detail)
        self.transaction = transaction
        """Number of the transaction, with which the next connection can find out whether it was stored."""


class SchemaTooNew(StoreError):
    """The database was written by a newer release than this one."""


class DatabaseUnusable(StoreError):
    """The database cannot be used."""


class DatabaseDamaged(DatabaseUnusable):
    """The database is damaged."""


class HistoryLost(DatabaseDamaged):
    """The history is lost, as neither the database nor a copy of it can be read."""


class DatabaseReplaced(DatabaseUnusable):
    """Another file took the place of the database that is in use."""


class DatabaseClosed(StoreError):
    """The database was closed."""


class ReadOnly(StoreError):
    """The database can only be read here."""


class DatabaseLocked(StoreError):
    """Another connection kept the database locked."""


class QueryTimeout(StoreError):
    """The query took longer than a reader's query may."""


class ServerSlow(QueryTimeout):
    """The database server took longer than a reader's query may."""


class DiskFull(StoreError):
    """The disk is full, so nothing was stored."""


class DiskFailed(StoreError):
    """The disk failed, so nothing was stored."""


class Conflict(StoreError):
    """A row with this key is there already, or a value is outside its range."""


class InstantTaken(Conflict):
    """The task has its run for this scheduled instant already."""
