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
_STEP_S = 60.0
"""What is adjusted by less is no step."""
_LONGEST_S = 3600.0
"""epoll_wait(2) counts milliseconds in an int: 24.8 days."""
_MIN_SWEEP = 256


class Timer:
    """One call that was asked for; cancelling is cheap."""

    __slots__ = ("cancelled", "function")

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.cancelled = False

    def cancel(self) -> None:
        """Forget it."""
        self.cancelled = True


class _Heap:
    """Timers of one clock; the soonest first."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._sweep_at = _MIN_SWEEP

    def push(self, when_s: float, function: Callable[[], None]) -> Timer:
        timer = Timer(function)
        heapq.heappush(self._timers, (when_s, next(self._order), timer))
        if len(self._timers) >= self._sweep_at:  # mostly cancelled ones that are far from due
            self._timers = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._timers))
        return timer

    def next_s(self) -> float | None:
        """When the next one is due."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def fire(self, now_s: float) -> None:
        while self._timers and self._timers[0][0] <= now_s:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.function()


class Loop:
    """One epoll, two heaps."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._monotonic = _Heap()
        self._wall = _Heap()
        self._ending = False
        self._wall_s = time.time()
        self.on_clock_back: Callable[[], None] = lambda: None
        """Called when the wall clock was set back: what waits for a time on it may be far away now."""

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
        return self._monotonic.push(time.monotonic() + delay_ms / 1000, function)

    def at(self, wall_ms: int, function: Callable[[], None]) -> Timer:
        """Call `function` once when the wall clock shows `wall_ms` or later."""
        return self._wall.push(wall_ms / 1000, function)

    def end(self) -> None:
        """Let :meth:`run` return after the present round."""
        self._ending = True

    def run(self) -> None:
        """Until :meth:`end`."""
        while not self._ending:
            self.round(self._timeout_s())

    def round(self, timeout_s: float) -> None:
        """Wait for what is ready, for at most `timeout_s` (-1: for ever), and call what is due."""
        ready = [(fd, mask, self._handlers.get(fd)) for fd, mask in self._epoll.poll(timeout_s)]
        for fd, mask, handler in ready:
            # One handler may close what another one's event is about, and open something of the same number.
            if handler is not None and self._handlers.get(fd) is handler:
                handler(mask)
        self._monotonic.fire(time.monotonic())
        before_s, self._wall_s = self._wall_s, time.time()
        if self._wall_s < before_s - _STEP_S:
            self.on_clock_back()
        self._wall.fire(self._wall_s)

    def _timeout_s(self) -> float:
        waits = []
        for heap, now_s, longest in (
            (self._monotonic, time.monotonic(), _LONGEST_S),
            (self._wall, time.time(), _LOOK_S),
        ):
            next_s = heap.next_s()
            if next_s is not None:
                waits.append(min(next_s - now_s, longest))
        return max(0.0, min(waits)) if waits else -1
