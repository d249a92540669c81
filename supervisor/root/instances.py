"""What the root knows of each instance it started, from the spawn to the acknowledged exit.

::

    spawn --> RUNNING --main process exits--> DRAINING --pipes at their end--> SEALING --log sealed--> ended
                 |                                                                                      |
                 +-- cannot be started -----------------------------------------------------------------+

The main process stays a zombie until the end of SEALING: as long as it is one, its process id, and so the id of its
process group, cannot be given to anybody else, and signals sent to the group reach nobody but its members.
"""

import enum

from supervisor.messages import Spawn


class Phase(enum.Enum):
    """Where in its life an instance stands."""

    RUNNING = "running"
    DRAINING = "draining"
    SEALING = "sealing"


class Instance:
    """One process group and its log; touched by the control thread only."""

    __slots__ = (
        "by",
        "cause",
        "deadline_s",
        "ended_at",
        "kill_at_s",
        "killed",
        "leftovers",
        "phase",
        "pid",
        "pidfd",
        "reason",
        "spawn",
        "started_at",
        "status_fd",
    )

    def __init__(self, spawn: Spawn, pid: int, pidfd: int, started_at: int, status_fd: int | None) -> None:
        self.spawn = spawn
        self.pid = pid
        self.pidfd = pidfd
        self.started_at = started_at
        self.status_fd = status_fd
        """Read end on which the shim tells why the command could not be started; None without a shim."""
        self.phase = Phase.RUNNING
        self.deadline_s: float | None = None
        """Monotonic time at which the time-out strikes."""
        self.cause: str | None = None
        """Why we stop it: stop, timeout, overflow, shutdown."""
        self.by: str | None = None
        self.kill_at_s: float | None = None
        """Monotonic time at which the stop ladder reaches SIGKILL."""
        self.killed = False
        self.ended_at: int | None = None
        self.reason: str | None = None
        self.leftovers: list[str] = []

    @property
    def run(self) -> str:
        """Its run id."""
        return self.spawn.run
