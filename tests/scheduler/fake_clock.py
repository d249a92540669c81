"""Clocks for tests that stand still until a test moves them."""

from supervisor.scheduler.loop.loop import Clock, WallTimer

START_MS = 1_780_056_000_000


class FakeClock(Clock):
    """A clock that stands still; a test advances all clocks with :meth:`advance` or sets one of them."""

    def __init__(self, wall: int = START_MS, boot: float = 1000.0) -> None:
        self.wall, self.boot = wall, boot

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_s(self) -> float:
        return self.boot

    def boot_s(self) -> float:
        return self.boot

    def alarm(self) -> WallTimer | None:
        return None  # the kernel's timer would follow the real clock

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.advance_ms(round(seconds * 1000))

    def advance_ms(self, by_ms: int) -> None:
        """Let milliseconds pass."""
        self.wall += by_ms
        self.boot += by_ms / 1000
