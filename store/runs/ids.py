"""Run ids: ULIDs, 26 characters of Crockford's base32 in upper case (10 for milliseconds, 16 random).

python-ulid's generator is only monotonic within a millisecond. This module adds three things. It reads the clock under
the lock; otherwise ids of two threads could be out of order. If the clock steps back, it uses the last millisecond. A
forked child starts with a new state; otherwise parent and child would generate the same id.
"""

import hashlib
import os
import re
import time
from _thread import RLock

from ulid import ULID, ULIDGenerator

_TIME_BYTES, _RANDOM_BYTES, _TIME_CHARACTERS = 6, 10, 10
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")  # the first character has only 3 bits: 3 + 25 * 5 = 128


class _State:
    """The generator and last millisecond of one process."""

    def __init__(self) -> None:
        # The interpreter's lock, also under gevent: gevent's locks can fail to wake a thread that waits while another
        # thread releases. No code under this lock switches greenlets.
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
            except ValueError:  # the random part overflows in this millisecond: use the next one
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
    """Return a new id, greater than all previous ids of this process. Safe with threads and forks.

    Args:
        now_ms: Time of the id, ms since the epoch; None for now. It is raised to the time of the previous id.
    """
    return _state.make(now_ms)


def derived_ulid(seed: str, text: str) -> str:
    """Return an id derived from a text and a seed id: always the same, with the seed's time."""
    digest = hashlib.blake2b(f"{seed}{text}".encode(), digest_size=_RANDOM_BYTES).digest()
    return seed[:_TIME_CHARACTERS] + str(ULID(bytes(_TIME_BYTES) + digest))[_TIME_CHARACTERS:]


def time_of(ulid: str) -> int:
    """Return the time in an id, in ms since the epoch."""
    return ULID.from_str(ulid).milliseconds


def is_ulid(text: str) -> bool:
    """Return whether the text is a run id in canonical form: 26 upper-case characters of at most 128 bits."""
    return _ULID.fullmatch(text) is not None
