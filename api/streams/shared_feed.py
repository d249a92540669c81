"""One ring followed by any number of this worker's streams, which share the reader, the rendering and the pace.

The feed itself sends new lines to streams at the end of the ring; it wakes other streams.

The first bell after a pause wakes the streams at once. While more bells follow, a wake-up waits until the worker can
afford it (:class:`Budget`), but 20 ms at most. There is always a wake-up after the last bell.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import gevent
from gevent.event import Event

from api.server.paced_response import frame
from api.streams.sse_encoding import Render, log_batch
from api.streams.sse_encoding import page as render_page
from logring.errors import LogError
from logring.follower import undamaged
from logring.reader import Batch, Head, Line, Lines, LogReader, Page
from supervisor.host.clock import Clock

log = logging.getLogger("gunicorn.error")

PACE_S = 0.02
"""Maximum time for which lines wait to be sent together."""
_SHARE = 0.1
_WAITER_S = 0.0001
"""Approximate processor time that a woken stream uses later, in its own greenlet."""
LIVE_LINES = 2000
LIVE_BYTES = 65536

_KEPT_CHUNKS = 4

Chunk = tuple[bytes, int]
Rows = tuple[bytes, ...]


def read_page(reader: LogReader, start: int, limit: int, max_bytes: int) -> Page[Line]:
    """Read a page of lines; damaged lines count as removed.

    Raises:
        LogError: no part of the log can be read.
        OSError: the disk failed.
    """
    return noted(undamaged(reader.read, start, limit, max_bytes))


def read_rendered(reader: LogReader, start: int, limit: int, max_bytes: int, render: Render) -> Chunk:
    """Read a page and render it as events; return them and the line at which to continue.

    Raises:
        LogError: no part of the log can be read.
        OSError: the disk failed.
    """
    read: Any = reader.read_batches if render is log_batch else reader.read
    page = noted(undamaged(read, start, limit, max_bytes))
    return render_page(page, start, render), page.next


def noted(page: Page[Lines]) -> Page[Lines]:
    """Log the damage that a page passed over, and return the page."""
    if page.damage:
        log.warning("a log is damaged: %s", page.damage)
    return page


class Wakeable(Protocol):
    """An object that waits for changes of a ring or a run, such as an `Event`."""

    def set(self) -> None:
        """Record a change. This must not block."""


class Tail(Protocol):
    """A stream that has sent everything and waits for new lines."""

    woken: Event

    def take(self, feed: "Feed", head: Head) -> bool:
        """Send new lines without blocking; return whether all were sent."""


class Budget:
    """Limits the wake-ups of a worker to a tenth of a processor, as long as no line waits for more than 20 ms.

    With few streams, lines therefore arrive within a millisecond or two. With many streams or chatty runs, each wake-up
    serves more lines, because its cost hardly depends on their number. Elapsed time does not count: a client that a
    wake-up serves may run on the same processor meanwhile.
    """

    def __init__(self) -> None:
        self.free_s = 0.0
        """Monotonic time at which the next wake-up is affordable."""

    def spend(self, start_s: float, used_s: float) -> None:
        """Account for a wake-up that began at `start_s` and used `used_s` of a processor.

        Unused time is not saved up. Excess over the budget is forgotten after 20 ms, because lines wait no longer.
        """
        self.free_s = min(max(self.free_s, start_s) + used_s / _SHARE, start_s + PACE_S)


class Feed:
    """A ring that streams follow.

    It reads only the ring and never the disk, because it runs on the loop. Lines that have left the ring are read by
    the streams in a thread; without a log file they are lost.
    """

    def __init__(self, name: str, ring: str, budget: Budget, clock: Clock, *, alone: bool) -> None:
        self.name = name
        self.users = 0
        self.waiters: set[Wakeable] = set()
        self.tails: set[Tail] = set()
        self.unpaced: set[Event] = set()
        """Streams that every bell wakes, without pacing."""
        self._ring = ring
        self._budget = budget
        self._clock = clock
        self._alone = alone
        self._reader = LogReader(ring, None)
        self._inode = _inode(ring)
        self._head: Head | None = None
        self._unfinished: dict[int, Rows] | None = None
        self._chunks: OrderedDict[tuple[int, Render], Chunk] = OrderedDict()
        self._framed = b"", b""
        self._given = b""
        """Mark of the ring when all tails were up to date and no stream had work left; empty if one has."""
        self._woken_s = 0.0
        self._timer: Any = None

    def head(self) -> Head:
        """Return the head of the log as of the last wake-up. It is read once for all streams.

        With a newer head, the streams that are served last would send lines that arrived meanwhile, and break the pace.
        """
        if self._head is None:
            self._head = self._reader.head()
        return self._head

    @property
    def has_ring(self) -> bool:
        """Whether the ring existed when the head was last read.

        A ring is created with the first line and removed at the end of the log.
        """
        return self._reader.has_ring

    def head_now(self) -> Head:
        """Return the current head for a new stream, whose client may know of lines newer than the last bell."""
        head = self._reader.head()
        if self._head is None:  # all streams have been woken since the last read
            self._head = head
        elif head != self._head:
            self.rang()
        return head

    def chunk(self, start: int, render: Render) -> Chunk | None:
        """Return rendered lines from `start` on, and the line at which to continue.

        Streams at the same line share the result. It is None if line `start` has left the ring, or the ring is gone.
        """
        key = (start, render)
        chunk = self._chunks.get(key)
        if chunk is not None:
            return chunk
        made = self.part(start, render, LIVE_LINES)
        if made is None:
            return None
        self._chunks[key] = made
        if len(self._chunks) > _KEPT_CHUNKS:
            self._chunks.popitem(last=False)
        return made

    def part(self, start: int, render: Render, limit: int) -> Chunk | None:
        """Return a chunk like :meth:`chunk`, but with at most `limit` lines, and not shared with other streams."""
        if render is log_batch:
            return self._rendered(self._reader.read_batches, start, limit, render)
        newest = self._reader.newest(start, limit, LIVE_BYTES)
        if newest is not None:
            return b"".join(map(render, newest)), start + len(newest)
        return self._rendered(self._reader.read, start, limit, render)

    def batches(self, start: int, limit: int, max_bytes: int) -> Page[Batch] | None:
        """Return lines from `start` on in batches; None if line `start` has left the ring, or the ring is gone."""
        page = noted(undamaged(self._reader.read_batches, start, limit, max_bytes))
        return None if page.next == start or page.skipped else page

    def _rendered(
        self, read: Callable[[int, int, int], Page[Lines]], start: int, limit: int, render: Render
    ) -> Chunk | None:
        page = noted(undamaged(read, start, limit, LIVE_BYTES))
        if page.next == start or (page.skipped and not self._alone):
            return None
        return render_page(page, start, render), page.next

    def framed(self, data: bytes) -> bytes:
        """Return rendered lines as a chunk of a body, encoded once for all streams that send them."""
        if self._framed[0] is not data:
            self._framed = data, frame(data)
        return self._framed[1]

    def unfinished(self) -> dict[int, Rows]:
        """Return unfinished lines and drawings by stream, read once after each bell."""
        if self._unfinished is None:
            unfinished = {pending.stream: tuple(pending.text.split(b"\n")) for pending in self._reader.pending()}
            if self.head().region_epoch:  # 0 if nothing was ever drawn
                unfinished.update((region.stream, region.rows) for region in self._reader.region())
            self._unfinished = unfinished
        return self._unfinished

    def rang(self) -> None:
        """Handle a bell: wake the streams, now or at the next paced time."""
        followed = self.waiters or self.tails
        if self.unpaced or not followed:
            self._forget_head()
        for waiter in self.unpaced:
            waiter.set()
        if self._timer is not None or not followed:
            return
        wait_s = min(self._budget.free_s, self._woken_s + PACE_S) - self._clock.monotonic_s()
        if wait_s <= 0:
            self._wake()
        else:
            self._timer = gevent.get_hub().loop.timer(wait_s)
            self._timer.start(self._wake)

    def expect(self) -> None:
        """Handle the announcement that lines are about to be written. It is not a bell and does not affect the pace."""
        if self.tails and self._timer is None:
            self._forget_head()
            self._serve()

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self._woken_s, used_s = self._clock.monotonic_s(), self._clock.thread_s()
        # `expect` may already have served the lines that this bell announces. A ring that can be replaced must be
        # checked all the same.
        if self._given and not (self._alone or self.waiters) and self._given == self._reader.mark():
            return
        self._forget_head()
        for waiter in self.waiters:
            waiter.set()
        if self.tails:
            self._serve()
        used_s = self._clock.thread_s() - used_s
        self._budget.spend(self._woken_s, used_s + _WAITER_S * len(self.waiters))

    def _serve(self) -> None:
        """Send new lines to the streams at the end of the ring; wake them for any other change, or after an error."""
        pending = dict.fromkeys(self.tails)
        mark = self._reader.mark()
        try:
            head = self.head()
            for tail in self.tails:
                if tail.take(self, head):
                    del pending[tail]
            os.sched_yield()  # a woken client may need this processor
            if head.sealed or not self.has_ring or self.unfinished():
                pending = dict.fromkeys(self.tails)
        except (LogError, OSError, MemoryError) as err:
            log.debug("the ring %s: %s", self.name, err)
        for tail in pending:
            tail.woken.set()
        self._given = b"" if pending else mark

    def _forget_head(self) -> None:
        self._head = self._unfinished = None

    def poll(self) -> None:
        """Act as if a bell rang, if the log has changed without one."""
        if self._alone:
            self._follow_replacement()
        if self._reader.head() != self._head:
            self.rang()

    def _follow_replacement(self) -> None:
        """Switch to the new events ring of a restarted scheduler, which continues the line numbers."""
        inode = _inode(self._ring)
        if inode is not None and inode != self._inode:
            self._reader.close()
            self._reader = LogReader(self._ring, None)
            self._inode = inode
            self._given = b""
            self._chunks.clear()

    def close(self) -> None:
        """Close the feed: no stream follows it any more."""
        if self._timer is not None:
            self._timer.close()
        self._reader.close()


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None
