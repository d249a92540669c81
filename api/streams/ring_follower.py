"""Following rings for many streams on one event loop.

    doorbell socket -> DoorbellWatch (a greenlet per socket) -> Feed of that ring -> the streams that wait for it

In case a bell is lost, all heads are also polled every 250 ms.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Protocol

import gevent
from gevent.event import Event

from api.auth.identity import Credential
from api.errors import ApiError, shortage
from api.read_threads import DatabaseReads
from api.streams.completion_watch import EVENTS, CompletionWatches
from api.streams.shared_feed import Budget, Feed
from logring.errors import LogError
from logring.follower import POLL_S
from logring.log_paths import log_path, ring_path
from store.errors import StoreError
from store.runs.writes import Run
from supervisor.host.clock import Clock
from supervisor.host.shortage import is_shortage
from supervisor.ipc.backoff import backoff
from supervisor.ipc.doorbell import PRE_WAKE, DoorbellClient
from supervisor.ipc.messages import DaemonSettings

log = logging.getLogger("gunicorn.error")

DAEMON = "daemon"

_BEAT_POLLS = 4
_CREDENTIAL_POLLS = 16
_BACKOFF_S = (0.05, 0.1, 0.25, 0.5, 1.0)


class DoorbellWatch:
    """A doorbell socket and its greenlet, which starts with the first subscription."""

    def __init__(self, path: str, token: str, feeds: dict[str, Feed]) -> None:
        self._client = DoorbellClient(path, token)
        self._feeds = feeds
        self._started = False

    def subscribe(self, name: str) -> None:
        """Subscribe to the bells of a ring."""
        if not self._started:
            self._started = True
            gevent.spawn(self._listen)
        self._client.subscribe(name)

    def unsubscribe(self, name: str) -> None:
        """Cancel the subscription to a ring."""
        self._client.unsubscribe(name)

    def _listen(self) -> None:
        failures = 0
        while True:
            fd = self._client.connect()
            if fd is None:
                gevent.sleep(backoff(_BACKOFF_S, failures))
                failures += 1
                continue
            failures = 0
            for name in list(self._client.names):  # cover bells rung before the connection
                self._ring(name)
            self._receive(fd)
            self._client.close()

    def _receive(self, fd: int) -> None:
        """Receive bells until the writer is gone. They are handled on the loop: waking a greenlet takes longer."""
        gone = Event()
        watcher = gevent.get_hub().loop.io(fd, 1)
        watcher.start(self._on_bell, gone)
        try:
            gone.wait()
        finally:
            watcher.stop()
            watcher.close()

    def _on_bell(self, gone: Event) -> None:
        names = self._client.receive()
        if names is None:
            gone.set()
            return
        for name in names:
            self._ring(name)

    def _ring(self, name: str) -> None:
        feed = self._feeds.get(name)
        if feed is not None:
            feed.rang()
        elif name.startswith(PRE_WAKE):
            feed = self._feeds.get(name[len(PRE_WAKE) :])
            if feed is not None:
                feed.expect()


class Follower(Protocol):
    """The part of a stream that the feeds uses."""

    woken: Event
    revoked: bool
    credential: Credential | None
    greenlet: gevent.Greenlet
    beat_s: float
    """Monotonic time by which the stream must send something, at least a heartbeat."""


class Feeds:
    """All feeds, bells, watches and streams of one worker."""

    def __init__(
        self,
        settings: DaemonSettings,
        reads: DatabaseReads,
        valid: Callable[[Credential], bool],
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.streams: dict[Follower, None] = {}
        """All open streams, oldest first."""
        self._settings = settings
        self._reads = reads
        self._valid = valid
        self._feeds: dict[str, Feed] = {}
        self._budget = Budget()
        self._root_bell = DoorbellWatch(settings.root_bell, settings.token, self._feeds)
        self._scheduler_bell = DoorbellWatch(settings.scheduler_bell, settings.token, self._feeds)
        self._started = False
        self.ends = CompletionWatches(self, reads)

    def start(self) -> None:
        """Start the greenlets, once. The first stream calls this, so an idle worker has none."""
        if not self._started:
            self._started = True
            gevent.spawn(self._poll)
            gevent.spawn(self.ends.follow_events)
            gevent.spawn(self.ends.poll_rows)

    def wake(self) -> None:
        """Wake all streams and all waits for the end of runs, because the worker stops."""
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
        """Wake streams whose heartbeat is due. All streams share one timer, so idle streams cost nothing."""
        now_s = self.clock.monotonic_s()
        for stream in self.streams:
            if now_s >= stream.beat_s:
                stream.woken.set()

    def _check_credentials(self) -> None:
        """End the streams whose session has ended, or whose token was revoked or has expired."""
        for credential in {stream.credential for stream in self.streams if stream.credential is not None}:
            try:
                valid = self._valid(credential)
            except StoreError as err:
                self._reads.log_unreadable(f"a {credential.kind}", err)
                continue
            if not valid:
                for stream in self.streams:
                    if stream.credential == credential:
                        stream.revoked = True
                        stream.woken.set()

    def stream_to_close(self, candidates: Container[gevent.Greenlet]) -> gevent.Greenlet | None:
        """Return the oldest stream in `candidates` of the client that has most of them; None if there is no stream."""
        here = [stream for stream in self.streams if stream.greenlet in candidates]
        most = Counter(stream.credential for stream in here).most_common(1)
        return next((stream.greenlet for stream in here if stream.credential == most[0][0]), None)

    def paths(self, run: Run) -> tuple[str, str]:
        """Return the paths of a run's ring and log file."""
        return ring_path(self._settings.runtime_dir, run.id), log_path(self._settings.data_dir, run.task_name, run.id)

    @contextmanager
    def feed(self, name: str) -> Iterator[Feed]:
        """Follow a ring for the duration of the context. It is subscribed before the first read, to miss no line."""
        feed = self.enter(name)
        try:
            yield feed
        finally:
            self.leave(feed)

    def enter(self, name: str) -> Feed:
        """Start to follow a ring; the caller must call :meth:`leave`."""
        self.start()
        feed = self._feeds.get(name)
        if feed is None:
            ring = ring_path(self._settings.runtime_dir, name)
            feed = Feed(name, ring, self._budget, self.clock, alone=name in (EVENTS, DAEMON))
            self._feeds[name] = feed
        feed.users += 1  # first, because subscribing may block while other users leave
        if feed.users == 1:
            self._bell(name).subscribe(name)
        return feed

    def leave(self, feed: Feed) -> None:
        """Release a feed that :meth:`enter` returned; the last user closes it."""
        feed.users -= 1
        if not feed.users:
            del self._feeds[feed.name]
            self._bell(feed.name).unsubscribe(feed.name)
            feed.close()

    def _bell(self, name: str) -> DoorbellWatch:
        return self._scheduler_bell if name == EVENTS else self._root_bell


def unreadable(name: str, err: Exception) -> ApiError:
    """Return a 500 for an unreadable log. Its detail has the reason, but not the path of the file.

    If the process lacks memory, threads or descriptors, it is a 503 instead.
    """
    if is_shortage(err):
        return shortage(name, err)
    log.error("the log of %s cannot be read: %s", name, err)
    reason = err.strerror if isinstance(err, OSError) else str(err).rpartition("/")[2]
    return ApiError(500, f"The log cannot be read: {reason}")
