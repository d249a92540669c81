"""Detection of workers that cannot answer for lack of memory."""

import mmap
import time
from collections.abc import Callable

_FAILING_S = 10.0
"""An operation that has failed for this long, without a success in between, is not a short peak."""
_ROOM_BYTES = 32 << 20
"""Memory for the stacks of a few threads, and for the largest page."""


def has_room() -> bool:
    """Return whether this process can map more memory. The memory is not touched, so this costs none."""
    try:
        mmap.mmap(-1, _ROOM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True


class MemoryWatch:
    """Detects that a worker can no longer answer an operation for lack of memory.

    The memory of a process can be limited (RLIMIT_AS) so that the worker still runs, but its threads, its database or
    its responses get no more memory. All workers of a server inherit the limit and the size of the server, so only a
    new server helps.
    """

    def __init__(
        self,
        on_shortage: Callable[[], None],
        room: Callable[[], bool] = has_room,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_shortage` is called if an operation keeps failing and there is no room."""
        self._on_shortage = on_shortage
        self._has_room = room
        self._clock = clock
        self._failing_since_s: dict[str, float] = {}

    def record(self, operation: str, status: int) -> None:
        """Record the status of a response.

        The cause of a failure is not asked for: a shortage can look like a failed disk, or like a slow one.
        """
        if status < 500:
            self._failing_since_s.pop(operation, None)
            return
        now_s = self._clock()
        since_s = self._failing_since_s.setdefault(operation, now_s)
        if now_s - since_s >= _FAILING_S and not self._has_room():
            self._on_shortage()
