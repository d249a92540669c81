"""The clock by which old data is removed. It distrusts large steps of the wall clock.

A wall clock that steps by days may be wrong, and removed data cannot be recovered. Removals therefore ignore a step of
more than a day until it has lasted for an hour, or until a user confirms the clock. The same applies if the host boots
more than a day after the last check, because no other clock tells how long it was off.
"""

from collections.abc import Callable
from typing import Any

from supervisor.scheduler.loop.loop import Loop

STATE = "removal_clock"
"""Name in the store of :meth:`RemovalClock.state`."""
BELIEVED_MS = 24 * 3_600_000
HOLD_S = 3600.0
_SAME_STEP_MS = 60_000
"""A smaller change of a doubted clock is an adjustment, which does not restart the hour."""


class RemovalClock:
    """Tells the trusted time. Use it only in the thread of the loop.

    Args:
        loop: has the clocks of the host.
        boot: id of this boot; empty if the host has none.
        stored: the stored :meth:`state`, perhaps of an earlier boot; None if nothing is stored.
        on_change: called when the clock becomes doubted or trusted, except by the constructor.
    """

    def __init__(
        self,
        loop: Loop,
        boot: str,
        stored: dict[str, Any] | None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._on_change = on_change
        self._boot = boot
        wall_ms, boot_s = loop.now_ms(), loop.boot_s()
        self._ahead_ms = wall_ms - boot_s * 1000
        """The trusted time minus the time since the boot, in milliseconds."""
        self._since_s: float | None = None
        self._step_ms = 0.0
        if stored is not None and boot and stored["boot"] == boot:
            self._ahead_ms = stored["ahead_ms"]
            self._since_s, self._step_ms = stored["since_s"], stored["step_ms"]
        elif stored is not None:
            self._ahead_ms = stored["at_ms"] - boot_s * 1000
        self._compare()

    def compare_clocks(self) -> None:
        """Compare the clocks; must be called every few seconds."""
        if self._compare():
            self._on_change()

    def _compare(self) -> bool:
        """Compare the clocks; return whether the wall clock became doubted or trusted."""
        boot_s = self._loop.boot_s()
        step_ms = self._loop.now_ms() - (self._ahead_ms + boot_s * 1000)
        doubted = self._since_s is not None
        if abs(step_ms) <= BELIEVED_MS:
            self._ahead_ms += step_ms
            self._since_s, self._step_ms = None, 0.0
        elif self._since_s is None or abs(step_ms - self._step_ms) > _SAME_STEP_MS:
            self._since_s, self._step_ms = boot_s, step_ms
        elif boot_s - self._since_s >= HOLD_S:
            self._trust()
        return doubted != (self._since_s is not None)

    def believe(self) -> None:
        """Trust the wall clock as it is now set."""
        doubted = self._since_s is not None
        self._trust()
        if doubted:
            self._on_change()

    def _trust(self) -> None:
        self._ahead_ms = self._loop.now_ms() - self._loop.boot_s() * 1000
        self._since_s, self._step_ms = None, 0.0

    @property
    def step_ms(self) -> int:
        """The doubted step of the wall clock in milliseconds, negative if it was set back; 0 if it is trusted."""
        return round(self._step_ms)

    @property
    def believed_at_ms(self) -> int | None:
        """When the wall clock will be trusted, by itself, in milliseconds since the epoch; None if it is trusted."""
        if self._since_s is None:
            return None
        return round(self._loop.now_ms() + (self._since_s + HOLD_S - self._loop.boot_s()) * 1000)

    def earliest_ms(self) -> int:
        """Return the earlier of wall clock and trusted time: data that is not old by both is kept."""
        self.compare_clocks()
        return min(self._loop.now_ms(), self._believed_ms())

    def latest_ms(self) -> int:
        """Return the later of wall clock and trusted time: only times after both are in the future."""
        self.compare_clocks()
        return max(self._loop.now_ms(), self._believed_ms())

    def _believed_ms(self) -> int:
        return round(self._ahead_ms + self._loop.boot_s() * 1000)

    def state(self) -> dict[str, object]:
        """Return the state for the next scheduler, as JSON values."""
        return {
            "boot": self._boot,
            "at_ms": self._believed_ms(),
            "ahead_ms": self._ahead_ms,
            "since_s": self._since_s,
            "step_ms": self._step_ms,
        }
