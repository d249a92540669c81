"""Watches for the end of runs.

A stream may send ``done`` only after the database records the end of the run. Two hints make a watch read the run's
row: a sealed ring, and any event of the run except its creation and start, because an event is published after its row
is stored. The rows of all watched runs are read in batches, off the event loop.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from gevent.event import Event

from api.read_threads import DatabaseReads
from api.streams.shared_feed import Feed, Wakeable
from logring.block import Line
from logring.errors import LogError
from store.database import Database
from store.errors import StoreError
from store.runs import writes as store_runs
from supervisor.host.clock import Clock

log = logging.getLogger("gunicorn.error")

EVENTS = "events"

_POLL_S = 0.25
_ROW_POLL_S = 2.0
_BEGINNING = re.compile(rb'\{"seq":[0-9]+,"kind":"run\.(created|started)"')
_ULID = re.compile(rb"[0-9A-HJKMNP-TV-Z]{26}")


def _without_beginnings(record: Line) -> bytes:
    text = record.text
    return b"" if _BEGINNING.match(text) else text


class Rings(Protocol):
    """The part of the feeds that the watches need."""

    def start(self) -> None:
        """Start the greenlets that follow rings."""

    @property
    def clock(self) -> Clock:
        """The clock of all streams."""

    def feed(self, name: str) -> AbstractContextManager[Feed]:
        """Follow a ring for the duration of the context."""


class Watch:
    """A wait for the end of one run."""

    def __init__(self, run_id: str, *, urgent: bool) -> None:
        self.run_id = run_id
        self.users = 0
        self.outcome: str | None = None
        """``ended`` or ``deleted``; None while the run is alive."""
        self.lines = 0
        """Number of lines in the row of an ended run, even if its log is gone."""
        self.seen = False
        """Whether a read has found the run's row."""
        self.urgent = urgent
        self.looked_s = 0.0
        self.waiters: set[Wakeable] = set()

    def wait(self, stopping: Event) -> None:
        """Return when the run has ended, or when the worker stops."""
        woken = Event()
        self.waiters.add(woken)
        try:
            while self.outcome is None and not stopping.is_set():
                woken.wait()
                woken.clear()
        finally:
            self.waiters.discard(woken)


class CompletionWatches:
    """All watches of one worker."""

    def __init__(self, rings: Rings, reads: DatabaseReads) -> None:
        self._rings = rings
        self._reads = reads
        self._watches: dict[str, Watch] = {}
        self._due = Event()

    @contextmanager
    def watch(self, run_id: str, *, urgent: bool = True) -> Iterator[Watch]:
        """Watch a run, which need not exist yet, for the duration of the context."""
        watch = self.enter(run_id, urgent=urgent)
        try:
            yield watch
        finally:
            self.leave(watch)

    def enter(self, run_id: str, *, urgent: bool = True) -> Watch:
        """Start to watch a run, which need not exist yet; the caller must call :meth:`leave`.

        With `urgent`, the row is read at once, because the run may already have ended. Otherwise it is read after an
        event of the run, or within two seconds.
        """
        watch = self._watches.get(run_id)
        if watch is None:
            watch = self._watches[run_id] = Watch(run_id, urgent=urgent)
            watch.looked_s = self._rings.clock.monotonic_s()
        watch.users += 1
        self._rings.start()
        if urgent:
            watch.urgent = True
            self._due.set()
        return watch

    def leave(self, watch: Watch) -> None:
        """Release a watch that :meth:`enter` returned; the last user ends it."""
        watch.users -= 1
        if not watch.users:
            del self._watches[watch.run_id]

    def wake(self) -> None:
        """Wake all waiting greenlets, so they can check whether the worker stops."""
        for watch in self._watches.values():
            for waiter in watch.waiters:
                waiter.set()

    def follow_events(self) -> None:
        """Greenlet: schedule reads of the rows of runs that events mention."""
        woken = Event()
        with self._rings.feed(EVENTS) as feed:
            feed.unpaced.add(woken)
            position = 0
            while True:
                try:
                    # Without watches, skip all events up to now.
                    position = self._note(feed, position) if self._watches else feed.head().lines
                    self._due.set()
                except (LogError, OSError) as err:
                    log.warning("the events ring cannot be read: %s", err)
                woken.wait()
                woken.clear()

    def _note(self, feed: Feed, position: int) -> int:
        text, following = feed.chunk(position, _without_beginnings) or (b"", position)
        for match in _ULID.finditer(text):
            watch = self._watches.get(match.group().decode())
            if watch is not None:
                watch.urgent = True
        if following < feed.head().lines:
            feed.rang()
        return following

    def poll_rows(self) -> None:
        """Greenlet: read the rows that are due; every row is due at least every two seconds."""
        while True:
            self._due.wait(_POLL_S)
            self._due.clear()
            due: list[str] = []
            now_s = self._rings.clock.monotonic_s()
            for run_id, watch in self._watches.items():
                if watch.outcome is None and (watch.urgent or now_s - watch.looked_s >= _ROW_POLL_S):
                    watch.urgent = False
                    watch.looked_s = now_s
                    due.append(run_id)
            if due:
                try:
                    self._apply_outcomes(self._reads(_outcomes, due))
                except StoreError as err:
                    self._reads.log_unreadable("rows of watched runs", err)

    def _apply_outcomes(self, outcomes: dict[str, tuple[str, int]]) -> None:
        for run_id, (outcome, lines) in outcomes.items():
            watch = self._watches.get(run_id)
            # A run under creation has no row yet; only a run with a row can be deleted.
            if watch is None or (outcome == "absent" and not watch.seen):
                continue
            watch.seen = True
            if outcome != "alive":
                watch.outcome = "deleted" if outcome == "absent" else outcome
                watch.lines = lines
                for waiter in watch.waiters:
                    waiter.set()


def _outcomes(db: Database, run_ids: list[str]) -> dict[str, tuple[str, int]]:
    outcomes = {}
    for run_id in run_ids:
        run = store_runs.get_run(db, run_id)
        outcome = "absent" if run is None else "ended" if run.status == "ended" else "alive"
        outcomes[run_id] = outcome, 0 if run is None else run.lines
    return outcomes
