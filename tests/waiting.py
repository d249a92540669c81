"""Waiting in tests: for a condition, under one deadline, never for a guessed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_S, _LONGEST_S, _GROWTH = 0.003, 0.03, 1.2
"""What comes soon is seen at once; what takes long is not slowed down by being asked for."""


def until(condition: Callable[[], T | None], what: str, deadline_s: float = 30.0) -> T:
    """Poll `condition` until it returns something true, and return that; fail naming `what` after `deadline_s`."""
    end = time.monotonic() + deadline_s
    pause_s = _FIRST_S
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"still waiting for {what} after {deadline_s} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * _GROWTH, _LONGEST_S)
