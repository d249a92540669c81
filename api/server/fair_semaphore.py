"""A semaphore that is fair to clients.

Each client has its own queue, and the queues take turns, so a busy client delays only itself. The waiting time depends
on the number of other clients, not on the number of their requests.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import gevent
from gevent.event import Event

asking: ContextVar[Hashable] = ContextVar("asking", default=None)
"""The client that the current greenlet serves; None for no particular client, or the daemon itself."""


class FairSemaphore:
    """A semaphore with at most `number` holders at a time."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._lines: OrderedDict[Hashable, deque[Event]] = OrderedDict()

    @contextmanager
    def turn(self, patience_s: float | None = None, late: Exception | None = None) -> Iterator[None]:
        """Acquire the semaphore for the duration of the context, waiting in the client's queue.

        Args:
            patience_s: Maximum time to wait; None for no limit.
            late: Exception to raise after that time.
        """
        if self._free:
            self._free -= 1
        else:
            with gevent.Timeout(patience_s, late):
                self._wait(asking.get())
        try:
            yield
        finally:
            self._next()

    def _wait(self, line: Hashable) -> None:
        mine = Event()
        self._lines.setdefault(line, deque()).append(mine)
        try:
            mine.wait()
        except BaseException:  # a timeout, or the greenlet was killed
            if mine.is_set():
                self._next()
            else:
                self._lines[line].remove(mine)
                if not self._lines[line]:
                    del self._lines[line]
            raise

    def _next(self) -> None:
        if not self._lines:
            self._free += 1
            return
        line, waiting = self._lines.popitem(last=False)
        first = waiting.popleft()
        if waiting:
            self._lines[line] = waiting  # at the end of the queue of clients
        first.set()
