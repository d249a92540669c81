"""Delays between attempts, of retries and of service restarts alike: pure."""

from collections.abc import Collection

from supervisor.config.value_types.timing import RETRY_REASONS

RETRIED_REASONS = frozenset(RETRY_REASONS)
"""End reasons after which a task can be tried again; never after a stop, or when a shutdown has ended it."""

_MAX_DOUBLINGS = 40


def tried_again(retry_on: Collection[str | int], reason: str, exit_code: int) -> bool:
    """Whether an end is one of those after which a task is to be tried again, as long as it may.

    Args:
        retry_on: end reasons, and exit codes of failed runs.
        reason: of the end.
        exit_code: of the end.
    """
    if reason not in RETRIED_REASONS:
        return False
    return reason in retry_on or (reason == "failed" and exit_code in retry_on)


def delay_ms(kind: str, base_ms: int, max_ms: int, attempt: int) -> int:
    """How long to wait before attempt number `attempt` (1 is the first repetition).

    Args:
        kind: ``constant`` (base), ``linear`` (base x attempt) or ``exponential`` (base x 2^(attempt - 1)).
        base_ms: the configured delay.
        max_ms: it grows no further; a longer base does not grow at all.
        attempt: from 1.
    """
    if kind == "constant":
        wanted = base_ms
    elif kind == "linear":
        wanted = base_ms * attempt
    else:
        wanted = base_ms << min(attempt - 1, _MAX_DOUBLINGS)
    return min(wanted, max(base_ms, max_ms))
