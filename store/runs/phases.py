"""A run's phase and end reason, stored as one small number.

One number instead of two words keeps each index small and makes a status filter a single `IN`. The numbers sort as the
API requires: by phase, then by reason, both in the order of their names. They are spaced, so that a reason can be added
between two others. A number never changes its meaning.
"""

from collections.abc import Collection

PHASES = ("ended", "pending", "running")
END_REASONS = {
    "crashed": 5,
    "daemon_stopped": 10,
    "dst_skipped": 15,
    "failed": 20,
    "log_overflow": 25,
    "missed": 30,
    "queue_full": 35,
    "skipped": 40,
    "start_failed": 45,
    "stopped": 50,
    "succeeded": 55,
    "timeout": 60,
}
FIRST_ACTIVE = 100  # all ended states are below this number
PENDING = 100
RUNNING = 110

_NAMES: dict[int, tuple[str, str | None]] = {
    **{code: ("ended", reason) for reason, code in END_REASONS.items()},
    PENDING: ("pending", None),
    RUNNING: ("running", None),
}
_CODES = {names: code for code, names in _NAMES.items()}
ALL_STATES = frozenset(_NAMES)
ENDED_STATES = frozenset(END_REASONS.values())
FAILURES = frozenset({"failed", "timeout", "crashed", "start_failed", "log_overflow"})
"""End reasons that count as failures."""
CAUSES = {
    "skipped": ("calendar", "condition", "window", "gate", "superseded", "paused"),
    "stopped": ("rejected", "approval_timeout", "flow_stopped", "fail_fast"),
    "failed": ("too_short", "no_output"),
}
"""The causes that can lead to an end reason; most ends have none of them."""
DUE_KINDS = ("retry", "at", "condition", "delay", "gate", "approval", "paused")
"""What a pending run can wait for until its due time; `gate` and `approval` have it as their limit."""
NEVER_RAN = frozenset({"skipped", "queue_full", "dst_skipped", "missed"})
REFUSED_STATES = frozenset(END_REASONS[reason] for reason in NEVER_RAN)
"""States of runs that ended when they were created. They never ran and have no log."""
ACTIVE_STATES = ALL_STATES - ENDED_STATES


def encode(status: str, end_reason: str | None) -> int:
    """Return the number of a phase and, if it is `ended`, a reason.

    Raises:
        ValueError: Unknown phase or reason, `ended` without a reason, or a reason with another phase.
    """
    try:
        return _CODES[status, end_reason]
    except KeyError:
        raise ValueError(f"unknown state of a run: {status!r} with end reason {end_reason!r}") from None


def decode(state: int) -> tuple[str, str | None]:
    """Return the phase and end reason of a stored number."""
    return _NAMES[state]


def select(phases: Collection[str], reasons: Collection[str]) -> frozenset[int]:
    """Return the numbers that match any of the phases or any of the reasons.

    Raises:
        ValueError: Unknown phase or reason.
    """
    for word in (*phases, *reasons):
        if word not in (PHASES if word in phases else END_REASONS):
            raise ValueError(f"unknown phase or end reason: {word!r}")
    return frozenset(code for code, (phase, reason) in _NAMES.items() if phase in phases or reason in reasons)
