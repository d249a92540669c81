"""The process of a run as the root knows it, from the start to the report of its end (:mod:`.transitions`).

The main process stays a zombie until its log is sealed. The kernel does not reuse the id of a zombie, or of its
process group. So signals to the group reach only its members.
"""

import enum
import os
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

from supervisor.host.cgroups import Cgroup, CgroupUsage
from supervisor.host.pidfds import exit_status
from supervisor.host.procfs import COUNTS_IO, has_executed_nothing
from supervisor.ipc.messages import Exited, Spawn
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.process.transitions import ALIVE, CLOSES, DRAINS, OVERDUE, State

_SIGNAL_BASE = 128
_BLOCK_BYTES = 512
"""The unit of ru_inblock and ru_oublock (kernel/sys.c, task_io_get_inblock)."""


class ProcessState(enum.Enum):
    """The part of a state that recovery records and handovers contain."""

    RUNNING = "running"
    DRAINING = "draining"
    SEALING = "sealing"


@dataclass(frozen=True, slots=True)
class MainProcess:
    """The main process of a run; immutable."""

    pid: int
    pidfd: int
    started_at: int
    """Milliseconds since the epoch."""
    started_s: float
    """Start in seconds since the boot, including sleep. This clock cannot be set."""
    ticks: int = 0
    """Start in clock ticks since the boot, as in proc(5); 0: unknown."""
    adopted: bool = False
    """Whether a root that was killed started it. It is then not our child, so it is not a zombie after its end."""


@dataclass(slots=True)
class RunOutcome:
    """The facts about the end of a run, for the end of its log and for its report."""

    reason: str | None = None
    """Why the command could not be executed."""
    ended_at: int | None = None
    """Milliseconds since the epoch."""
    executed_nothing: bool = False
    """Whether the main process, which is our child, ended before it executed any program."""
    status: int | None = None
    """Wait status of an adopted process, once it is known."""
    usage: CgroupUsage | None = None
    """The resources that its cgroup has used."""
    leftovers: dict[tuple[int, int], str] = field(default_factory=dict)
    """Processes that outlived the main process and were killed: names by process id and start."""
    not_permitted: set[int] = field(default_factory=set)
    """Ids of processes that we may not signal."""
    log_notes: list[str] = field(default_factory=list)
    """Lines to add at the end of the log."""
    lines: int | None = None
    """The number of lines of the complete log."""


class ManagedProcess:
    """One process group and its log; touched by the control thread only."""

    __slots__ = (
        "abandoned",
        "by",
        "cause",
        "cgroup",
        "deadline_s",
        "main",
        "notify_socket",
        "outcome",
        "spawn",
        "state",
        "status_fd",
        "steps_left",
        "sweep_interval_s",
    )

    def __init__(
        self,
        spawn: Spawn,
        main: MainProcess,
        status_fd: int | None = None,
        cgroup: Cgroup | None = None,
        notify_socket: NotifySocket | None = None,
    ) -> None:
        self.spawn = spawn
        self.main = main
        self.status_fd = status_fd
        """A socket on which the shim reports why it cannot execute the command; None: no report is expected."""
        self.cgroup = cgroup
        self.notify_socket = notify_socket
        """None: the run has none, or the main process has ended."""
        self.state = State.RUNNING
        self.deadline_s: float | None = None
        """Monotonic time of the state's deadline.

        For a running process it is the timeout. For a stopping process it is the next step of the stop ladder. After
        the main process has exited, it is the deadline for pipes and leftovers.
        """
        self.cause: str | None = None
        """Why the run is being stopped: stop, timeout, overflow, shutdown, unfit."""
        self.by: str | None = None
        self.steps_left: int | None = 1 + len(spawn.stop_then)
        """Steps of the stop ladder before SIGKILL; None: the stop is forced, so SIGKILL is next, without grace."""
        self.abandoned = False
        """The run ends without waiting for leftovers."""
        self.sweep_interval_s = 0.0
        """Seconds until the next search for leftovers."""
        self.outcome = RunOutcome()

    @property
    def run(self) -> str:
        """Return the run id."""
        return self.spawn.run

    @property
    def phase(self) -> ProcessState:
        """Return the part of the state that is handed over to other roots."""
        if self.state in ALIVE:
            return ProcessState.RUNNING
        return ProcessState.DRAINING if self.state in DRAINS else ProcessState.SEALING

    @property
    def killed(self) -> bool:
        """Return whether the deadline for a voluntary exit has passed."""
        return self.state in OVERDUE

    @property
    def closes_early(self) -> bool:
        """Return whether the root closes the pipes, once their present content is in the log."""
        return self.state in CLOSES

    def is_due(self, now_s: float) -> bool:
        """Return whether the state's deadline has passed (`now_s` is monotonic)."""
        return self.deadline_s is not None and now_s >= self.deadline_s

    def note_end(self, boot_s: float) -> None:
        """Record the exit of the main process, `boot_s` seconds after the boot of the host.

        The duration does not depend on the wall clock.
        """
        self.outcome.ended_at = self.main.started_at + round(1000 * (boot_s - self.main.started_s))

    def inspect_zombie(self) -> None:
        """Note whether the main process, which has ended, executed any program."""
        self.outcome.executed_nothing = not self.main.adopted and has_executed_nothing(self.main.pid)


class MainProcessExit(NamedTuple):
    """The result of a main process. For an adopted process, only the status is known."""

    status: int | None
    """Wait status; None: unknown."""
    read_bytes: int | None = None
    write_bytes: int | None = None
    user_us: int = 0
    system_us: int = 0
    max_rss_bytes: int = 0


