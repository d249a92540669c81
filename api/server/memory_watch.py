"""Detection of workers that cannot answer for lack of memory."""

import mmap
import time
from collections.abc import Callable

_FAILING_S = 10.0
"""Time for which an operation must fail, without a success in between. A shorter shortage is only a peak."""
_ROOM_BYTES = 32 << 20
"""Memory for the stacks of a few threads and the largest page."""


def has_room() -> bool:
    """Return whether this process can map more memory. The memory is not touched, so none is used."""
    try:
        mmap.mmap(-1, _ROOM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True


class MemoryWatch:
    """Detects that a worker can no longer answer an operation for lack of memory.

    With a limit on its memory (RLIMIT_AS), a worker may still run, but have no memory for threads, the database or
    responses. All workers inherit the limit and the memory size of the server, so only a new server helps.
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

        The cause of a failure does not matter: a shortage can look like a failed or slow disk.
        """
        if status < 500:
            self._failing_since_s.pop(operation, None)
            return
        now_s = self._clock()
        since_s = self._failing_since_s.setdefault(operation, now_s)
        if now_s - since_s >= _FAILING_S and not self._has_room():
            self._on_shortage()
