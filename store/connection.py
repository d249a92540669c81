"""One connection to the database of either kind, on which queries run.

The SQL of this package is one text for both databases (store.backends.sqlite, store.backends.postgres), in the words
that both know. `?` stands for a parameter, and `INDEXED BY` names an index, which SQLite needs to be told and
PostgreSQL finds itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from store.recovery.replaced_files import File, Rescued

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
NUMBERS = "(SELECT CAST(value AS BIGINT) FROM json_each(?))"
"""A set of whole numbers, which one parameter gives as the JSON text of an array."""
TEXTS = "(SELECT value FROM json_each(?))"
"""The same of texts."""
ALL = 2**63 - 1
"""As a limit: none."""
T = TypeVar("T")
_MOST_REMEMBERED = 1000
Durability = Literal["crash", "power"]


class Connection(ABC):
    """One connection, for one thread at a time (any thread; it keeps nothing per thread or greenlet).

    Args:
        place: Where the database is, for messages: a path, or a URL without its password.
        remembers: Whether `remember` may keep anything: only in connections that do not change the data themselves.
    """

    sqlite: bool
    """Which of the two databases it is; for the migrations, whose triggers are not written alike."""

    def __init__(self, place: str, *, remembers: bool) -> None:
        self.place = place
        self._remembers = remembers
        self._seen: Hashable = None
        self._looked = False
        self._remembered: dict[Hashable, Any] = {}

    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open. A database itself ends one on some errors (disk full, connection lost)."""

    @abstractmethod
    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a query.

        Raises:
            StoreError: The subclass that says why (see store.errors).
        """

    def row(self, sql: str, params: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a query, or None."""
        rows = self.rows(sql, params)
        return rows[0] if rows else None

    @abstractmethod
    def execute(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run a statement that changes something; returns the number of rows that it changed itself."""

    @abstractmethod
    def fetch(self, query: Any) -> list[Any]:
        """All rows of a peewee select query, in the form that the query asks for (`.tuples()`, `.namedtuples()` …)."""

    @abstractmethod
    def apply(self, query: object) -> int:
        """Run a peewee insert, update or delete query; returns the number of rows changed."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All queries inside see the same state, and share one time limit."""
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
        """Begin a transaction that reads, and its time limit."""

    @abstractmethod
    def _end_snapshot(self) -> None:
        """End it, if the database has not done so."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; nested: a savepoint.

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
        except BaseException:  # whatever it is, the transaction is not to stay open
            if self.in_transaction():  # the database has not ended it by itself
                if nested:
                    self.rows("ROLLBACK TO inner_part")
                    self.rows("RELEASE inner_part")
                else:
                    self.rows("ROLLBACK")
            raise

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction that writes."""

    @abstractmethod
    def _commit(self) -> None:
        """Commit it."""

    @abstractmethod
    def without_triggers(self) -> AbstractContextManager[None]:
        """Run statements without triggers; the caller does the work of the triggers in the same transaction."""

    def scanning(self) -> AbstractContextManager[None]:
        """Statements inside have to look at every row of a table; called within a transaction."""
        return nullcontext()

    def has_backlog(self) -> bool:
        """Return whether a large part of the WAL has not been checkpointed; called within a transaction.

        If so, the commit of this transaction checkpoints the whole WAL. Background work lets that happen; otherwise the
        checkpoint falls to a later commit, and writes that arrive meanwhile wait for two fsyncs.
        """
        return False

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached result of `compute` for the key until the next commit of any writer. Only for readers.

        Called in a snapshot, so that the computed value belongs to the observed generation.
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
        """Another one after every commit of anybody else's."""

    @abstractmethod
    def usable(self) -> bool:
        """Return whether it is still connected, as far as can be told at once."""

    def rescue(self, placing: Callable[["File"], None]) -> "Rescued | None":  # noqa: ARG002 - of SQLite
        """Save data that only this unusable writer has: another connection takes its place.

        Args:
            placing: called with the file that is about to become the database.

        Returns:
            The actions taken; None: there was nothing to do.

        Raises:
            Replaced: Another database is in the place of this one, which stays as it is.
        """
        return None

    @abstractmethod
    def is_stored(self, transaction: int) -> bool:
        """Whether a transaction was committed, by its number in `InDoubt`; asked of the next writer's connection."""

    @abstractmethod
    def close(self) -> None:
        """Close; a writer of SQLite moves the WAL into the database first when no other process has it open."""