def reap(process: ManagedProcess) -> MainProcessExit | None:
    """Reap a main process, or release an adopted one; return None if that is not possible yet."""
    if process.main.adopted:
        status = status_of(process)
        os.close(process.main.pidfd)
        return MainProcessExit(status)
    pid, status, usage = os.wait4(process.main.pid, os.WNOHANG)
    if not pid:
        return None
    # The same counts as in /proc/PID/io, which Linux 6.18 hides from ordinary users once the process is a zombie.
    blocks = (usage.ru_inblock, usage.ru_oublock) if COUNTS_IO else (None, None)
    read_bytes, write_bytes = (None if count is None else count * _BLOCK_BYTES for count in blocks)
    user_us, system_us = int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6)
    return MainProcessExit(status, read_bytes, write_bytes, user_us, system_us, usage.ru_maxrss * 1024)


def own_failure(process: ManagedProcess) -> str | None:
    """Return why a launcher's client (such as Docker's) failed, from its exit code. It must still be a zombie."""
    if not process.spawn.own_failures or process.main.adopted:
        return None
    exit_info = os.waitid(os.P_PID, process.main.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    exited = exit_info is not None and exit_info.si_code == os.CLD_EXITED
    return process.spawn.own_failures.get(str(exit_info.si_status)) if exit_info is not None and exited else None


def status_of(process: ManagedProcess) -> int | None:
    """Return the wait status of an adopted main process that has ended; None: unknown."""
    if process.outcome.status is None:
        process.outcome.status = exit_status(process.main.pidfd, process.main.pid, process.main.ticks)
    return process.outcome.status


def exit_report(
    process: ManagedProcess, reaped: MainProcessExit, lines: int, now_ms: int, shutdown_signals: Container[int]
) -> Exited:
    """Return the exit of a run.

    Args:
        process: The process of the run.
        reaped: The result of the main process.
        lines: The number of lines in its log.
        now_ms: The time of the end, if its own time is unknown.
        shutdown_signals: The signals that have begun the shutdown. A run that one of them has ended before it was asked
            to end got the same signal, as from killall5 or from systemd with ``KillMode=control-group``.
    """
    cause = process.cause
    if cause is None and reaped.status is not None and _ended_by(reaped.status) in shutdown_signals:
        cause = "shutdown"
    usage = process.outcome.usage
    read_bytes, write_bytes = _most(reaped, usage)
    user_us, system_us = reaped.user_us, reaped.system_us
    if usage is not None and usage.user_us + usage.system_us > user_us + system_us:
        # The cgroup also counts processes whose parent did not wait for them.
        user_us, system_us = usage.user_us, usage.system_us
    return Exited(
        run=process.run,
        status=reaped.status,
        unknown=reaped.status is None,
        cause="start_failed" if process.outcome.reason else cause,
        by=process.by,
        reason=process.outcome.reason,
        started_at=process.main.started_at,
        ended_at=process.outcome.ended_at or now_ms,
        user_us=user_us,
        system_us=system_us,
        max_rss_bytes=reaped.max_rss_bytes,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        oom_kills=usage.oom_kills if usage is not None else 0,
        lines=lines,
        leftovers=list(process.outcome.leftovers.values()),
        origin=process.spawn.origin,
    )


def _ended_by(status: int) -> int:
    """Return the signal that ended a process, or that a shell or runtime reports as exit code 128 + N; else 0."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    return max(0, os.WEXITSTATUS(status) - _SIGNAL_BASE)


def _most(reaped: MainProcessExit, usage: CgroupUsage | None) -> tuple[int | None, int | None]:
    """Return the bytes read and written: the larger count of the main process and the cgroup.

    Only a cgroup counts processes whose parent did not wait for them. Only the kernel's count for a process includes
    pages that are not yet on disk.
    """
    counted = (None, None) if usage is None else (usage.read_bytes, usage.write_bytes)
    pairs = zip((reaped.read_bytes, reaped.write_bytes), counted, strict=True)
    read_bytes, write_bytes = (max((amount for amount in pair if amount is not None), default=None) for pair in pairs)
    return read_bytes, write_bytes


def snapshot_entry(process: ManagedProcess) -> dict[str, object]:
    """Return the entry of a running process in the snapshot for a new scheduler."""
    return {
        "run": process.run,
        "task": process.spawn.task,
        "pid": process.main.pid,
        "started_at": process.main.started_at,
        "cause": process.cause,
        "by": process.by,
        "recipe": process.spawn.recipe,
        "origin": process.spawn.origin,
        "heard": None if process.notify_socket is None else process.notify_socket.state(),
    }


def state_from(
    phase: ProcessState, *, killed: bool, closes_early: bool, stopped: bool, complete: bool, drained: bool = False
) -> State:
    """Return the state of a process that another root owned.

    The arguments are fields of :class:`supervisor.root.handover.state_schema.RunProgress`.

    Args:
        phase: The part of the state that is handed over.
        killed: The deadline for a voluntary exit has passed.
        closes_early: The other root had begun to close the pipes.
        stopped: A stop had begun.
        complete: The log is sealed.
        drained: The pipes have ended.
    """
    if phase is ProcessState.RUNNING:
        return State.KILLED if killed else State.STOPPING if stopped else State.RUNNING
    if phase is ProcessState.SEALING:
        return State.REAPING if complete else State.SEALING
    if drained:
        return State.KILLING if killed else State.DRAINED
    return State.CLOSING if killed and closes_early else State.DRAINING
