"""The time by which old things are removed: it advances as time really passes, whatever the wall clock is set to.

A wall clock that is suddenly days away from where it was may be wrong, and what is removed is gone. So a step of more
than a day is not believed for removals until it has held for an hour, or a person says that the clock is right. While
a host is off no clock of it runs that could not be set: a boot more than a day after the last look counts as a step.
"""

from collections.abc import Callable
from typing import Any, Protocol

STATE = "removal_clock"
"""Name in the store of what :meth:`RemovalClock.state` gives."""
BELIEVED_MS = 24 * 3_600_000
HOLD_S = 3600.0
_SAME_STEP_MS = 60_000
"""A clock that moves by less while it is doubted is adjusted, not set again."""


class Clocks(Protocol):
    """The clocks of the host, as the loop has them."""

    def now_ms(self) -> int:
        """Return what the wall clock shows (ms since the epoch)."""

    def boot_s(self) -> float:
        """Return the time since the boot, sleep included."""


class RemovalClock:
    """Belongs to the loop.

    Args:
        clocks: of the host.
        boot: id of this boot; empty where the host has none.
        stored: what :meth:`state` was, perhaps under an earlier boot; None: there is none.
    """

    def __init__(self, clocks: Clocks, boot: str, stored: dict[str, Any] | None) -> None:
        self._clocks = clocks
        self._boot = boot
        wall_ms, boot_s = clocks.now_ms(), clocks.boot_s()
        self._ahead_ms = wall_ms - boot_s * 1000
        """How far the wall clock is believed to be ahead of the time since the boot."""
        self._since_s: float | None = None
        self._step_ms = 0.0
        self.on_change: Callable[[], None] = lambda: None
        """Called when a step has begun to be doubted, or is so no more."""
        if stored is not None and boot and stored["boot"] == boot:
            self._ahead_ms = stored["ahead_ms"]
            self._since_s, self._step_ms = stored["since_s"], stored["step_ms"]
        elif stored is not None:
            self._ahead_ms = stored["at_ms"] - boot_s * 1000
        self.look()

    def look(self) -> None:
        """Compare the clocks; to be called every few seconds."""
        boot_s = self._clocks.boot_s()
        step_ms = self._clocks.now_ms() - (self._ahead_ms + boot_s * 1000)
        doubted = self._since_s is not None
        if abs(step_ms) <= BELIEVED_MS:
            self._ahead_ms += step_ms
            self._since_s, self._step_ms = None, 0.0
        elif self._since_s is None or abs(step_ms - self._step_ms) > _SAME_STEP_MS:
            self._since_s, self._step_ms = boot_s, step_ms
        elif boot_s - self._since_s >= HOLD_S:
            self.believe()
            return
        if doubted != (self._since_s is not None):
            self.on_change()

    def believe(self) -> None:
        """Go by the wall clock as it is set now."""
        doubted = self._since_s is not None
        self._ahead_ms = self._clocks.now_ms() - self._clocks.boot_s() * 1000
        self._since_s, self._step_ms = None, 0.0
        if doubted:
            self.on_change()

    @property
    def step_ms(self) -> int:
        """How far the wall clock was set that is not believed yet, back: negative; 0: it is believed."""
        return round(self._step_ms)

    @property
    def believed_at_ms(self) -> int | None:
        """When the wall clock will be believed if it stays as it is set, by that clock; None: it is believed."""
        if self._since_s is None:
            return None
        return round(self._clocks.now_ms() + (self._since_s + HOLD_S - self._clocks.boot_s()) * 1000)

    def earliest_ms(self) -> int:
        """Return the time by which something is old: not later than the wall clock, nor than believed."""
        self.look()
        return min(self._clocks.now_ms(), self._believed_ms())

    def latest_ms(self) -> int:
        """Return the time after which something lies in the future, whichever of the two is right."""
        self.look()
        return max(self._clocks.now_ms(), self._believed_ms())

    def _believed_ms(self) -> int:
        return round(self._ahead_ms + self._clocks.boot_s() * 1000)

    def state(self) -> dict[str, Any]:
        """Return what the next scheduler has to know, for JSON."""
        return {
            "boot": self._boot,
            "at_ms": self._believed_ms(),
            "ahead_ms": self._ahead_ms,
            "since_s": self._since_s,
            "step_ms": self._step_ms,
        }
