"""The process of a run as the root knows it, from the start to the report of its end (:mod:`.transitions`).

The main process stays a zombie until its log is sealed. The kernel does not reuse the id of a zombie, or of its
process group. So signals to the group reach only its members.
"""

import collections
import enum
import time
from typing import Any

from supervisor.host.cgroups import Cgroup, Usage
from supervisor.ipc.messages import Spawn
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.process.transitions import ALIVE, CLOSES, DRAINS, OVERDUE, State


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ProcessState(enum.Enum):
    """The part of a state that recovery records and handovers have."""

    RUNNING = "running"
    DRAINING = "draining"
    SEALING = "sealing"


class ManagedProcess:
    """One process group and its log; touched by the control thread only."""

    __slots__ = (
        "abandoned",
        "adopted",
        "by",
        "cause",
        "cgroup",
        "deadline_s",
        "ended_at",
        "kill_at_s",
        "leftovers",
        "lines",
        "log_notes",
        "not_permitted",
        "notify_socket",
        "pid",
        "pidfd",
        "reason",
        "spawn",
        "start",
        "started_at",
        "started_s",
        "state",
        "status",
        "status_fd",
        "steps",
        "sweep_interval_s",
        "usage",
        "without_grace",
    )

    def __init__(
        self,
        spawn: Spawn,
        pid: int,
        pidfd: int,
        started_at: int,
        status_fd: int | None,
        cgroup: Cgroup | None = None,
        ear: NotifySocket | None = None,
    ) -> None:
        self.spawn = spawn
        self.pid = pid
        self.pidfd = pidfd
        self.started_at = started_at
        self.started_s = _boot_s()
        """Start in seconds since the boot, including sleep. This clock cannot be set."""
        self.status_fd = status_fd
        """On which it tells why the command cannot be started; None: nothing of that kind is to be told."""
        self.cgroup = cgroup
        self.notify_socket = ear
        """On which it says how it is; None: it was not asked to, or has ended."""
        self.state = State.RUNNING
        self.deadline_s: float | None = None
        """Monotonic time at which the time-out strikes."""
        self.cause: str | None = None
        """Why we stop it: stop, timeout, overflow, shutdown, unfit."""
        self.by: str | None = None
        self.kill_at_s: float | None = None
        """Monotonic time of the next step of the stop ladder, or of the end of the time that leftovers have."""
        self.steps: collections.deque[tuple[int, float]] = collections.deque(
            [(spawn.stop_signal, spawn.grace_ms / 1000), *((number, ms / 1000) for number, ms in spawn.stop_then)]
        )
        """Steps of the ladder before SIGKILL: a signal, and seconds until the next step."""
        self.without_grace = False
        """It is to end without its grace."""
        self.abandoned = False
        """Its end does not wait for leftovers."""
        self.sweep_interval_s = 0.0
        """Seconds until the next search for leftovers."""
        self.start = 0
        """Start of the main process in clock ticks since the boot; 0: not read yet."""
        self.adopted = False
        """Another root started it, and was killed: the main process is not our child, and is no zombie when it ends."""
        self.status: int | None = None
        """Wait status of an adopted process, once it is known."""
        self.ended_at: int | None = None
        self.reason: str | None = None
        self.leftovers: dict[tuple[int, int], str] = {}
        """What outlived the main process and was killed: names by process id and start."""
        self.not_permitted: set[int] = set()
        """Ids of processes that we may not signal."""
        self.log_notes: list[str] = []
        """For the end of its log."""
        self.lines: int | None = None
        """Of its log, when that is complete."""
        self.usage: Usage | None = None
        """Of its cgroup, at its end."""

    @property
    def run(self) -> str:
        """Return the run id."""
        return self.spawn.run

    @property
    def phase(self) -> ProcessState:
        """Return the part of the state that other roots know."""
        if self.state in ALIVE:
            return ProcessState.RUNNING
        return ProcessState.DRAINING if self.state in DRAINS else ProcessState.SEALING

    @property
    def killed(self) -> bool:
        """Return whether the time for a voluntary end is over."""
        return self.state in OVERDUE

    @property
    def closes_early(self) -> bool:
        """Return whether the root closes the pipes, once their present content is in the log."""
        return self.state in CLOSES

    def has_ended(self) -> None:
        """Record the exit of the main process; its duration does not depend on the wall clock."""
        self.ended_at = self.started_at + round(1000 * (_boot_s() - self.started_s))


def told(instance: ManagedProcess) -> dict[str, Any]:
    """Return the entry of a running process in the snapshot for a new scheduler."""
    return {
        "run": instance.run,
        "task": instance.spawn.task,
        "pid": instance.pid,
        "started_at": instance.started_at,
        "cause": instance.cause,
        "by": instance.by,
        "recipe": instance.spawn.recipe,
        "origin": instance.spawn.origin,
        "heard": None if instance.notify_socket is None else instance.notify_socket.heard(),
    }


def state_from(
    phase: ProcessState, *, killed: bool, closes_early: bool, stopped: bool, complete: bool, drained: bool = False
) -> State:
    """Return the state of a process that another root owned.

    Args:
        phase: as are the others, a field of :class:`supervisor.root.handover.state_schema.RunProgress`.
        killed: the time for a voluntary end is over.
        closes_early: the other root has begun to close the pipes.
        stopped: a stop has begun.
        complete: the log is sealed.
        drained: the pipes have ended.
    """
    if phase is ProcessState.RUNNING:
        return State.KILLED if killed else State.STOPPING if stopped else State.RUNNING
    if phase is ProcessState.SEALING:
        return State.REAPING if complete else State.SEALING
    if drained:
        return State.KILLING if killed else State.DRAINED
    return State.CLOSING if killed and closes_early else State.DRAINING
