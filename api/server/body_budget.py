"""Room for large bodies: of all that come at the same time together, so that many clients need no more than a few.

It is memory, and a thread that looks at one after the other: Python does one thing at a time, and the more threads want
to, the longer the loop, and everybody with it, waits for its turn.

Small ones always find room. Unauthenticated clients have a smaller budget of their own, so they take nothing from
authenticated ones.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

from api.server.thread_pool import Threads

SMALL_BYTES = 64 << 10


class Room:
    """Of one worker.

    Args:
        size_bytes: What there is, beside `SMALL_BYTES` for each body.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes

    @functools.cached_property
    def thread(self) -> Threads:
        """Where they are looked at."""
        return Threads(1)

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[int], bool]]:
        """For one body: takes room for so many bytes more, if there is; all of it is given back in the end.

        The request is finished then: a busy scheduler keeps many waiting, each with half a million ids.
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
