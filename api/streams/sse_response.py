"""A response that is a stream of events, and its life cycle.

gunicorn iterates the response in the request's greenlet and closes it. The stream ends when

* the client disconnects, which a watcher on the socket notices even if the stream is idle,
* the client reads nothing for 30 s (the timeout of the socket), or its host acknowledges nothing for 30 s (TCP's own
  timeout of 15 minutes is too long),
* its session ends or its token is revoked,
* the server closes it at the connection limit,
* the worker stops,
* the run ends; the last event is ``done``.

A stream that has sent everything needs its greenlet only for events other than new lines. The feed encodes new lines
once for all streams and sends them directly on the loop. Waking a greenlet for each stream and passing each line
through gunicorn would take twice the CPU time.
"""

import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import gevent
from gevent.event import Event

from api.operations.operation import Call
from api.server.disconnect_watch import DisconnectWatch
from api.server.paced_response import PIECE_BYTES, give
from api.streams import sse_encoding
from api.streams.completion_watch import Watch
from api.streams.shared_feed import Feed
from api.worker_context import Context
from logring.reader import Head
from supervisor.host.clock import Clock

HEARTBEAT_S = 15.0
SILENT_MS = 30_000

_TAIL_LINES = 2000
"""Maximum number of new lines that a stream sends on the loop."""


class EventStream(ABC):
    """The stream of one request; subclasses define its content.

    A worker can have thousands of idle streams, so each uses as little memory as possible.
    """

    render: sse_encoding.Render = staticmethod(sse_encoding.log_line)

    def __init__(self, context: Context, call: Call) -> None:
        self.woken = Event()
        self.revoked = False
        self.credential = call.identity.credential if call.identity else None
        self.greenlet = gevent.getcurrent()
        self.context = context
        self.beat_s = self.clock.monotonic_s() + HEARTBEAT_S
        self._environ: dict[str, Any] = call.req.env
        self._feed: Feed | None = None
        self._watch: Watch | None = None
        self._departure: DisconnectWatch | None = None
        self._sock: Any = None
        # None under TLS, where sending may require receiving.
        self._plain: Any = None
        self._chunked = False
        self._position = 0
        self._shown_from = 0
        self._unsent = b""

    def open(self) -> None:
        """Acquire the stream's resources. On failure, all are released again.

        Raises:
            ApiError: 500 the log cannot be read.
        """
        try:
            self.context.feeds.start()
            self.context.feeds.streams[self] = None
            sock = self._environ["gunicorn.socket"]
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_MS)
            self._sock, self._plain = sock, None if isinstance(sock, ssl.SSLSocket) else sock
            self._chunked = self._environ["SERVER_PROTOCOL"] == "HTTP/1.1"
            self._departure = DisconnectWatch(sock, self.woken.set)
            self._acquire()
        except BaseException:  # including GreenletExit: no other code would release the resources
            self.close()
            raise

    @abstractmethod
    def _acquire(self) -> None:
        """Acquire the resources that are specific to the subclass."""

    def follow(self, name: str) -> Feed:
        """Follow a ring; its bells wake the stream."""
        feed = self._feed = self.context.feeds.enter(name)
        feed.waiters.add(self.woken)
        return feed

    @property
    def clock(self) -> Clock:
        """The clock of all streams."""
        return self.context.feeds.clock

    @property
    def over(self) -> bool:
        """Whether the stream must end now."""
        gone = self._departure is not None and self._departure.seen
        return gone or self.revoked or self.context.stopping.is_set()

    def sleep(self, at_most_s: float | None = None) -> bytes:
        """Wait until the stream is woken; return a heartbeat if one is due, otherwise b""."""
        self.woken.wait(at_most_s)
        return self.beat() if self.clock.monotonic_s() >= self.beat_s else b""

    def beat(self) -> bytes:
        """Return a heartbeat. Called when one is due."""
        return sse_encoding.HEARTBEAT

    def was_sent(self) -> None:
        """Postpone the heartbeat after anything was sent."""
        self.beat_s = self.clock.monotonic_s() + HEARTBEAT_S

    def wait_at_end(self, feed: Feed, position: int, shown_from: int) -> tuple[bytes, int]:
        """Wait like :meth:`sleep`, while `feed` sends new lines. The stream must have sent all earlier lines.

        Args:
            feed: The feed to follow.
            position: The next line to send.
            shown_from: The first available line, as the client knows it.

        Returns:
            A heartbeat if one is due, and the line at which to continue.

        Raises:
            OSError: the client disconnected, or read nothing for too long.
        """
        if self._plain is None:
            return self.sleep(), position
        self._position, self._shown_from = position, shown_from
        feed.waiters.discard(self.woken)
        feed.tails.add(self)
        try:
            beat = self.sleep()
        finally:
            feed.tails.discard(self)
            feed.waiters.add(self.woken)
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            give(self._sock, unsent)
        return beat, self._position

    def take(self, feed: Feed, head: Head) -> bool:
        """Send the feed's new lines on the loop; return False if the greenlet must continue or has other work.

        Raises:
            LogError: the log cannot be read.
            OSError: the disk failed.
        """
        if self._unsent or head.lines - self._position > _TAIL_LINES:
            return False
        if self._position < head.lines:
            chunk = feed.chunk(self._position, self.render)
            if chunk is None or not self._hand_over(feed.framed(chunk[0]) if self._chunked else chunk[0]):
                return False
            self._position = chunk[1]
        return not self._unsent and self._position == head.lines and self._shown_from >= head.first_available

    def _hand_over(self, data: bytes) -> bool:
        """Send as much as the socket accepts and keep the rest; return False if it accepts nothing."""
        if len(data) > PIECE_BYTES:
            return False
        if data:
            try:
                sent = self._plain.send(data, timeout=0.0)  # gevent's parameter: do not wait
            except OSError:  # EAGAIN, or the client is gone, which the greenlet will notice
                return False
            self._unsent = data[sent:]
            self.was_sent()
        return True

    def __iter__(self) -> Iterator[bytes]:
        # The request's environment is no longer needed; it takes a third of an idle stream's memory.
        self._environ.clear()
        for data in self.events():
            if data:
                yield data
                self.was_sent()

    @abstractmethod
    def events(self) -> Iterator[bytes]:
        """Yield the content in batches.

        A stream with more to send must let other greenlets run in between: a fast client would never block it.
        """

    def close(self) -> None:
        """Release all resources; gunicorn always calls this."""
        feeds = self.context.feeds
        feeds.streams.pop(self, None)
        if self._departure is not None:
            self._departure.close()
            self._departure = None
        if self._feed is not None:
            self._feed.waiters.discard(self.woken)
            feeds.leave(self._feed)
            self._feed = None
        if self._watch is not None:
            self._watch.waiters.discard(self.woken)
            feeds.ends.leave(self._watch)
            self._watch = None
