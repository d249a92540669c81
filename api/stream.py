"""Following rings: many streams, one loop.

    doorbell socket -> Bell (a greenlet per socket) -> Feed of that ring -> the streams that wait for it

A *feed* is one ring followed by any number of streams of this worker: one reader, one rendering of what is new, one
pace. The first bell after quiet wakes the streams at once; while bells keep coming they are woken after pauses that
double from 5 ms (more with many streams) to 20 ms, and always once more after the last bell. A poll of all heads
every 250 ms stands behind the bells.

*Ends* watches for the end of runs. A stream may say ``done`` only after the run's row says ended; the events ring
announces that after it is stored, so every id of a watched run that appears there makes the row be read, and so does
a sealed ring. Rows of watched runs are read in one batch, off the loop.
"""

import errno
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import gevent
from gevent.event import Event

from api.context import Reads
from api.errors import ApiError, no_memory
from api.identity import Credential
from api.sse import Render
from api.sse import page as render_page
from logring.errors import Corrupt, LogError
from logring.paths import log_path, ring_path
from logring.reader import Head, LogReader, Page
from store import runs as store_runs
from store.database import Database
from store.errors import StoreError
from store.runs import Run
from supervisor.doorbell import DoorbellClient
from supervisor.messages import Boot

log = logging.getLogger("gunicorn.error")

PACE_S = 0.02
GAP_S = 0.005
GAP_EACH_S = 0.0001
POLL_S = 0.25
EVENTS = "events"
DAEMON = "daemon"
LIVE_LINES = 2000
LIVE_BYTES = 65536

_KEPT_CHUNKS = 4
_ROW_POLL_S = 2.0
_BEAT_POLLS = 4
_CREDENTIAL_POLLS = 16
_BACKOFF_S = (0.05, 0.1, 0.25, 0.5, 1.0)
_ULID = re.compile(rb"[0-9A-HJKMNP-TV-Z]{26}")


def _plain(record: Any) -> bytes:
    text: bytes = record.text
    return text


Chunk = tuple[bytes, int]
Rows = tuple[bytes, ...]


def read_page(reader: LogReader, start: int, limit: int, max_bytes: int) -> Page:
    """A page; damaged lines count as lines that are gone.

    Raises:
        LogError: nothing of the log can be read.
        OSError: the disk failed.
    """
    while True:
        try:
            return reader.read(start, limit, max_bytes)
        except Corrupt as err:
            if err.next is None or err.next <= start:
                raise
            log.warning("a log is damaged: %s", err)
            if err.first is not None and err.first > start:
                return reader.read(start, min(limit, err.first - start), max_bytes)
            return Page([], err.next, err.next - start)


