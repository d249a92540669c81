"""The stop ladder: signals to all processes of a run or to its main process, each with its time, then SIGKILL to all.

The control loop tells the time; what outlives the main process is ended by :mod:`supervisor.root.lives`.
"""

import signal

from supervisor.root.instances import Instance, Phase
from supervisor.root.signals import signal_name
from supervisor.root.tree import Trees

_REPORT_AFTER_S = 10.0


def begin(trees: Trees, instance: Instance, cause: str, by: str | None, now_s: float, *, force: bool = False) -> None:
    """Start the ladder; a repeated stop changes nothing, a forced one goes straight to SIGKILL."""
    if instance.cause is None and instance.phase is Phase.RUNNING:
        instance.cause = cause
        instance.by = by
        instance.deadline_s = None
        instance.kill_at_s = now_s
        if not force:
            _signal(trees, instance, now_s)
    if force and not instance.killed:
        instance.hurried = True
        instance.steps.clear()
        instance.kill_at_s = now_s


def _signal(trees: Trees, instance: Instance, now_s: float) -> None:
    number, wait_s = instance.steps.popleft()
    instance.kill_at_s = now_s + wait_s
    # A stopped process acts on no signal but SIGKILL until it is continued. Signal 0 is none (kill(2)).
    if instance.spawn.stop_target == "main":
        trees.signal_main(instance, number, signal.SIGCONT)
    else:
        trees.signal(instance, number, signal.SIGCONT)


def due(instance: Instance, now_s: float) -> bool:
    """True when the ladder has to take its next step now."""
    return instance.kill_at_s is not None and now_s >= instance.kill_at_s


def step(trees: Trees, instance: Instance, now_s: float) -> str:
    """Take the next step; returns what to say in the log of the run."""
    if not instance.killed and instance.steps:
        name = signal_name(instance.steps[0][0])
        _signal(trees, instance, now_s)
        return f"did not end in time: sending {name}"
    if not instance.killed:
        instance.killed = True
        instance.kill_at_s = now_s + _REPORT_AFTER_S
        trees.kill(instance)
        return "sending SIGKILL" if instance.hurried else "did not end in time: sending SIGKILL"
    instance.kill_at_s = None
    living = ", ".join(map(str, trees.members(instance).values()))
    return f"still there 10 s after SIGKILL (uninterruptible?): {living}"
