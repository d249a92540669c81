"""Run ids: ULIDs, 26 characters of Crockford's base32 in upper case (10 for milliseconds, 16 random).

The ids of a process ascend, also across threads and if its clock steps back. A forked child starts with a new state;
otherwise parent and child would generate the same id.
"""

import hashlib
import os
import re
import time
from _thread import RLock

_RANDOM_BYTES, _TIME_CHARACTERS = 10, 10
_RANDOM_BITS = 8 * _RANDOM_BYTES
_SHIFTS = range(125, -1, -5)
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = str.maketrans(_CROCKFORD, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
"""From the characters of an id to the digits that :class:`int` reads."""
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")  # the first character has only 3 bits: 3 + 25 * 5 = 128


class _State:
    """The last id of one process."""

    def __init__(self) -> None:
        # The interpreter's lock, also under gevent: gevent's locks can fail to wake a thread that waits while another
        # thread releases. No code under this lock switches greenlets.
        self.lock = RLock()
        self.number = 0

    def make(self, now_ms: int | None) -> str:
        with self.lock:
            # The clock is read under the lock; otherwise ids of two threads could be out of order.
            ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
            if ms > self.number >> _RANDOM_BITS:
                self.number = ms << _RANDOM_BITS | int.from_bytes(os.urandom(_RANDOM_BYTES))
            else:
                self.number += 1  # if the random part overflows, the id is of the next millisecond
            return text_of(self.number)


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
    return seed[:_TIME_CHARACTERS] + text_of(int.from_bytes(digest))[_TIME_CHARACTERS:]


def is_ulid(text: str) -> bool:
    """Return whether the text is a run id in canonical form: 26 upper-case characters of at most 128 bits."""
    return _ULID.fullmatch(text) is not None


def number_of(ulid: str) -> int:
    """Return the 128 bits of an id."""
    return int(ulid.translate(_DIGITS), 32)


def text_of(number: int) -> str:
    """Return the id with these 128 bits."""
    return "".join([_CROCKFORD[number >> shift & 31] for shift in _SHIFTS])
