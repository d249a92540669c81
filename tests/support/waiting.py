"""Waiting in tests: for a condition, under one deadline, never for a guessed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_S, _GROWTH, _SHORT_S = 0.003, 1.2, 0.03
_SHARE, _LONGEST_S = 0.05, 0.15
"""Short waits end at once; long waits are polled rarely, so that polling does not slow them down."""


def until(condition: Callable[[], T | None], what: str, deadline_s: float = 30.0) -> T:
    """Poll `condition` until it returns something true, and return that; fail naming `what` after `deadline_s`."""
    begin_s = time.monotonic()
    pause_s = _FIRST_S
    while True:
        result = condition()
        if result:
            return result
        waited_s = time.monotonic() - begin_s
        if waited_s > deadline_s:
            raise AssertionError(f"still waiting for {what} after {deadline_s} s")
        time.sleep(pause_s)
        pause_s = max(min(pause_s * _GROWTH, _SHORT_S), min(waited_s * _SHARE, _LONGEST_S))


def catch(condition: Callable[[], T | None], what: str, deadline_s: float = 30.0) -> T:
    """Like :func:`until` without a pause between two looks, for a condition that holds for milliseconds."""
    begin_s = time.monotonic()
    while not (result := condition()):
        if time.monotonic() - begin_s > deadline_s:
            raise AssertionError(f"still waiting for {what} after {deadline_s} s")
    return result
