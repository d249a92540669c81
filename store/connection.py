"""The interface of a connection, on which queries run, to a database of either kind.

The SQL of the store is the same text for both databases (store.backends.sqlite, store.backends.postgres), in a common
dialect. `?` stands for a parameter. `INDEXED BY` names the index for SQLite; PostgreSQL chooses it itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from store.recovery.replaced_files import File, FileRepair

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
NUMBERS = "(SELECT CAST(value AS BIGINT) FROM json_each(?))"
"""A set of integers. Its one parameter is the JSON text of an array."""
TEXTS = "(SELECT value FROM json_each(?))"
"""A set of texts. Its one parameter is the JSON text of an array."""
ALL = 2**63 - 1
"""A LIMIT that stands for no limit."""
T = TypeVar("T")
_MOST_REMEMBERED = 1000
Durability = Literal["crash", "power"]


class Connection(ABC):
    """One connection. Any thread may use it, but only one at a time; it keeps no state per thread or greenlet.

    Args:
        location: Name of the database in messages: a path, or a URL without its password.
        remembers: Whether `remember` may cache values; only for connections that do not change the data themselves.
    """

    sqlite: bool
    """Whether the database is SQLite rather than PostgreSQL; for migrations, whose triggers differ."""

    def __init__(self, location: str, *, remembers: bool) -> None:
        self.location = location
        self._remembers = remembers
        self._seen: Hashable = None
        self._looked = False
        self._remembered: dict[Hashable, Any] = {}

    @abstractmethod
    def in_transaction(self) -> bool:
        """Return whether a transaction is open. Some errors end it (disk full, connection lost)."""

    @abstractmethod
    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a query.

        Raises:
            StoreError: One of the subclasses in store.errors.
        """

    def attempt(self, sql: str, params: Sequence[Value], most_steps: int) -> list[Row] | None:  # noqa: ARG002 - of SQLite
        """Return all rows of a query, or None when it is stopped after so many steps. Only SQLite counts steps.

        Raises:
            StoreError: As `rows`.
        """
        return self.rows(sql, params)

    def row(self, sql: str, params: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a query; None if there are no rows."""
        rows = self.rows(sql, params)
        return rows[0] if rows else None

    @abstractmethod
    def execute(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run a statement that changes data; return the number of rows that it, not its triggers, changed."""

    @abstractmethod
    def fetch(self, query: Any) -> list[Any]:
        """Return all rows of a peewee select query, in the form that it requests (`.tuples()`, `.namedtuples()` …)."""

    @abstractmethod
    def apply(self, query: object) -> int:
        """Run a peewee insert, update or delete query; return the number of changed rows."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all queries in the context see the same state and share one time limit."""
        if self.in_transaction():
            yield
            return
        self._begin_snapshot()
        self._looked = False
        try:
            yield
        finally:
            self._end_snapshot()

    @abstractmethod
    def _begin_snapshot(self) -> None:
        """Begin a read transaction and its time limit."""

    @abstractmethod
    def _end_snapshot(self) -> None:
        """End the read transaction, unless the database has already ended it."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Store all changes in the context together, or none. A nested transaction is a savepoint.

        Raises:
            InDoubt: The connection was lost during the commit.
        """
        nested = self.in_transaction()
        if nested:
            self.rows("SAVEPOINT inner_part")
        else:
            self._begin()
        try:
            yield
            if nested:
                self.rows("RELEASE inner_part")
            else:
                self._commit()
        except BaseException:  # no transaction may stay open, whatever the error
            if self.in_transaction():  # the database has not ended it itself
                if nested:
                    self.rows("ROLLBACK TO inner_part")
                    self.rows("RELEASE inner_part")
                else:
                    self.rows("ROLLBACK")
            raise

    @abstractmethod
    def _begin(self) -> None:
        """Begin a write transaction."""

    @abstractmethod
    def _commit(self) -> None:
        """Commit the write transaction."""

    @abstractmethod
    def without_triggers(self) -> AbstractContextManager[None]:
        """Disable triggers in the context. The caller must do their work in the same transaction."""

    def scanning(self) -> AbstractContextManager[None]:
        """Prepare for statements that read every row of a table. Call this within a transaction."""
        return nullcontext()

    def has_backlog(self) -> bool:
        """Return whether a large part of the WAL has not been checkpointed. Call this within a transaction.

        If so, the commit of this transaction starts a checkpoint of the whole WAL. Background work waits for it.
        Otherwise a later commit would have to checkpoint, and other writes would wait for two fsyncs.
        """
        return False

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, which readers cache under the key until the next commit of any writer.

        Call this in a snapshot: the computed value must belong to the observed generation.
        """
        if not self._remembers:
            return compute()
        if not self._looked:
            generation = self._generation()
            if generation != self._seen:
                self._seen = generation
                self._remembered.clear()
            self._looked = True
        if key not in self._remembered:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = compute()
        value: T = self._remembered[key]
        return value

    @abstractmethod
    def _generation(self) -> Hashable:
        """Return a value that changes with every commit of another connection."""

    @abstractmethod
    def usable(self) -> bool:
        """Return whether the connection seems to work. This does not wait."""

    def rescue(self, before_replace: Callable[["File"], None]) -> "FileRepair | None":  # noqa: ARG002 - of SQLite
        """Save the data that only this unusable writer has, before another connection replaces it.

        Args:
            before_replace: called with the file that is about to become the database.

        Returns:
            A report of the repair; None if there was nothing to do.

        Raises:
            DatabaseReplaced: Another database has the name of this one. Nothing was changed.
        """
        return None

    @abstractmethod
    def is_stored(self, transaction: int) -> bool:
        """Return whether the transaction with this number in `InDoubt` was committed; for the next connection."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. A SQLite writer first checkpoints the WAL, unless another process has it open."""
