"""Reads of the database and of log files, in threads beside gevent's loop.

A query of some milliseconds on the loop would stall every stream. A disk that hangs keeps a thread for as long as it
hangs, so the database, pages of logs and searches have threads of their own.
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
from api.server.fair_semaphore import Turns
from api.server.log_format import Seldom
from api.server.thread_pool import Threads
from store.database import Database, open_reader
from store.errors import Away, Damaged, NotReady, QueryTimeout, StoreError, Unopened
from supervisor.ipc.control_client import ControlClient, Refused, Unavailable

log = logging.getLogger("gunicorn.error")
P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 2
_TURNS = 2 * _THREADS
"""While a thread has one, another one is ready for it."""
_READ_S = 5.0
"""How long the database may take for an answer, and as long the turn may take to come before that."""
_HUNG_S = 0.5
"""The limit after a slow read, until the next answer."""
_COMING_S = 3.0
"""How long a read waits for a database that the scheduler has to open first: while another one takes its place, say."""
_LOOK_S = 0.02
_FILE_S = 10.0
"""How long a log file may take for a part of it, with all that is read before."""
_SEARCHES = 4
_PLACE_S = 5.0


class Reads:
    """The database, read in two threads: a query of some milliseconds on gevent's loop would stall every stream.

    There are two of these: who asks for many pages of runs at once, which can take most of a second each, is not to
    keep everybody else from being known, nor runs from being triggered and shown.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._db: Database | None = None
        self._threads = Threads(_THREADS)
        self._turns = Turns(_TURNS)
        self._hung = False
        """Nothing came for too long: a disk that hangs keeps the threads, whatever the limit of a query."""
        self._coming = BoundedSemaphore()
        """One looks whether the database has come; the others wait for that."""
        self._patient = True
        """Whether that was not in vain the last time."""
        self.on_damage: Callable[[StoreError], None] = lambda _error: None
        """Called with damage that a query has met, or when a database is gone that was there; never waits."""
        self._failures = Seldom(1)

    def __call__(self, query: Callable[Concatenate[Database, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `query` with the database in one of the threads and return what it returns (never a lazy cursor).

        Raises:
            StoreError: NotReady while the scheduler has not made it yet; QueryTimeout when nothing comes, because the
                disk hangs, or too much is asked at once; whatever `query` raises.
        """
        patience_s = _HUNG_S if self._hung else _READ_S
        with self._turns.turn(patience_s, QueryTimeout("(too much is asked at once)")):
            return self._read(query, *args, **kwargs)

    def _read(self, query: Callable[Concatenate[Database, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            try:
                if self._db is None:
                    self._db = open_reader(self._path)
                found = query(self._db, *args, **kwargs)
            finally:
                self._hung = False
            self._patient = True
            return found

        limit_s = _HUNG_S if self._hung else _READ_S
        late = QueryTimeout(f"(nothing came for {limit_s} s: its disk does not answer, or is overloaded)")
        try:
            with gevent.Timeout(limit_s, late):
                return self._try(run)
        except QueryTimeout as err:
            self._hung = self._hung or err is late
            raise
        except Away:  # its server is, or the daemon looks after that itself
            raise
        except NotReady:  # something came: it is not the disk that everybody waits for
            late = QueryTimeout(f"(nothing came for {_READ_S} s: its disk does not answer, or is overloaded)")
        with gevent.Timeout(_READ_S, late):
            return self._run(run)

    def tell(self, what: str, error: StoreError) -> None:
        """Log that `what` could not be read, once a minute: streams try it again and again, and so may anybody.

        Even the rejection of a credential reads the database.
        """
        untold = None if type(error) is NotReady else self._failures.turn()  # a first start is no failure
        if untold is None:
            return
        before = f" (and {untold} more before, not told)" if untold else ""
        log.error("%s: the database could not be read%s: %s", what, before, error)

    def _run(self, run: Callable[[], T]) -> T:
        """Again and again for a while, as long as the scheduler has to come first."""
        until_s = time.monotonic() + _COMING_S
        with self._coming:
            while True:
                try:
                    return self._try(run)
                except NotReady:
                    self._patient = self._patient and time.monotonic() < until_s
                    if not self._patient:
                        raise
                gevent.sleep(_LOOK_S)

    def _try(self, run: Callable[[], T]) -> T:
        """In a thread; reports damage."""
        try:
            return self._threads(run)
        except OSError as err:
            raise StoreError(f"({err.strerror})") from err
        except (Away, Unopened):  # the daemon sees that itself
            raise
        except Damaged as err:
            self.on_damage(err)
            raise
        except NotReady as err:
            if self._db is not None:  # else the scheduler has not made it yet
                self.on_damage(err)
            raise


class Files(Threads):
    """Log files, read in two other threads: a disk that hangs must not hold up the database as well."""

    def __init__(self) -> None:
        super().__init__(_THREADS)
        self._turns = Turns(_TURNS)

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a part of a log in a thread; return the result of `function` returns, and raises what it raises.

        Raises:
            TimeoutError: nothing comes, because the disk hangs, or too much is asked at once.
            OSError: EAGAIN, no thread may be had.
        """
        late = TimeoutError(errno.ETIMEDOUT, "its disk does not answer, or is overloaded")
        with gevent.Timeout(_FILE_S, late), self._turns.turn():
            return super().__call__(function, *args, **kwargs)


class Searches(Threads):
    """Log files, searched in turns in a thread of their own: pages of logs and streams have theirs for themselves."""

    def __init__(self) -> None:
        super().__init__(1)
        self._turns = Turns(_SEARCHES)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """One of the few searches that may take turns at a time.

        Raises:
            ApiError: 503 no place became free for a while.
        """
        with self._turns.turn(_PLACE_S, unavailable("Too many searches are going on")):
            yield


_AGAIN_S = 5.0
"""Between two reports of a worker: one query after the other may meet the same damage."""


class DamageReport:
    """What one worker reports."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self._not_before_s = 0.0

    def send(self, error: StoreError) -> None:
        """Report it, without waiting for anybody."""
        now_s = time.monotonic()
        if now_s >= self._not_before_s:
            self._not_before_s = now_s + _AGAIN_S
            gevent.spawn(self._send, str(error))

    def _send(self, why: str) -> None:
        with contextlib.suppress(Unavailable, Refused):  # the next query that meets it reports it again
            self._control.call("database_damaged", why=why)
