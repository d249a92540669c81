"""Memory that is kept for bad times, so that what runs can be looked after when there is no more to be had.

It is mapped and never touched: it takes no page, but counts where memory is limited or promised (RLIMIT_AS,
vm.overcommit_memory). When it is given up there is room for what a supervisor does all the time, and nothing new is
started, which would use that up. It is kept again as soon as twice as much is free.
"""

import mmap

from supervisor.logline import Log

_BYTES = 8 << 20


class Memory:
    """Belongs to the control thread."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._kept = _mapped(_BYTES)

    def enough(self) -> bool:
        """Whether something may be started that takes memory."""
        free = _mapped(_BYTES if self._kept is not None else 2 * _BYTES)
        if free is None:
            self.give_up()
            return False
        free.close()
        if self._kept is None:
            self._kept = _mapped(_BYTES)
            self._log.info("there is memory again")
        return True

    def give_up(self) -> None:
        """Make room: there is no memory left."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
            self._log.error("there is no memory left: nothing is started until there is")


def _mapped(size: int) -> mmap.mmap | None:
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError):  # ENOMEM
        return None
