"""A reserve of memory, so that the root can supervise active runs when the kernel gives no more.

It is mapped and never touched: it takes no page, but counts where memory is limited or promised (RLIMIT_AS,
vm.overcommit_memory). Its release leaves room for supervision. New runs, which would use it up, do not start meanwhile.
It is kept again as soon as twice as much is free.
"""

import mmap
import time
from collections.abc import Callable

from supervisor.ipc.log_line import Log

_BYTES = 8 << 20
_LOOK_S = 5.0


class MemoryReserve:
    """Belongs to the control thread; `tell` hears when there is none left, and when there is again."""

    def __init__(self, log: Log, tell: Callable[[bool], None]) -> None:
        self._log = log
        self._tell = tell
        self._kept = _mapped(_BYTES)
        self._seen = False
        """There was enough in this round of the control thread."""
        self.due_s: float | None = None
        """When :meth:`tend` is to be called (monotonic seconds)."""

    @property
    def short(self) -> bool:
        """Return whether the reserve is released."""
        return self.due_s is not None

    def tend(self, now_s: float) -> None:
        """Map the reserve again if it is due and memory is free (monotonic seconds)."""
        self._seen = False
        if self.due_s is not None and now_s >= self.due_s:
            self.due_s = now_s + _LOOK_S
            self.enough()

    def enough(self) -> bool:
        """Whether something may be started that takes memory."""
        if self._seen:
            return True
        free = _mapped(_BYTES if self._kept is not None else 2 * _BYTES)
        if free is None:
            self.give_up()
            return False
        free.close()
        if self._kept is None:
            self._kept = _mapped(_BYTES)
        if self.due_s is not None:
            self.due_s = None
            self._log.info("memory is available again")
            self._tell(False)
        self._seen = True
        return True

    def give_up(self) -> None:
        """Make room: there is no memory left."""
        self._seen = False
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        if self.due_s is None:
            self.due_s = time.monotonic() + _LOOK_S
            self._log.error("out of memory: new runs wait until memory is available")
            self._tell(True)


def _mapped(size: int) -> mmap.mmap | None:
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError):  # ENOMEM
        return None
