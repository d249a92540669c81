"""A memory budget for large request bodies, shared by all requests of a worker.

Large bodies are also checked in a single thread, one after another. Python runs one thread at a time, so more threads
would delay the event loop and all its streams.

Small bodies are always accepted. Unauthenticated clients share a smaller budget of their own, so they cannot exhaust
that of authenticated ones.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

from api.server.thread_pool import Threads

SMALL_BYTES = 64 << 10


class Room:
    """The budget of one worker.

    Args:
        size_bytes: Size of the budget, in addition to `SMALL_BYTES` for each body.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes

    @functools.cached_property
    def thread(self) -> Threads:
        """The thread that checks large bodies."""
        return Threads(1)

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[int], bool]]:
        """Yield a function that reserves more bytes for one body, and returns whether there was room.

        Everything is released at the end of the request, not of the check: with a busy scheduler many requests wait,
        each with half a million ids.
        """
        small_bytes, held_bytes = SMALL_BYTES, 0

        def take(size_bytes: int) -> bool:
            nonlocal small_bytes, held_bytes
            more_bytes = max(0, size_bytes - small_bytes)
            if more_bytes > self._left_bytes:
                return False
            small_bytes -= size_bytes - more_bytes
            self._left_bytes -= more_bytes
            held_bytes += more_bytes
            return True

        try:
            yield take
        finally:
            self._left_bytes += held_bytes


STRANGERS = Room(8 << 20)
KNOWN = Room(64 << 20)
