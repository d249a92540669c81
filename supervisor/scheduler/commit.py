"""Storing before announcing: one event of the scheduler is one change, one transaction.

A change collects what to write, what to announce and what to do when both are done. Changes are committed in their
order. When the store fails (a full disk), those that somebody waits for are given up with an answer; the others stay
in order and are tried again every second, so no exit is ever forgotten.

Changes that fail one after the other come back one after the other, and what is committed meanwhile queues behind
them: the order holds over a failure too.
"""

import collections
from collections.abc import Callable
from typing import Any

from store.database import Database
from store.events import append
from store.transact import StoreThread
from supervisor.logline import Log
from supervisor.scheduler.announce import Announcer
from supervisor.scheduler.loop import Loop

_RETRY_MS = 1000

Write = Callable[[Database], Any]


class Change:
    """What one event does."""

    def __init__(self, now_ms: int, on_failed: Callable[[BaseException], bool] | None = None) -> None:
        """Start empty; `on_failed(error)` is asked when it cannot be stored: True gives the change up."""
        self.now_ms = now_ms
        self.on_failed = on_failed
        self.writes: list[Write] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.effects: list[Callable[[], None]] = []

    def write(self, function: Write) -> None:
        """Call ``function(db)`` in the transaction."""
        self.writes.append(function)

    def announce(self, kind: str, body: dict[str, Any]) -> None:
        """Append an event to the outbox in the transaction, and to the events ring afterwards."""
        self.events.append((kind, body))

    def then(self, effect: Callable[[], None]) -> None:
        """Call `effect` from the loop once all is stored."""
        self.effects.append(effect)

    @property
    def empty(self) -> bool:
        """True when there is nothing to do at all."""
        return not (self.writes or self.events or self.effects)


class StoreStuck(Exception):
    """Earlier changes cannot be stored yet."""


class Committer:
    """Gives changes to the store thread and finishes them in order."""

    def __init__(self, loop: Loop, store: StoreThread, announcer: Announcer, log: Log) -> None:
        self._loop = loop
        self._store = store
        self._announcer = announcer
        self._log = log
        self._stuck: collections.deque[Change] = collections.deque()
        self._in_flight = 0
        self.on_stored: Callable[[], None] = lambda: None
        """Called each time a change was stored or given up."""
        loop.watch(store.fileno(), lambda _mask: self._drain())

    @property
    def idle(self) -> bool:
        """True when everything is stored."""
        return not self._in_flight and not self._stuck

    def _drain(self) -> None:
        self._store.drain()

    def commit(self, change: Change) -> None:
        """Store a change, announce its events, run its effects."""
        if self._stuck:
            self._give_up(change, StoreStuck())
        elif not change.empty:
            self._submit(change)

    def _submit(self, change: Change) -> None:
        self._in_flight += 1
        self._store.submit(lambda db: self._transaction(db, change), lambda result: self._done(change, result))

    @staticmethod
    def _transaction(db: Database, change: Change) -> list[int]:
        for write in change.writes:
            write(db)
        return [append(db, kind, body, change.now_ms) for kind, body in change.events]

    def _done(self, change: Change, result: list[int] | BaseException) -> None:
        self._in_flight -= 1
        if isinstance(result, BaseException):
            self._give_up(change, result)
            return
        for number, (kind, body) in zip(result, change.events, strict=True):
            self._announcer.announce(number, kind, body, change.now_ms)
        for effect in change.effects:
            effect()
        self.on_stored()

    def _give_up(self, change: Change, error: BaseException) -> None:
        if change.on_failed is not None and change.on_failed(error):
            self.on_stored()
            return
        if not self._stuck:
            self._log.error(f"the database cannot be written, trying again every second: {error}")
            self._loop.after(_RETRY_MS, self._retry)
        self._stuck.append(change)

    def _retry(self) -> None:
        waiting, self._stuck = self._stuck, collections.deque()
        for change in waiting:
            self._submit(change)
