"""The scheduler's loop: descriptors, timers on two clocks, and nothing that blocks.

Intervals run on the monotonic clock, schedules on the wall clock. The wall clock can be stepped, and nobody tells: so
while schedules wait, the loop looks at it at least once a second.
"""

import heapq
import itertools
import select
import time
from collections.abc import Callable

_LOOK_S = 1.0


class Timer:
    """One call that was asked for; cancelling is cheap."""

    __slots__ = ("cancelled", "function")

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.cancelled = False

    def cancel(self) -> None:
        """Forget it."""
        self.cancelled = True


_Heap = list[tuple[float, int, Timer]]


class Loop:
    """One epoll, two heaps."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._monotonic: _Heap = []
        self._wall: _Heap = []
        self._order = itertools.count()
        self._ending = False

    @staticmethod
    def now_ms() -> int:
        """Wall clock, milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def now_s() -> float:
        """Monotonic clock, seconds."""
        return time.monotonic()

    def watch(self, fd: int, handler: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        """Call `handler(mask)` when `fd` is ready."""
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        """Wait for something else on `fd`."""
        self._epoll.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Wait no more; before `fd` is closed."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def after(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Call `function` once, `delay_ms` from now, whatever happens to the wall clock."""
        return self._push(self._monotonic, time.monotonic() + delay_ms / 1000, function)

    def at(self, wall_ms: int, function: Callable[[], None]) -> Timer:
        """Call `function` once when the wall clock shows `wall_ms` or later."""
        return self._push(self._wall, wall_ms / 1000, function)

    def _push(self, heap: _Heap, when_s: float, function: Callable[[], None]) -> Timer:
        timer = Timer(function)
        heapq.heappush(heap, (when_s, next(self._order), timer))
        return timer

    def end(self) -> None:
        """Let :meth:`run` return after the present round."""
        self._ending = True

    def run(self) -> None:
        """Until :meth:`end`."""
        while not self._ending:
            for fd, mask in self._epoll.poll(self._timeout_s()):
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(mask)
            self._fire(self._monotonic, time.monotonic())
            self._fire(self._wall, time.time())

    def _timeout_s(self) -> float:
        waits = []
        for heap, now_s, longest in (
            (self._monotonic, time.monotonic(), float("inf")),
            (self._wall, time.time(), _LOOK_S),
        ):
            while heap and heap[0][2].cancelled:
                heapq.heappop(heap)
            if heap:
                waits.append(min(heap[0][0] - now_s, longest))
        return max(0.0, min(waits)) if waits else -1

    @staticmethod
    def _fire(heap: _Heap, now_s: float) -> None:
        while heap and heap[0][0] <= now_s:
            timer = heapq.heappop(heap)[2]
            if not timer.cancelled:
                timer.function()
