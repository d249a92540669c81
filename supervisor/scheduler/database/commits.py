"""Changes: everything is stored before it is announced.

A change collects writes, events to announce, and effects that follow both. Changes are stored strictly in order. While
the store is busy, new changes wait and then share a transaction; if it fails, they are stored one by one.

If a change cannot be stored (full disk, locked database), it is retried every second and blocks later ones. So no exit
is lost, and none is stored before its start. A change for which a client waits is refused instead.

While the database cannot be written, the number of waiting changes is limited by the number of runs and instances. No
new run starts, samples are dropped, and schedules are deferred (:mod:`..runs.scheduled_starts`). Only the latest
details of each instance wait (:mod:`..services.service_controller`).
"""

import collections
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from store.database import Database
from store.errors import (
    DatabaseDamaged,
    DatabaseLocked,
    DatabaseReplaced,
    DatabaseUnusable,
    DiskFailed,
    DiskFull,
    ReadOnly,
    ServerUnreachable,
)
from store.events import Draft, append_all, draft, prune
from store.store_thread import StoreThread
from supervisor.ipc.log_line import Log
from supervisor.scheduler.loop.event_log import EventLog
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Wait, Waiter

_RETRY_MS = 1000
_LINGER_MS = 5
"""How long a change that can wait does so. Its own transaction would delay changes for which clients wait."""
_SLOW_MS = 5000
_MAX_TOGETHER = 200
"""Maximum number of changes in one transaction; more would delay the first of them, for seconds on a busy host."""

_KEPT_EVENTS = 10_000
_PRUNED_EACH = 1000
"""Number of new events after which the oldest are removed."""

_UNABLE = (ServerUnreachable, DatabaseLocked, DiskFailed, DiskFull, ReadOnly, DatabaseUnusable)
"""Errors that concern the whole database, and so every change."""

_NOT_NOW = (ServerUnreachable, DatabaseLocked)
"""Errors that occur, after a wait, before any write: no change is at fault, so trying each one alone is useless."""

T = TypeVar("T")
P = ParamSpec("P")

Write = Callable[[Database], object]
OnFailed = Callable[[BaseException], None]
Events = list[tuple[str, dict[str, object]]]
"""Kind and body of each event."""
_Stored = tuple[int, list[Draft]]
"""Number of the first event, and the events, of a transaction."""


class Change:
    """The writes, events and effects that belong together and share a transaction."""

    def __init__(
        self, now_ms: int, on_failed: OnFailed | None = None, given_up_on: type[BaseException] = BaseException
    ) -> None:
        """Create an empty change. Without `on_failed`, it is retried until it is stored.

        Args:
            now_ms: the time of the change, in milliseconds since the epoch.
            on_failed: called with the error if the change is abandoned because it cannot be stored.
            given_up_on: the type of errors on which to abandon the change; after other errors it is retried.
        """
        self.now_ms = now_ms
        self.on_failed = on_failed
        self._given_up_on = given_up_on
        self._undo: list[Callable[[], None]] = []
        self.writes: list[Write] = []
        self.events: Events = []
        self.event_sources: list[Callable[[Database], Events]] = []
        self.effects: list[Callable[[], None]] = []

    def write(
        self, function: Callable[Concatenate[Database, P], object], *arguments: P.args, **named: P.kwargs
    ) -> None:
        """Call ``function(db, *arguments, **named)`` in the transaction."""
        self.writes.append(_call(function, arguments, named))

    def read(self, function: Callable[Concatenate[Database, P], T], *arguments: P.args, **named: P.kwargs) -> "Read[T]":
        """Call the function as `write` does, in order with the writes; return a handle to its result."""
        return Read(self, _call(function, arguments, named))

    def announce(self, kind: str, body: dict[str, object]) -> None:
        """Append an event to the outbox in the transaction, and to the events ring afterwards."""
        self.events.append((kind, body))

    def announce_result(self, function: Callable[[Database], Events]) -> None:
        """Call ``function(db)`` in the transaction, after all writes, and announce the events that it returns."""
        self.event_sources.append(function)

    def then(self, effect: Callable[[], None]) -> None:
        """Call `effect` in the loop after the change is stored."""
        self.effects.append(effect)

    def stored(self, waiter: Waiter) -> None:
        """Wait until the change, which another function commits, is stored."""
        self.then(waiter.resume)
        self.undo(waiter.close)

    def undo(self, function: Callable[[], None]) -> None:
        """Call `function` if the change is abandoned, before ``on_failed``."""
        self._undo.append(function)

    def give_up(self, error: BaseException) -> bool:
        """Abandon the change if `error` calls for it, and undo its effects on memory; return whether it did."""
        if self.on_failed is None or not isinstance(error, self._given_up_on):
            return False
        for undo in self._undo:
            undo()
        self.on_failed(error)
        return True

    @property
    def empty(self) -> bool:
        """Whether the change does nothing."""
        return not (self.writes or self.events or self.event_sources or self.effects)


