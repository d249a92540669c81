"""The scheduler's event loop: descriptors, and timers on two clocks. Handlers must not block.

Intervals use the monotonic clock; schedules use the wall clock. The wall clock can step, and the monotonic clock stands
still while the host sleeps. :class:`.WallTimer` reports both. Without such a timer, the loop checks the clocks at least
once a second while schedules wait.

A step is found by comparison with CLOCK_BOOTTIME, which continues during sleep. NTP slews both clocks alike, so their
difference changes only when the wall clock is set.

The scheduler's log is also here, because it writes all lines of a round together.
"""

import functools
import heapq
import itertools
import select
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVarTuple

from supervisor.host.clock import Clock, Wakeup, WallTimer
from supervisor.ipc.log_line import Log
from supervisor.scheduler.loop.procedures import Wait

Ts = TypeVarTuple("Ts")

_POLL_S = 1.0
_STEP_S = 1.0
"""Smaller changes are adjustments, not steps."""
_PAUSE_S = 0.1
"""Maximum time between two clock readings that are compared; a process that was paused between them tries again."""
_MIN_SWEEP = 256


class Timer:
    """A scheduled call. Cancelling only marks it; the heap drops it later."""

    __slots__ = ("cancelled", "function")

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call; has no effect once it was made."""
        self.cancelled = True


class _Heap:
    """Timers of one clock, soonest first."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._sweep_at = _MIN_SWEEP

    def push(self, when_s: float, function: Callable[[], None]) -> Timer:
        timer = Timer(function)
        heapq.heappush(self._timers, (when_s, next(self._order), timer))
        if len(self._timers) >= self._sweep_at:  # cancelled timers that are not due for long would accumulate
            self._timers = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._timers))
        return timer

    def next_s(self) -> float | None:
        """Return when the next timer is due; None if there is none."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def fire(self, now_s: float) -> None:
        while self._timers and self._timers[0][0] <= now_s:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.function()


class Loop:
    """The event loop: one epoll and two heaps of timers."""

    def __init__(self, clock: Clock | None = None, on_clock_step: Callable[[int], None] = lambda _by_ms: None) -> None:
        """`on_clock_step` is called with a step of the wall clock in milliseconds; negative if it was set back."""
        self._clock = clock or Clock()
        self._on_clock_step = on_clock_step
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._monotonic = _Heap()
        self._wall = _Heap()
        self._ending = False
        self._in_round = False
        self._round_end: list[Callable[[], None]] = []
        self._thread_calls: deque[Callable[[], None]] = deque()
        self._wakeup = Wakeup()
        self.watch(self._wakeup.fileno(), lambda _mask: self._call_for_threads())
        self._ahead_s = self._ahead()
        self._looked = True

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        return self._clock.wall_ms()

    def now_s(self) -> float:
        """Return the monotonic clock in seconds."""
        return self._clock.monotonic_s()

    def boot_s(self) -> float:
        """Return the seconds since the host booted, including its sleep."""
        return self._clock.boot_s()

    def watch(self, fd: int, handler: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        """Call `handler(mask)` when `fd` is ready."""
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        """Change the events to wait for on `fd`."""
        self._epoll.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Stop waiting for `fd`; call this before closing it."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def after(self, delay_ms: float, function: Callable[[*Ts], None], *arguments: *Ts) -> Timer:
        """Call `function` once after `delay_ms` milliseconds of the monotonic clock."""
        return self._monotonic.push(self._clock.monotonic_s() + delay_ms / 1000, partial(function, *arguments))

    def pause(self, delay_ms: float = 0) -> Wait:
        """Return the wait for `delay_ms` milliseconds; even 0 lets the loop do its other work."""
        return lambda waiter: self.after(delay_ms, waiter.resume)

    def at(self, wall_ms: int, function: Callable[[*Ts], None], *arguments: *Ts) -> Timer:
        """Call `function` once when the wall clock shows `wall_ms` or later."""
        return self._wall.push(wall_ms / 1000, partial(function, *arguments))

    def at_round_end(self, function: Callable[[], None], *, first: bool = False) -> None:
        """Call `function` once at the end of this round, or now if no round is in progress.

        So a round sends all its data in one system call. Each call releases the interpreter lock to other threads, and
        then waits to get it back.
        """
        if not self._in_round:
            function()
        elif function not in self._round_end:
            self._round_end.insert(0 if first else len(self._round_end), function)

    def call_from_thread(self, function: Callable[[], None]) -> None:
        """Call `function` once in the thread of the loop. Any thread may call this."""
        self._thread_calls.append(function)
        self._wakeup.set()

    def _call_for_threads(self) -> None:
        self._wakeup.clear()
        try:
            while self._thread_calls:
                self._thread_calls.popleft()()
        finally:
            if self._thread_calls:  # one has failed; nothing else would wake the loop for those after it
                self._wakeup.set()

    def end(self) -> None:
        """Make :meth:`run` return after this round."""
        self._ending = True

    def run(self) -> None:
        """Run until :meth:`end` is called."""
        while not self._ending:
            self.round(self._due_s())

    def round(self, until_s: float | None) -> None:
        """Wait for ready descriptors until `until_s` (monotonic; None: no limit); call their handlers, then timers."""
        ready = [(fd, mask, self._handlers.get(fd)) for fd, mask in self._clock.wait(self._epoll, until_s)]
        self._in_round = True
        self._detect_clock_step()
        for fd, mask, handler in ready:
            # An earlier handler may have closed this descriptor, and the kernel reuses its number for the next one.
            if handler is not None and self._handlers.get(fd) is handler:
                handler(mask)
        self._monotonic.fire(self._clock.monotonic_s())
        self._wall.fire(self._clock.wall_ms() / 1000)
        self._in_round = False
        functions, self._round_end = self._round_end, []
        for function in functions:
            function()

    def _ahead(self) -> float | None:
        """Return the wall clock minus the time since the boot, in seconds; None if the readings were too far apart."""
        before_s = self._clock.boot_s()
        wall_s = self._clock.wall_ms() / 1000
        return wall_s - before_s if self._clock.boot_s() - before_s < _PAUSE_S else None

    def _detect_clock_step(self) -> None:
        ahead_s = self._ahead()
        self._looked = ahead_s is not None
        if ahead_s is None:
            return
        step_s = 0.0 if self._ahead_s is None else ahead_s - self._ahead_s
        if abs(step_s) >= _STEP_S:
            self._ahead_s = ahead_s
            self._on_clock_step(round(step_s * 1000))
        elif self._ahead_s is None:
            self._ahead_s = ahead_s

    def _due_s(self) -> float | None:
        """Return when the next round is due (monotonic seconds); None: at the next event."""
        due_s, wall_s = self._monotonic.next_s(), self._wall.next_s()
        times = [] if due_s is None else [due_s]
        if wall_s is not None:
            if self._alarm is None:
                wait_s = min(wall_s - self._clock.wall_ms() / 1000, _POLL_S)
                times.append(self._clock.monotonic_s() + wait_s)
            elif not (self._alarm.set(wall_s) and self._looked):
                times.append(0.0)
        return min(times, default=None)

    @functools.cached_property
    def _alarm(self) -> WallTimer | None:
        """The kernel timer on the wall clock, created with the first schedule; None if there is none."""
        self._looked = False
        alarm = self._clock.alarm()
        if alarm is not None:
            self.watch(alarm.fileno(), lambda _mask: alarm.clear())
        return alarm


class RoundLog(Log):
    """Collects the log lines of a round, because each write wakes the root. Use it only in the thread of the loop."""

    def __init__(self, level: str, fd: int = 2) -> None:
        super().__init__("scheduler", level, fd)
        self._loop: Loop | None = None
        self._lines: list[bytes] = []

    def attach(self, loop: Loop) -> None:
        """From now on, write lines at the end of each round of `loop`."""
        self._loop = loop

    def emit(self, line: bytes) -> None:
        """Collect a line; write it at once if no loop is attached."""
        if self._loop is None:
            super().emit(line)
        else:
            self._lines.append(line)
            self._loop.at_round_end(self.flush)

    def flush(self) -> None:
        """Write the collected lines in pieces of at most PIPE_BUF, which a pipe accepts atomically (pipe(7))."""
        lines, self._lines = self._lines, []
        piece = b""
        for line in lines:
            if piece and len(piece) + len(line) > select.PIPE_BUF:
                super().emit(piece)
                piece = b""
            piece += line
        if piece:
            super().emit(piece)
