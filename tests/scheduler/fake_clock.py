"""Clocks for tests that stand still until a test moves them."""

import select

from supervisor.host.clock import Clock, WallTimer

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

    def wait(self, epoll: select.epoll, timeout_s: float) -> list[tuple[int, int]]:
        """Return the descriptors that are ready now; if there are none, let the whole time-out pass."""
        ready = epoll.poll(0)
        if not ready and timeout_s > 0:
            self.advance(timeout_s)
        return ready

    def alarm(self) -> WallTimer | None:
        return None  # the kernel's timer would follow the real clock

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.advance_ms(round(seconds * 1000))

    def advance_ms(self, by_ms: int) -> None:
        """Let milliseconds pass."""
        self.wall += by_ms
        self.boot += by_ms / 1000
        self.monotonic += by_ms / 1000

    def suspend(self, seconds: float) -> None:
        """Let the host sleep: only the wall clock and the time since the boot go on."""
        self.wall += round(seconds * 1000)
        self.boot += seconds
