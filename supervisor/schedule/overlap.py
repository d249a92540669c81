"""Overlap policy: the admission of a new run while others are active. Pure."""

import enum


class Admission(enum.Enum):
    """Decision about a new run."""

    START = "start"
    QUEUE = "queue"
    SKIP = "skip"
    FULL = "full"
    TERMINATE = "terminate"
    """Stop the oldest active run; the new run waits for its slot."""


def admit(
    policy: str, *, running: int, queued: int, max_concurrent: int, queue_max: int, another_waits: bool = False
) -> Admission:
    """Decide on a new run.

    Args:
        policy: ``queue``, ``skip`` or ``terminate``.
        running: runs of the task with a slot (starting, running or stopping).
        queued: runs of the task that wait for a slot.
        max_concurrent: number of slots.
        queue_max: limit of waiting runs.
        another_waits: whether a waiting run already covers the new one.
    """
    if running < max_concurrent and not queued:
        return Admission.START
    if policy == "skip":
        return Admission.SKIP
    if policy == "terminate":
        return Admission.TERMINATE
    if another_waits:
        return Admission.SKIP
    return Admission.FULL if queued >= queue_max else Admission.QUEUE
