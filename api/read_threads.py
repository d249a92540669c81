"""Reads of the database and of log files, in threads outside gevent's loop.

A query of a few milliseconds on the loop would stall every stream. A read from a hanging disk blocks its thread, so the
database, pages of logs and searches have separate threads.
"""

import contextlib
import errno
import logging
import time
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

import gevent
from gevent.lock import BoundedSemaphore

from api.errors import unavailable
from api.server.fair_semaphore import FairSemaphore
from api.server.log_format import MessageLimit
from api.server.thread_pool import Threads
from store.database import Database, open_reader
from store.errors import DatabaseDamaged, DatabaseNotOpened, NotReady, QueryTimeout, ServerSlow, StoreError
from supervisor.ipc.control_client import ControlClient, RequestRefused, Unavailable

log = logging.getLogger("gunicorn.error")
P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 2
_TURNS = 2 * _THREADS
"""Number of concurrent reads: for each thread, a running read and the next one, ready to run."""
_READ_S = 5.0
"""Time limit for the start of a read, and again for its result."""
_HUNG_S = 0.5
"""The same limit after a read timed out, until the next read succeeds or fails."""
_COMING_S = 3.0
"""Time for which a read waits until the scheduler has opened the database, or has replaced a damaged one."""
_POLL_S = 0.02
_FILE_S = 10.0
"""Time limit for the read of a part of a log file, including the wait for earlier reads."""
_SEARCHES = 4
_TURN_S = 5.0


class DatabaseReads:
    """Reads of the database in two threads.

    A worker has two objects of this class. Pages of runs can take most of a second each; because they have their own
    threads, they delay neither authentication nor other requests.
    """

    def __init__(self, path: str, on_damage: Callable[[StoreError], None]) -> None:
        """`on_damage` is called if a query finds damage, or if the database has disappeared; it must not block."""
        self._path = path
        self._on_damage = on_damage
        self._db: Database | None = None
        self._threads = Threads(_THREADS)
        self._turns = FairSemaphore(_TURNS)
        self._hung = False
        """Whether a read timed out and none has finished since. A hanging disk blocks threads despite time limits."""
        self._coming = BoundedSemaphore()
        """Held by the read that checks whether the database exists yet; other reads wait for it."""
        self._patient = True
        """Whether the last wait for the database was successful."""
        self._failures = MessageLimit(1)

    def start(self) -> None:
        """Start the threads.

        Raises:
            RuntimeError: a thread could not be started.
        """
        self._threads.start()

    def __call__(self, query: Callable[Concatenate[Database, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `query` in one of the threads and return its result, which must not be a lazy cursor.

        Raises:
            StoreError: NotReady if the scheduler has not created the database yet; QueryTimeout if the disk hangs or
                too many reads are queued; errors of `query`.
        """
        patience_s = _HUNG_S if self._hung else _READ_S
        with self._turns.turn(patience_s, QueryTimeout("(too many reads at once)")):
            return self._read(query, *args, **kwargs)

    def _read(self, query: Callable[Concatenate[Database, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            try:
                if self._db is None:
                    self._db = open_reader(self._path)
                result = query(self._db, *args, **kwargs)
            finally:
                self._hung = False
            self._patient = True
            return result

        try:
            return self._in_time(lambda: self._try(run))
        except ServerSlow:  # its limit is one of time, not of work; it may only have been busy
            return self._in_time(lambda: self._try(run))
        except NotReady:  # the read returned, so the disk works
            return self._in_time(lambda: self._run(run))

    def _in_time(self, read: Callable[[], T]) -> T:
        limit_s = _HUNG_S if self._hung else _READ_S
        late = QueryTimeout(f"(no answer for {limit_s} s: its disk hangs or is overloaded)")
        try:
            with gevent.Timeout(limit_s, late):
                return read()
        except QueryTimeout as err:
            self._hung = self._hung or err is late
            raise

    def log_unreadable(self, subject: str, error: StoreError) -> None:
        """Log that `subject` could not be read, at most once a minute.

        Streams and clients retry often, and even a request with an invalid credential causes a read.
        """
        suppressed = None if type(error) is NotReady else self._failures.turn()  # NotReady is normal at the first start
        if suppressed is None:
            return
        before = f" (and {suppressed} earlier ones, not logged)" if suppressed else ""
        problem = (
            "reading the database took too long" if isinstance(error, QueryTimeout) else "cannot read the database"
        )
        log.error("%s: %s%s: %s", subject, problem, before, error)

    def _run(self, run: Callable[[], T]) -> T:
        """Call `run`, and retry for up to `_COMING_S` until the scheduler has opened the database."""
        until_s = time.monotonic() + _COMING_S
        with self._coming:
            while True:
                try:
                    return self._try(run)
                except NotReady:
                    self._patient = self._patient and time.monotonic() < until_s
                    if not self._patient:
                        raise
                gevent.sleep(_POLL_S)

    def _try(self, run: Callable[[], T]) -> T:
        """Call `run` once in a thread; report damage to the scheduler."""
        try:
            return self._threads(run)
        except OSError as err:
            raise StoreError(f"({err.strerror})") from err
        except DatabaseNotOpened:  # the scheduler notices this itself
            raise
        except DatabaseDamaged as err:
            self._on_damage(err)
            raise
        except NotReady as err:
            if self._db is not None:  # otherwise the scheduler has not created it yet
                self._on_damage(err)
            raise


class LogFileReads(Threads):
    """Reads of log files in two separate threads, so that a hanging disk does not block the database."""

    def __init__(self) -> None:
        super().__init__(_THREADS)
        self._turns = FairSemaphore(_TURNS)

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in a thread; return its result or raise its exception.

        Raises:
            TimeoutError: the disk hangs, or too many reads are queued.
            OSError: EAGAIN if no thread could be started.
        """
        late = TimeoutError(errno.ETIMEDOUT, "its disk hangs or is overloaded")
        with gevent.Timeout(_FILE_S, late), self._turns.turn():
            return super().__call__(function, *args, **kwargs)


class LogSearches(Threads):
    """Searches of log files, which take turns in a separate thread."""

    def __init__(self) -> None:
        super().__init__(1)
        self._turns = FairSemaphore(_SEARCHES)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn among the few concurrent searches.

        Raises:
            ApiError: 503 no turn came in time.
        """
        with self._turns.turn(_TURN_S, unavailable("Too many concurrent searches; try again later")):
            yield


_AGAIN_S = 5.0
"""Minimum time between two reports of a worker, because many queries can find the same damage."""


class DamageReport:
    """Reports of damage from one worker to the scheduler."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self._not_before_s = 0.0

    def send(self, error: StoreError) -> None:
        """Report damage without waiting for the scheduler."""
        now_s = time.monotonic()
        if now_s >= self._not_before_s:
            self._not_before_s = now_s + _AGAIN_S
            gevent.spawn(self._send, str(error))

    def _send(self, reason: str) -> None:
        with contextlib.suppress(Unavailable, RequestRefused):  # the next query that finds the damage reports it again
            self._control.call("database_damaged", why=reason)
