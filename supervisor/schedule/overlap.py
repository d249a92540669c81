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
    """Decide on a new run; an accepted run may still wait for slots or for the daemon.

    Args:
        policy: ``queue``, ``skip`` or ``terminate``.
        running: runs of the task that are starting, running or stopping.
        queued: runs of the task that wait.
        max_concurrent: limit of running runs.
        queue_max: limit of waiting runs.
        another_waits: whether a waiting run already covers the new one.
    """
    if running + queued < max_concurrent:
        return Admission.SKIP if another_waits else Admission.START
    if policy == "skip":
        return Admission.SKIP
    if policy == "terminate":
        return Admission.TERMINATE
    if another_waits:
        return Admission.SKIP
    return Admission.FULL if queued >= queue_max else Admission.QUEUE
