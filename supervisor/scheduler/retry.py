"""Delays between attempts, of retries and of service restarts alike: pure."""

RETRIED_REASONS = frozenset({"failed", "timeout", "crashed", "start_failed", "log_overflow"})
"""End reasons after which a task is tried again; never after a stop or during shutdown."""

_MAX_DOUBLINGS = 40


def delay_ms(kind: str, base_ms: int, max_ms: int, attempt: int) -> int:
    """How long to wait before attempt number `attempt` (1 is the first repetition).

    Args:
        kind: ``constant`` (base), ``linear`` (base x attempt) or ``exponential`` (base x 2^(attempt - 1)).
        base_ms: the configured delay.
        max_ms: no delay is longer.
        attempt: from 1.
    """
    if kind == "constant":
        wanted = base_ms
    elif kind == "linear":
        wanted = base_ms * attempt
    else:
        wanted = base_ms << min(attempt - 1, _MAX_DOUBLINGS)
    return min(wanted, max_ms)
