"""Clocks for tests that stand still until a test moves them."""

import select
from queue import Empty, SimpleQueue
from typing import TypeVar

from supervisor.host.clock import Clock, WallTimer

T = TypeVar("T")

START_MS = 1_780_056_000_000


class FakeClock(Clock):
    """Clocks that stand still until a test advances them or sets one of them, or until a loop waits."""

    def __init__(self, wall: int = START_MS) -> None:
        self.wall = wall
        self.monotonic, self.boot = 1000.0, 5000.0  # the host has slept before

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_s(self) -> float:
        return self.monotonic

    def boot_s(self) -> float:
        return self.boot

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
        self.boot += seconds
        self.wall += round(seconds * 1000)

    def suspend(self, seconds: float) -> None:
        """Let the host sleep: only the wall clock and the time since the boot go on."""
        self.wall += round(seconds * 1000)
        self.boot += seconds