class Feed:
    """One ring that streams follow.

    Only the ring is read, never the disk: this happens on the loop. Lines that have left the ring are for those who
    want them to fetch in a thread; a ring without a log file has the whole truth, so there they are gone.
    """

    def __init__(self, name: str, ring: str, *, alone: bool) -> None:
        self.name = name
        self.users = 0
        self.waiters: set[Event] = set()
        self.hasty: set[Event] = set()
        """Woken by every bell, without a pause."""
        self._ring = ring
        self._alone = alone
        self._reader = LogReader(ring, None)
        self._inode = _inode(ring)
        self._head: Head | None = None
        self._unfinished: dict[int, Rows] | None = None
        self._chunks: OrderedDict[tuple[int, Render], Chunk] = OrderedDict()
        self._woken_s = 0.0
        self._gap_s = 0.0
        self._timer: Any = None

    def head(self) -> Head:
        """Where the log stands, as far as the ring tells: read once after each bell, for all streams."""
        if self._head is None:
            self._head = self._reader.head()
        return self._head

    def head_now(self) -> Head:
        """Where it stands at this moment, for who begins: what a client has seen already can be ahead of our bells."""
        if self._reader.head() != self._head:
            self.rang()
        return self.head()

    def chunk(self, start: int, render: Render) -> Chunk | None:
        """Rendered lines from `start` on and the line to go on with, shared by all who stand there.

        None: line `start` is no longer in the ring, or the ring is gone.
        """
        key = (start, render)
        known = self._chunks.get(key)
        if known is not None:
            return known
        page = read_page(self._reader, start, LIVE_LINES, LIVE_BYTES)
        if page.next == start or (page.skipped and not self._alone):
            return None
        made = (render_page(page, start, render), page.next)
        self._chunks[key] = made
        if len(self._chunks) > _KEPT_CHUNKS:
            self._chunks.popitem(last=False)
        return made

    def unfinished(self) -> dict[int, Rows]:
        """The unfinished lines by stream, and what is drawn, read once after each bell."""
        if self._unfinished is None:
            found = {pending.stream: tuple(pending.text.split(b"\n")) for pending in self._reader.pending()}
            found.update((region.stream, region.rows) for region in self._reader.region())
            self._unfinished = found
        return self._unfinished

    def rang(self) -> None:
        """There is news: wake the streams now, or in time."""
        self._head = self._unfinished = None
        for waiter in self.hasty:
            waiter.set()
        if self._timer is not None or not self.waiters:
            return
        wait_s = self._woken_s + self._gap_s - time.monotonic()
        if wait_s <= 0:
            self._gap_s = min(PACE_S, GAP_S + GAP_EACH_S * len(self.waiters))
            self._wake()
        else:
            self._gap_s = min(PACE_S, 2 * self._gap_s)
            self._timer = gevent.get_hub().loop.timer(wait_s)
            self._timer.start(self._wake)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self._woken_s = time.monotonic()
        for waiter in self.waiters:
            waiter.set()

    def poll(self) -> None:
        """Ring when something changed without a bell."""
        if self._alone:
            self._follow_replacement()
        if self._reader.head() != self._head:
            self.rang()

    def _follow_replacement(self) -> None:
        """A scheduler that starts makes a new events ring, whose numbers go on."""
        inode = _inode(self._ring)
        if inode is not None and inode != self._inode:
            self._reader.close()
            self._reader = LogReader(self._ring, None)
            self._inode = inode
            self._chunks.clear()

    def close(self) -> None:
        """Nobody follows it any more."""
        if self._timer is not None:
            self._timer.close()
        self._reader.close()


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


class Bell:
    """One doorbell socket and its greenlet, which starts with the first subscription."""

    def __init__(self, path: str, token: str, feeds: dict[str, Feed]) -> None:
        self._path = path
        self._token = token
        self._feeds = feeds
        self._names: set[str] = set()
        self._client: DoorbellClient | None = None
        self._started = False

    def subscribe(self, name: str) -> None:
        """Hear of this ring."""
        self._names.add(name)
        if not self._started:
            self._started = True
            gevent.spawn(self._listen)
        self._send("subscribe", name)

    def unsubscribe(self, name: str) -> None:
        """Hear of it no more."""
        self._names.discard(name)
        self._send("unsubscribe", name)

    def _send(self, verb: str, name: str) -> None:
        if self._client is not None:
            try:
                getattr(self._client, verb)(name)
            except OSError as err:  # EPIPE, ECONNRESET: the listener connects again and subscribes all
                log.debug("the doorbell %s is gone: %s", self._path, err)

    def _listen(self) -> None:
        failures = 0
        while True:
            try:
                client = DoorbellClient(self._path, self._token)
                for name in self._names:
                    client.subscribe(name)
            except OSError:  # nobody listens there, for the moment
                gevent.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1
                continue
            failures = 0
            self._client = client
            # Subscribed during the connection's making, or rung while there was none.
            for name in list(self._names):
                self._send("subscribe", name)
                self._ring(name)
            self._hear(client)
            self._client = None
            client.close()

    def _hear(self, client: DoorbellClient) -> None:
        """Until the writer is gone. Bells are heard on the loop itself: a greenlet would have to be woken first."""
        gone = Event()
        watcher = gevent.get_hub().loop.io(client.fileno(), 1)
        watcher.start(self._heard, client, gone)
        try:
            gone.wait()
        finally:
            watcher.stop()
            watcher.close()

    def _heard(self, client: DoorbellClient, gone: Event) -> None:
        names = client.heard()
        if names is None:
            gone.set()
            return
        for name in names:
            self._ring(name)

    def _ring(self, name: str) -> None:
        feed = self._feeds.get(name)
        if feed is not None:
            feed.rang()


