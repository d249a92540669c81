"""The overlap policy: whether a new run starts, waits or is refused while others are active. Pure."""

import enum


class Admission(enum.Enum):
    """A decision about a new run."""

    START = "start"
    QUEUE = "queue"
    SKIP = "skip"
    FULL = "full"
    TERMINATE = "terminate"
    """Stop the oldest active run; the new run waits for its place."""


def decide(
    policy: str, *, running: int, queued: int, max_concurrent: int, queue_max: int, another_waits: bool = False
) -> Admission:
    """Return the decision about a new run. A run that may start may still wait for slots or the daemon's limit.

    Args:
        policy: ``queue``, ``skip`` or ``terminate``.
        running: number of runs of the task that are starting, running or stopping.
        queued: number of runs of the task that wait.
        max_concurrent: maximum of `running`.
        queue_max: maximum of `queued`.
        another_waits: whether a waiting run makes the new one unnecessary.
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
