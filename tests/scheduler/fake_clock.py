"""Clocks for tests that stand still until a test moves them, and threads as steps of a test's thread."""

import select
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from supervisor.host.clock import Clock, WallTimer
from tests.support.waiting import until

T = TypeVar("T")

START_MS = 1_780_056_000_000
_MOST_ROUNDS = 10_000


class FakeClock(Clock):
    """Clocks that stand still until a test advances them or sets one of them, or until a loop waits."""

    def __init__(self, wall: int = START_MS) -> None:
        self.wall = wall
        self.monotonic, self.settings = 1000.0, 5000.0  # the host has slept before

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_s(self) -> float:
        return self.monotonic

    def boot_s(self) -> float:
        return self.settings

    def thread_s(self) -> float:
        return 0.0

    def wait(self, epoll: select.epoll, until_s: float | None) -> list[tuple[int, int]]:
        """Return the descriptors that are ready now; if there are none, let the whole wait pass."""
        ready = epoll.poll(0)
        if not ready and until_s is not None:
            self.advance_to(until_s)
        return ready

    def take(self, items: SimpleQueue[T], until_s: float) -> T:
        """Return the next item; if there is none, let the whole wait pass."""
        try:
            return items.get_nowait()
        except Empty:
            self.advance_to(until_s)
            raise

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def alarm(self) -> WallTimer | None:
        return None  # the kernel's timer would follow the real clock

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.advance_to(self.monotonic + seconds)

    def advance_ms(self, by_ms: int) -> None:
        """Let milliseconds pass."""
        self.advance_to(self.monotonic + by_ms / 1000)

    def advance_to(self, until_s: float) -> None:
        """Let time pass until the monotonic clock shows `until_s`, if it is later."""
        seconds = max(0.0, until_s - self.monotonic)
        self.monotonic = max(self.monotonic, until_s)
        self.settings += seconds
        self.wall += round(seconds * 1000)

    def suspend(self, seconds: float) -> None:
        """Let the host sleep: only the wall clock and the time since the boot go on."""
        self.wall += round(seconds * 1000)
        self.settings += seconds


class SteppedClock(FakeClock):
    """A clock on which waits end at once: it notes when they would have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        """Whether the last wait found work."""
        self.due_s: float | None = None
        """When the last wait would have ended without an event; None: never."""

    def wait(self, epoll: select.epoll, until_s: float | None) -> list[tuple[int, int]]:
        ready = epoll.poll(0)
        self._note(until_s, found_something=bool(ready))
        return ready

    def take(self, items: SimpleQueue[T], until_s: float) -> T:
        self._note(until_s, found_something=not items.empty())
        return items.get_nowait()

    def _note(self, until_s: float | None, *, found_something: bool) -> None:
        self.busy = found_something or (until_s is not None and until_s <= self.monotonic)
        self.due_s = until_s


class Steps:
    """The rounds of several threads, each with one wait."""

    def __init__(self, clock: SteppedClock, *rounds: Callable[[], None]) -> None:
        self._clock = clock
        self._rounds = rounds

    def run(self) -> float | None:
        """Run rounds in turn until all threads are idle; return when the first of them is due."""
        for _ in range(_MOST_ROUNDS):
            busy = False
            times: list[float] = []
            for round_function in self._rounds:
                round_function()
                busy |= self._clock.busy
                times += [] if self._clock.due_s is None else [self._clock.due_s]
            if not busy:
                return min(times, default=None)
        raise AssertionError("a thread spins")

    def let_pass(self, seconds: float) -> None:
        """Let time pass, with all steps that become due."""
        end_s = self._clock.monotonic + seconds
        while (due_s := self.run()) is not None and due_s <= end_s:
            self._clock.advance_to(due_s)
        self._clock.advance_to(end_s)

    def until(self, condition: Callable[[], T | None], description: str) -> T:
        """Run rounds, without letting time pass, until real processes have made a condition true."""

        def met() -> T | None:
            self.run()
            return condition()

        return until(met, description)