class Watch:
    """Somebody waits for the end of one run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.users = 0
        self.outcome: str | None = None
        """ended or deleted, once it is so."""
        self.seen = False
        """Whether the run had a row."""
        self.urgent = True
        self.looked_s = 0.0
        self.waiters: set[Event] = set()

    def wait(self, stopping: Event) -> None:
        """Return when the run has ended or the worker is to end."""
        woken = Event()
        self.waiters.add(woken)
        try:
            while self.outcome is None and not stopping.is_set():
                woken.wait()
                woken.clear()
        finally:
            self.waiters.discard(woken)


class Ends:
    """Watches for the end of runs; see the module."""

    def __init__(self, hub: "Hub", reads: Reads) -> None:
        self._hub = hub
        self._reads = reads
        self._watches: dict[str, Watch] = {}
        self._due = Event()

    @contextmanager
    def watch(self, run_id: str) -> Iterator[Watch]:
        """Watch a run, which need not exist yet."""
        watch = self.enter(run_id)
        try:
            yield watch
        finally:
            self.leave(watch)

    def enter(self, run_id: str) -> Watch:
        """Begin to watch a run, which need not exist yet; :meth:`leave` has to follow."""
        watch = self._watches.get(run_id)
        if watch is None:
            watch = self._watches[run_id] = Watch(run_id)
        watch.users += 1
        self._hub.start()
        self._due.set()
        return watch

    def leave(self, watch: Watch) -> None:
        """Watch it no more."""
        watch.users -= 1
        if not watch.users:
            del self._watches[watch.run_id]

    def wake(self) -> None:
        """Wake everybody who waits for an end."""
        for watch in self._watches.values():
            for waiter in watch.waiters:
                waiter.set()

    def follow_events(self) -> None:
        """Greenlet: look at the rows of runs that events speak of."""
        woken = Event()
        with self._hub.feed(EVENTS) as feed:
            feed.hasty.add(woken)
            position = 0
            while True:
                try:
                    # Without a watch nothing before now matters.
                    position = self._note(feed, position) if self._watches else feed.head().lines
                    self._due.set()
                except (LogError, OSError) as err:
                    log.warning("the events ring cannot be read: %s", err)
                woken.wait()
                woken.clear()

    def _note(self, feed: Feed, position: int) -> int:
        text, following = feed.chunk(position, _plain) or (b"", position)
        for match in _ULID.finditer(text):
            watch = self._watches.get(match.group().decode())
            if watch is not None:
                watch.urgent = True
        if following < feed.head().lines:
            feed.rang()
        return following

    def look(self) -> None:
        """Greenlet: read the rows that are due; every row at least every two seconds."""
        while True:
            self._due.wait(POLL_S)
            self._due.clear()
            due: list[str] = []
            now_s = time.monotonic()
            for run_id, watch in self._watches.items():
                if watch.outcome is None and (watch.urgent or now_s - watch.looked_s >= _ROW_POLL_S):
                    watch.urgent = False
                    watch.looked_s = now_s
                    due.append(run_id)
            if due:
                try:
                    self._settle(self._reads(_outcomes, due))
                except StoreError as err:
                    log.warning("rows of watched runs could not be read: %s", err)

    def _settle(self, outcomes: dict[str, str]) -> None:
        for run_id, outcome in outcomes.items():
            watch = self._watches.get(run_id)
            # A run that is being triggered has no row yet; only one that had a row can be deleted.
            if watch is None or (outcome == "absent" and not watch.seen):
                continue
            watch.seen = True
            if outcome != "alive":
                watch.outcome = "deleted" if outcome == "absent" else outcome
                for waiter in watch.waiters:
                    waiter.set()


def _outcomes(db: Database, run_ids: list[str]) -> dict[str, str]:
    found = {}
    for run_id in run_ids:
        run = store_runs.get_run(db, run_id)
        found[run_id] = "absent" if run is None else "ended" if run.status == "ended" else "alive"
    return found


class Follower(Protocol):
    """A stream, as far as the hub knows it."""

    woken: Event
    revoked: bool
    credential: Credential | None
    beat_s: float
    """When it has to say something, if only that it is still there (monotonic)."""


class Hub:
    """All feeds, bells, watches and streams of one worker."""

    def __init__(self, boot: Boot, reads: Reads, valid: Callable[[Credential], bool]) -> None:
        self.streams: set[Follower] = set()
        self._boot = boot
        self._valid = valid
        self._feeds: dict[str, Feed] = {}
        self._root_bell = Bell(boot.root_bell, boot.token, self._feeds)
        self._scheduler_bell = Bell(boot.scheduler_bell, boot.token, self._feeds)
        self._started = False
        self.ends = Ends(self, reads)

    def start(self) -> None:
        """Start the greenlets; called with the first stream, so that an idle worker has none."""
        if not self._started:
            self._started = True
            gevent.spawn(self._poll)
            gevent.spawn(self.ends.follow_events)
            gevent.spawn(self.ends.look)

    def wake(self) -> None:
        """Wake every stream and everybody who waits for an end: the worker is to end."""
        for stream in self.streams:
            stream.woken.set()
        self.ends.wake()

    def _poll(self) -> None:
        rounds = 0
        while True:
            gevent.sleep(POLL_S)
            for feed in list(self._feeds.values()):
                try:
                    feed.poll()
                except (LogError, OSError) as err:
                    log.warning("the ring %s cannot be read: %s", feed.name, err)
            rounds += 1
            if rounds % _BEAT_POLLS == 0:
                self._wake_silent()
            if rounds % _CREDENTIAL_POLLS == 0:
                gevent.spawn(self._check_credentials)

    def _wake_silent(self) -> None:
        """Wake the streams whose heartbeat is due: one timer for all of them, an idle one costs nothing."""
        now_s = time.monotonic()
        for stream in self.streams:
            if now_s >= stream.beat_s:
                stream.woken.set()

    def _check_credentials(self) -> None:
        """End the streams whose session has ended, or whose token was revoked or has expired."""
        for credential in {stream.credential for stream in self.streams if stream.credential is not None}:
            try:
                valid = self._valid(credential)
            except StoreError as err:
                log.warning("a %s could not be read: %s", credential.kind, err)
                continue
            if not valid:
                for stream in self.streams:
                    if stream.credential == credential:
                        stream.revoked = True
                        stream.woken.set()

    def paths(self, run: Run) -> tuple[str, str]:
        """Ring and log file of a run."""
        return ring_path(self._boot.runtime_dir, run.id), log_path(self._boot.data_dir, run.task_name, run.id)

    @contextmanager
    def feed(self, name: str) -> Iterator[Feed]:
        """Follow a ring: subscribed before the head is read, so that nothing falls between."""
        feed = self.enter(name)
        try:
            yield feed
        finally:
            self.leave(feed)

    def enter(self, name: str) -> Feed:
        """Begin to follow a ring; :meth:`leave` has to follow."""
        self.start()
        feed = self._feeds.get(name)
        if feed is None:
            feed = Feed(name, ring_path(self._boot.runtime_dir, name), alone=name in (EVENTS, DAEMON))
            self._feeds[name] = feed
            self._bell(name).subscribe(name)
        feed.users += 1
        return feed

    def leave(self, feed: Feed) -> None:
        """Follow it no more."""
        feed.users -= 1
        if not feed.users:
            del self._feeds[feed.name]
            self._bell(feed.name).unsubscribe(feed.name)
            feed.close()

    def _bell(self, name: str) -> Bell:
        return self._scheduler_bell if name == EVENTS else self._root_bell


def unreadable(name: str, err: Exception) -> ApiError:
    """The 500 for a log that cannot be read at all; unlike other failures it says why, but not where the file is.

    (503 for one that could be read if there were memory.)
    """
    if isinstance(err, OSError) and err.errno == errno.ENOMEM:
        return no_memory(name)
    log.error("the log of %s cannot be read: %s", name, err)
    why = err.strerror if isinstance(err, OSError) else str(err).rpartition("/")[2]
    return ApiError(500, f"The log cannot be read: {why}")
