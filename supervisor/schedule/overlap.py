"""What happens to a new run of a task that is already running: pure."""

import enum


class Admission(enum.Enum):
    """What to do with a new run."""

    START = "start"
    QUEUE = "queue"
    SKIP = "skip"
    FULL = "full"
    TERMINATE = "terminate"
    """Stop the oldest running one; the new one waits for its place."""


def admit(
    policy: str, *, running: int, queued: int, max_concurrent: int, queue_max: int, another_waits: bool = False
) -> Admission:
    """Decide on a new run.

    Args:
        policy: ``queue``, ``skip`` or ``terminate``.
        running: runs of the task that hold a slot (being started, running, being stopped).
        queued: runs of the task that wait for one.
        max_concurrent: how many may hold a slot at once.
        queue_max: how many may wait.
        another_waits: one waits already for which the new one stands as well.
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
