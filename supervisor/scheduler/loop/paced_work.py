"""Work that is requested more often than it can be done."""

from collections.abc import Callable

from supervisor.scheduler.loop.loop import Loop, Timer

SOON_MS = 1000


class PacedWork:
    """Starts work when it is due: only once at a time, and not during the pause after it.

    Args:
        work: begins the work, whose end is reported to :meth:`done`.
    """

    def __init__(self, loop: Loop, work: Callable[[], None]) -> None:
        self._loop = loop
        self._work = work
        self._timer = Timer(work)
        self._at_s: float | None = None
        """When the work is due, on the monotonic clock; None: it is not requested."""
        self._rested_s = 0.0
        self.busy = False
        """Whether the work, or other work that excludes it, is in progress."""
        self._missed = False
        """Whether the work was requested while it was in progress."""

    def request(self, delay_ms: float = SOON_MS) -> None:
        """Request the work in `delay_ms` milliseconds at the latest, but not before the pause ends."""
        if self.busy:
            self._missed = True
            return
        now_s = self._loop.now_s()
        at_s = max(now_s + delay_ms / 1000, self._rested_s)
        if self._at_s is None or at_s < self._at_s:
            self._timer.cancel()
            self._at_s = at_s
            self._timer = self._loop.after((at_s - now_s) * 1000, self._due)

    def _due(self) -> None:
        self._at_s = None
        if self.busy:
            self._missed = True
        else:
            self.busy = True
            self._work()

    def done(self, rest_ms: float = 0) -> None:
        """Note that the work has ended; the next begins after a pause."""
        self.busy = False
        self._rested_s = max(self._rested_s, self._loop.now_s() + rest_ms / 1000)
        if self._missed:
            self._missed = False
            self.request()
