"""Waits for conditions, with a single deadline and without guessed times."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_FIRST_S, _GROWTH, _SHORT_S = 0.003, 1.2, 0.03
_SHARE, _LONGEST_S = 0.05, 0.15
"""Short waits return at once. Long waits poll rarely, so that polling does not slow down the test."""


def until(condition: Callable[[], T | None], description: str, deadline_s: float = 30.0) -> T:
    """Poll `condition` until it returns a true value, and return it; after `deadline_s` fail with `description`."""
    begin_s = time.monotonic()
    pause_s = _FIRST_S
    while True:
        result = condition()
        if result:
            return result
        waited_s = time.monotonic() - begin_s
        if waited_s > deadline_s:
            raise AssertionError(f"still waiting for {description} after {deadline_s} s")
        time.sleep(pause_s)
        pause_s = max(min(pause_s * _GROWTH, _SHORT_S), min(waited_s * _SHARE, _LONGEST_S))


def catch(condition: Callable[[], T | None], description: str, deadline_s: float = 30.0) -> T:
    """Poll like :func:`until` but without pauses, for conditions that hold for milliseconds."""
    begin_s = time.monotonic()
    while not (result := condition()):
        if time.monotonic() - begin_s > deadline_s:
            raise AssertionError(f"still waiting for {description} after {deadline_s} s")
    return result


def until_environment(child: subprocess.Popen[bytes]) -> None:
    """Wait until others can read the environment of a process, which may be shortly after its creation has returned."""
    until(Path(f"/proc/{child.pid}/environ").read_bytes, "the environment of a new process")
