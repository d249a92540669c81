"""The store thread, which executes all writes.

    loop thread ── submit(fn, done) ──▶ queue ──▶ store thread: one transaction for all that is queued, fn(db) for each
    loop thread ◀── drain() calls done(result) ◀── finished, eventfd ◀──┘ after the commit

An idle thread commits at once; functions that arrive during a commit form the next transaction. If a function fails,
which is rare, all functions run once more, each in a savepoint, so that the failure affects no other. If the whole
transaction is lost (disk full, I/O error), each function runs once more in its own transaction. Small writes may then
still succeed.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from store.connection import Connection
from store.database import Database, FilesListener, take_over
from store.errors import DatabaseClosed, DatabaseLocked, DiskFull, InDoubt, ServerUnreachable, StoreError
from store.recovery.replaced_files import File

T = TypeVar("T")

MAX_BATCH = 1000  # maximum number of functions in a transaction; limits the time until the first is acknowledged


_IN_DOUBT_POLL_S = 0.5


class _StoreJob(NamedTuple):
    run: Callable[[Database], object]
    done: Callable[[Any], None]


_NOT_NOW = (DatabaseLocked, ServerUnreachable)


class _TransactionLost(Exception):
    """The transaction ended before its commit; none of its changes are stored."""


class _FunctionFailed(Exception):
    """A function failed, but the transaction can still store the others."""


class StoreListener(FilesListener):
    """Listener for problems in the store thread. The default methods do nothing.

    `before_replace` and `full` are called in the store thread, `rescued` by :meth:`StoreThread.drain`.
    """

    def full(self) -> bool:
        """Handle a full disk; return whether there may be space now, so that the transaction is worth another try."""
        return False


class StoreThread(FilesListener):
    """Runs functions on the writer, in order, in a separate thread.

    Any thread may call `submit`; only the loop's thread may call `drain` and `close`.

    Args:
        database: A writer. From now on it belongs to the store thread, which closes it at the end.
        listener: Listener for problems; None to ignore them.
    """

    def __init__(self, database: Database, listener: StoreListener | None = None) -> None:
        self._listener = listener or StoreListener()
        self._database = database
        self._queue: SimpleQueue[_StoreJob | None] = SimpleQueue()
        self._finished: deque[tuple[_StoreJob, object]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = threading.Event()
        self._close_error: StoreError | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()
        self._ready.wait()

    def fileno(self) -> int:
        """Return a descriptor that is readable while results wait for `drain`."""
        return self._bell

    def submit(self, run: Callable[[Database], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a function in a transaction, and call `done` with its result once it is stored, or with its exception.

        Args:
            run: Called in the store thread. It may be called again after its changes were rolled back, so it must only
                change the database.
            done: Called by `drain`, in the loop's thread.

        Raises:
            DatabaseClosed: `close` was called.
        """
        if self._closing.is_set():
            raise DatabaseClosed(f"{self._database.location}")
        self._queue.put(_StoreJob(run, done))

    def drain(self) -> int:
        """Call `done` of all finished functions, in the order of submission; return their number.

        An exception in a `done` is raised. The rest is then left to the next call, and `fileno` stays readable.
        """
        with contextlib.suppress(BlockingIOError):  # EAGAIN: nothing has finished since the last call
            os.eventfd_read(self._bell)
        n = len(self._finished)  # a fixed number, because the store thread may add results as fast as this loop
        try:
            for _ in range(n):
                job, result = self._finished.popleft()
                job.done(result)
        finally:
            if self._finished:
                os.eventfd_write(self._bell, 1)
        return n

    def close(self) -> None:
        """Finish all submitted functions, call every `done`, and close the database. Later calls do nothing.

        Raises:
            StoreError: Closing the database failed; acknowledged data is stored all the same.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._queue.put(None)
        self._thread.join()
        with contextlib.suppress(Empty):
            while job := self._queue.get_nowait():  # another thread submitted it at the same moment
                self._finished.append((job, DatabaseClosed(f"{self._database.location}")))
        try:
            self.drain()
        finally:
            os.close(self._bell)
        if self._close_error is not None:
            raise self._close_error

    def _work(self) -> None:
        take_over(self._database, self)
        self._ready.set()
        more = True
        while more:
            batch, more = self._next_batch()
            if batch:
                self._finished.extend(zip(batch, self._store(batch), strict=True))
                os.eventfd_write(self._bell, 1)
        try:
            self._database.close()
        except StoreError as err:
            self._close_error = err

    def before_replace(self, file: File) -> None:
        """Pass the file on to the listener."""
        self._listener.before_replace(file)

    def rescued(self, text: str) -> None:
        """Make `drain` pass the message on. The current transaction signals its descriptor."""
        self._finished.append((_StoreJob(lambda _db: None, self._listener.rescued), text))

    def _next_batch(self) -> tuple[list[_StoreJob], bool]:
        """Wait for a function, then take all waiting ones. Return them, and whether to continue afterwards."""
        job = self._queue.get()
        batch: list[_StoreJob] = []
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch, True
            try:
                job = self._queue.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _store(self, batch: list[_StoreJob]) -> list[object]:
        """Store a batch. Return the result of each function: a value, which is stored, or an exception."""
        if len(batch) > 1:
            try:
                return self._together(batch)
            except _NOT_NOW as err:  # raised after a wait, which not every function should repeat
                return [err] * len(batch)
            except (StoreError, _TransactionLost):
                pass
        results: list[object] = []
        for job in batch:
            waited = bool(results) and isinstance(results[-1], _NOT_NOW)
            results.append(results[-1] if waited else self._alone(job))
        return results

    def _alone(self, job: _StoreJob) -> object:
        try:
            return self._in_transaction(lambda _: job.run(self._database))
        except BaseException as err:  # noqa: BLE001 - whatever a function raises is its own result
            return err

    def _together(self, batch: list[_StoreJob]) -> list[object]:
        try:
            return self._in_transaction(lambda connection: [self._unguarded(connection, job) for job in batch])
        except _FunctionFailed:
            return self._in_transaction(lambda connection: [self._one(connection, job) for job in batch])

    def _in_transaction(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction and return its result once it is stored; retry after a full disk."""
        try:
            return self._at_once(work)
        except DiskFull:
            if not self._listener.full():
                raise
        return self._at_once(work)

    def _at_once(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._database.transaction() as connection:
                result = work(connection)
        except InDoubt as doubt:
            if not self._is_stored(doubt):
                raise ServerUnreachable(f"{self._database.location}") from doubt
        return result

    def _is_stored(self, doubt: InDoubt) -> bool:
        """Wait for the server, then return whether the transaction was stored.

        Nothing may be written before that is known, or it could be written twice.
        """
        while True:
            try:
                return self._database.is_stored(doubt)
            except StoreError:
                if self._closing.wait(_IN_DOUBT_POLL_S):
                    raise doubt from None

    def _unguarded(self, connection: Connection, job: _StoreJob) -> object:
        try:
            return job.run(self._database)
        except BaseException as err:  # as in _alone
            raise (_FunctionFailed if connection.in_transaction() else _TransactionLost) from err

    def _one(self, connection: Connection, job: _StoreJob) -> object:
        try:
            with connection.transaction():
                return job.run(self._database)
        except BaseException as err:  # as in _alone
            if not connection.in_transaction():
                raise _TransactionLost from err
            return err
