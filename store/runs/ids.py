"""Run ids: ULIDs, 26 characters of Crockford's base32, upper case (10 of them milliseconds, 16 random).

python-ulid's generator is monotonic within a millisecond only. Three things are added here. The clock is read under the
lock, else ids of two threads can be out of order. A clock that steps back is held at the last millisecond. A forked
child starts with its own state, else parent and child make the same id.
"""

import hashlib
import os
import re
import time
from _thread import RLock

from ulid import ULID, ULIDGenerator

_TIME_BYTES, _RANDOM_BYTES, _TIME_CHARACTERS = 6, 10, 10
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")  # 26 characters hold 130 bits: the first has three of them


class _State:
    """The last id of one process."""

    def __init__(self) -> None:
        # Of the interpreter also under gevent, whose own locks can forget to wake a thread that waits while another one
        # releases. Nothing that is done under it gives way to another greenlet.
        self.lock = RLock()
        self.generator: ULIDGenerator | None = None
        self.last_ms = 0

    def make(self, now_ms: int | None) -> str:
        with self.lock:
            if self.generator is None:
                self.generator = ULIDGenerator()
            ms = max(self.last_ms, time.time_ns() // 1_000_000 if now_ms is None else now_ms)
            try:
                value = self.generator.generate(ms)
            except ValueError:  # 2**80 ids in one millisecond, or the first of it began near the end: borrow the next
                ms += 1
                value = self.generator.generate(ms)
            self.last_ms = ms
            return str(value)


_state = _State()


def _after_fork() -> None:
    global _state  # noqa: PLW0603 - the lock may be held by a thread that the child does not have
    _state = _State()


os.register_at_fork(after_in_child=_after_fork)


def new_ulid(now_ms: int | None = None) -> str:
    """Return a new id, greater than every id that this process made before; safe over threads and forks.

    Args:
        now_ms: Milliseconds since the epoch; the clock when absent. Earlier than an id's before: that one's is used.
    """
    return _state.make(now_ms)


def derived_ulid(seed: str, text: str) -> str:
    """Return the id that belongs to a text under a seed, an id itself: always the same, of the seed's millisecond."""
    digest = hashlib.blake2b(f"{seed}{text}".encode(), digest_size=_RANDOM_BYTES).digest()
    return seed[:_TIME_CHARACTERS] + str(ULID(bytes(_TIME_BYTES) + digest))[_TIME_CHARACTERS:]


def is_ulid(text: str) -> bool:
    """Return whether the text is a run id as we write it: 26 upper-case characters, not above 128 bits."""
    return _ULID.fullmatch(text) is not None
