"""The stop ladder: the stop signal to the whole group, the grace, SIGKILL, and a word about what survives even that.

All of it is here; the control loop only tells the time.
"""

import os
import signal

from supervisor.root.instances import Instance, Phase

_REPORT_AFTER_S = 10.0


def signal_group(instance: Instance, number: int) -> None:
    """Send a signal to the process group of an instance whose main process we have not reaped.

    The group's id cannot have been given to anybody else while that process is ours, dead or alive.
    """
    try:
        os.killpg(instance.pid, number)
    except (
        ProcessLookupError
    ):  # ESRCH: between setsid in the child and us there is nothing to signal yet, or all are gone
        return
    except PermissionError:  # EPERM: every member changed its user, to one we may not signal
        instance.leftovers.append(f"process group {instance.pid} (not permitted to signal it)")


def begin(instance: Instance, cause: str, by: str | None, now_s: float, *, force: bool = False) -> None:
    """Start the ladder; a repeated stop changes nothing, a forced one goes straight to SIGKILL."""
    if instance.cause is None and instance.phase is Phase.RUNNING:
        instance.cause = cause
        instance.by = by
        instance.kill_at_s = now_s + instance.spawn.grace_ms / 1000
        instance.deadline_s = None
        signal_group(instance, instance.spawn.stop_signal)
        # A stopped process acts on no signal but SIGKILL until it is continued.
        signal_group(instance, signal.SIGCONT)
    if force and not instance.killed:
        instance.kill_at_s = now_s


def due(instance: Instance, now_s: float) -> bool:
    """True when the ladder has to take its next step now."""
    return instance.kill_at_s is not None and now_s >= instance.kill_at_s


def step(instance: Instance, now_s: float) -> str | None:
    """Take the next step; returns what to say in the daemon's log, if anything."""
    if not instance.killed:
        instance.killed = True
        instance.kill_at_s = now_s + _REPORT_AFTER_S
        signal_group(instance, signal.SIGKILL)
        return None
    instance.kill_at_s = None
    return (
        f"{instance.spawn.task} {instance.run}: pid {instance.pid} is still there 10 s after SIGKILL (uninterruptible?)"
    )
