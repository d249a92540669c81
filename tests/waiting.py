"""Waiting in tests: for a condition, under one deadline, never for a guessed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.005


def until(condition: Callable[[], T | None], what: str, deadline_s: float = 30.0) -> T:
    """Poll `condition` until it returns something true, and return that; fail naming `what` after `deadline_s`."""
    end = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"still waiting for {what} after {deadline_s} s")
        time.sleep(POLL_S)
