"""Delays between attempts."""

from collections.abc import Sequence


def backoff(delays: Sequence[float], failures: int) -> float:
    """Return the delay before the next attempt after a number of failures; the last delay repeats."""
    return delays[min(failures, len(delays) - 1)]