def _call(function: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> Callable[[Database], T]:
    """Return `function` as one of the database alone."""
    return (lambda db: function(db, *arguments, **named)) if arguments or named else function


class Read(Generic[T]):
    """A read inside the transaction of a change."""

    def __init__(self, change: Change, function: Callable[[Database], T]) -> None:
        self._change = change
        self._function = function
        self._results: list[T] = []
        change.write(self._run)

    def _run(self, db: Database) -> None:
        self._results = [self._function(db)]  # a repeated transaction reads again

    @property
    def result(self) -> T:
        """The result; available to event sources and effects of the change."""
        return self._results[0]

    def then(self, effect: Callable[[T], None]) -> None:
        """Call `effect` with the result in the loop after the change is stored."""
        self._change.then(lambda: effect(self.result))


class StoreStuck(Exception):
    """A change was refused, because earlier changes cannot be stored yet."""

    def __init__(self) -> None:
        super().__init__("earlier changes cannot be stored yet")


class CommitListener:
    """Observes the store; the default methods do nothing."""

    def storing_failed(self, error: BaseException) -> None:
        """Handle the first failure to store; the handler may commit a change, which waits with the others."""

    def database_unusable(self, error: DatabaseUnusable) -> None:
        """Handle an error that means a damaged or replaced database."""

    def changes_stored(self) -> None:
        """Continue work that waits for the store; called when the store is done with some changes."""


class Committer:
    """Passes changes to the store thread, and completes them in order."""

    def __init__(self, loop: Loop, store: StoreThread, event_log: EventLog, log: Log, listener: CommitListener) -> None:
        self._loop = loop
        self._store = store
        self._event_log = event_log
        self._listener = listener
        self._log = log
        self._waiting: collections.deque[Change] = collections.deque()
        self._in_store: list[Change] = []
        self._singly = 0
        """Number of waiting changes to store one by one, because their common transaction failed."""
        self._stuck = False
        """Whether the last attempt to store the first waiting change failed."""
        self._reasons: set[type[BaseException]] = set()
        """Types of errors that were logged since the last success; each is logged once."""
        self._lingers = False
        """Whether a change waits to share a transaction."""
        self._unresponsive = False
        """Whether the store has not answered for :data:`_SLOW_MS`, perhaps because its disk hangs."""
        self._watched_batch: list[Change] | None = None
        """The changes in the store at the last check for a hang; None if no check is scheduled."""
        self._trouble_reported = False
        """Whether the present failure was reported to the listener."""
        loop.watch(store.fileno(), lambda _mask: self._drain())

    @property
    def idle(self) -> bool:
        """Whether all changes are stored."""
        return not self._in_store and not self._waiting

    @property
    def storing(self) -> bool:
        """Whether changes can be stored; if not, changes for which a client waits are refused."""
        return not (self._stuck or self._unresponsive)

    def _drain(self) -> None:
        self._store.drain()

    def change(self, on_failed: OnFailed | None = None, given_up_on: type[BaseException] = BaseException) -> Change:
        """Return a new, empty change; see :meth:`Change.__init__` for the arguments."""
        return Change(self._loop.now_ms(), on_failed, given_up_on)

    @contextmanager
    def changing(
        self, on_failed: OnFailed | None = None, given_up_on: type[BaseException] = BaseException
    ) -> Iterator[Change]:
        """Commit a new change when the block ends without an error; see :meth:`Change.__init__` for the arguments."""
        change = self.change(on_failed, given_up_on)
        yield change
        self.commit(change)

    def commit(self, change: Change, *, can_wait: bool = False) -> None:
        """Store a change, announce its events, and run its effects; `can_wait`: a few ms, to share a transaction."""
        if change.empty or (not self.storing and change.give_up(StoreStuck())):
            return
        self._waiting.append(change)
        if not self._stuck:
            if not can_wait:
                self._loop.at_round_end(self._feed)  # together with other changes of this round
            elif not self._lingers:
                self._lingers = True
                self._loop.after(_LINGER_MS, self._linger_no_more)

    def stored(self, change: Change) -> Wait:
        """Commit a change that is retried until it is stored, and wait for that."""
        return partial(self._commit_for, change)

    def stored_or_refused(self, change: Change) -> Wait:
        """Commit a change for which a client waits, and wait until it is stored."""
        return partial(self._commit_or_refuse, change)

    def _commit_for(self, change: Change, waiter: Waiter) -> None:
        change.then(waiter.resume)
        self.commit(change)

    def _commit_or_refuse(self, change: Change, waiter: Waiter) -> None:
        change.on_failed = waiter.refuse
        self._commit_for(change, waiter)

    def _linger_no_more(self) -> None:
        self._lingers = False
        if not self._stuck:
            self._feed()

    def _feed(self) -> None:
        """Pass waiting changes to the store unless it is busy."""
        if self._in_store or not self._waiting:
            return
        count = 1 if self._singly else min(len(self._waiting), _MAX_TOGETHER)
        changes = [self._waiting.popleft() for _ in range(count)]
        self._singly = max(0, self._singly - 1)
        self._in_store = changes
        if self._watched_batch is None:
            self._check_later()
        self._store.submit(lambda db: _transaction(db, changes), self._done)

    def _check_later(self) -> None:
        self._watched_batch = self._in_store
        self._loop.after(_SLOW_MS, self._check_store)

    def _check_store(self) -> None:
        """Check whether the store is still busy with the same batch."""
        watched, self._watched_batch = self._watched_batch, None
        if not self._in_store:
            return
        if self._in_store is not watched:
            self._check_later()
        elif not self._unresponsive:
            self._unresponsive = True
            self._log.error("the database has not answered for 5 s; nothing is stored until it does")
            self._refuse_waiting()
            self._report_trouble(DiskFailed("(no answer for 5 s)"))

    def _report_trouble(self, error: BaseException) -> None:
        if not self._trouble_reported:
            self._trouble_reported = True
            self._listener.storing_failed(error)

    def _refuse_waiting(self) -> None:
        """Refuse all changes for which a client waits."""
        # Iterate over a separate queue: a refused change may commit another one at once.
        waiting, self._waiting = self._waiting, collections.deque()
        retried = [change for change in waiting if not change.give_up(StoreStuck())]
        self._waiting.extendleft(reversed(retried))

    def _done(self, result: _Stored | BaseException) -> None:
        changes, self._in_store = self._in_store, []
        if isinstance(result, (DatabaseDamaged, DatabaseReplaced)):
            self._listener.database_unusable(result)
        if self._unresponsive:
            self._unresponsive = False
            self._log.info("the database answers again")
        if not isinstance(result, BaseException):
            self._trouble_reported = False
            self._event_log.announce(*result)
            for change in changes:
                for effect in change.effects:
                    effect()
            self._event_log.ring_at_round_end()  # answers to requests are sent before readers wake up
        elif len(changes) > 1 and not isinstance(result, _NOT_NOW):
            self._waiting.extendleft(reversed(changes))
            self._singly = len(changes)
        elif retried := [change for change in changes if not change.give_up(result)]:
            self._waiting.extendleft(reversed(retried[1:]))
            self._retry_later(retried[0], result)
            return
        elif isinstance(result, _UNABLE):
            self._report_trouble(result)
        if self._stuck:
            self._stuck = False
            self._reasons.clear()
            self._log.info(f"the database can be written again; {len(self._waiting)} more changes were waiting")
        self._loop.at_round_end(self._feed)
        self._listener.changes_stored()

    def _retry_later(self, change: Change, error: BaseException) -> None:
        """Keep a failed change at the head of the queue, and refuse later ones for which a client waits."""
        self._stuck = True
        self._refuse_waiting()
        self._waiting.appendleft(change)
        self._singly = 1
        if type(error) not in self._reasons:  # another error needs another remedy, so it is logged too
            self._reasons.add(type(error))
            self._log.error(f"cannot write the database, retrying every second: {error}")
        self._report_trouble(error)
        self._loop.after(_RETRY_MS, self._feed)

    def close(self) -> None:
        """Store waiting changes until one fails, and close the store."""
        poll = select.poll()
        poll.register(self._store.fileno(), select.POLLIN)
        self._feed()
        while self._in_store:
            poll.poll()
            self._store.drain()
        self._store.close()


def _transaction(db: Database, changes: list[Change]) -> _Stored:
    drafts = []
    for change in changes:
        for write in change.writes:
            write(db)
        events = [*change.events]
        for event_source in change.event_sources:
            events += event_source(db)
        drafts += [draft(kind, body, change.now_ms) for kind, body in events]
    if not drafts:
        return 0, drafts
    first = append_all(db, drafts)
    if (first - 1) // _PRUNED_EACH != (first - 1 + len(drafts)) // _PRUNED_EACH:
        prune(db, _KEPT_EVENTS)
    return first, drafts
