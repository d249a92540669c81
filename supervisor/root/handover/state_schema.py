"""The schema of the state that one root hands over to the next.

:class:`RunState` contains everything that a root needs to own a run. Recovery records (:mod:`.record_memory`) and
handovers (:mod:`.table`) share it. :class:`ExactState` is part of a handover only, because only an upgrade keeps the
process. :class:`RootState` contains all runs and the state that belongs to no run, one object for each component of the
root. The functions at the end map the attributes of a run to the fields.

The field names are the format, so they never change; the names of classes and attributes may. A new field is added at
the end of its class, with a default for handovers of older versions. A field with its default value is not written. So
an older version accepts a handover unless it uses the new field.
"""

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan, nan
from typing import NamedTuple

from logring.state_json import UnknownFormat, from_json
from supervisor.host.cgroups import Cgroup, CgroupUsage
from supervisor.ipc.messages import DaemonSettings, Exited, Spawn
from supervisor.root.process.managed_process import MainProcess, ManagedProcess, ProcessState, RunOutcome, state_from
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.process.transitions import State

PHASES = (ProcessState.RUNNING, ProcessState.DRAINING, ProcessState.SEALING)
"""Indexed by the number of the phase in the packed form."""


@dataclass(frozen=True)
class CgroupState:
    """The cgroup of a run."""

    path: str
    limits: list[str] = field(default_factory=list)
    """The controllers with limits: memory, cpu."""
    controllers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunStart:
    """The request and the process that was started for it. It never changes."""

    request: Spawn
    pid: int
    ticks: int
    """Start time of the main process as in proc(5), which distinguishes it from later processes with the same id. 0:
    unknown."""
    started_at: int
    started_s: float


@dataclass(frozen=True)
class RunProgress:
    """The fields of fixed size, which change with each step of a run."""

    phase: ProcessState
    steps_left: int
    """The remaining steps of the stop ladder."""
    deadline_s: float | None = None
    kill_at_s: float | None = None
    hurried: bool = False
    killed: bool = False
    cut_off: bool = False
    abandoned: bool = False
    adopted: bool = False
    unexecuted: bool = False
    """The process may still report why it cannot execute the command."""
    status: int | None = None
    ended_at: int | None = None
    lines: int | None = None
    ready_at: int | None = None
    """When the run reported by sd_notify(3) that it is ready, in milliseconds since the epoch."""


@dataclass(frozen=True)
class RunDetails:
    """The fields without a fixed size, which change rarely."""

    cause: str | None = None
    by: str | None = None
    reason: str | None = None
    cgroup: CgroupState | None = None
    leftovers: list[tuple[int, int, str]] = field(default_factory=list)
    """Processes that outlived the main process and were killed: process id, start time and name."""
    untouchable: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    usage: CgroupUsage | None = None
    says: str | None = None
    """The newest status from sd_notify."""
    exited: Exited | None = None
    """The exit of the run until the scheduler has stored it; None: the run has not ended."""
    stopping_at: int | None = None
    """When the run reported by sd_notify that it is stopping, in milliseconds since the epoch."""
    triggered: bool = False
    """Whether the run asked for the action of an expired watchdog."""


@dataclass(frozen=True)
class RunState:
    """Everything that a root needs to own a run."""

    start: RunStart
    progress: RunProgress
    details: RunDetails

    @property
    def run(self) -> str:
        """Return the run id."""
        return self.start.request.run


class PipeState(NamedTuple):
    """A pipe, or a terminal, that the pump reads."""

    fd: int
    stream: int


class LeftoverState(NamedTuple):
    """An ended run with processes that may still write to its pipes."""

    task: str
    secrets: list[str]


class LogProgress(NamedTuple):
    """How much of a ring is in its log file: the fields of :attr:`logring.logfile.log_file.LogFileWriter.progress`."""

    seen: int
    last: tuple[int, int]
    part: tuple[int, int]


@dataclass(frozen=True)
class LogState:
    """A log and its unwritten data.

    The writer contains unpublished output, text that masks hold back, the screen with redrawn lines, and frames that
    are not on the disk yet.
    """

    name: str
    path: str
    """The path of the log file; empty: the log has none."""
    sources: list[PipeState]
    writer: dict[str, object]
    """The result of :meth:`logring.ring.writer.RingWriter.dump`."""
    progress: LogProgress | None
    """None: nothing was written to the log file."""
    stalled: bool
    state: str
    told_overflow: bool
    told_blocks: int
    cut_off: bool
    sealing: bool
    sealed: bool
    frames_failed: bool
    left: LeftoverState | None = None


@dataclass(frozen=True, kw_only=True)
class RunLogState(LogState):
    """The log of a run."""

    since_s: float | None
    """Monotonic time since which the log has waited for its file; None: it does not wait."""


@dataclass(frozen=True)
class ExactState:
    """State that only the same process can keep. A killed root loses it."""

    pidfd: int | None = None
    """None: the main process has exited and is our zombie."""
    status_fd: int | None = None
    notify_fd: int | None = None
    """The sd_notify(3) socket, with its unread datagrams."""
    resume_at_s: float | None = None
    """Monotonic time at which reading that socket resumes after a flood."""
    look_s: float = 0.0
    """Seconds until the next search for leftovers."""
    log: RunLogState | None = None
    """None: the log is complete and written."""


# State that a root hands over.


class RunHandover(NamedTuple):
    """A run that continues."""

    state: RunState
    exact: ExactState


@dataclass(frozen=True)
class HelperState:
    """The scheduler, or the API server."""

    epoch: int
    pid: int | None
    """None: it is not running, and the next root starts it."""
    pidfd: int | None
    sock: int | None


@dataclass(frozen=True)
class KeptDescriptors:
    """Descriptors that every root holds."""

    lock: list[int]
    """The locks of the data directory and the runtime directory."""
    listeners: list[int]


class LeftoverRunState(NamedTuple):
    """An ended run whose leftovers are still alive."""

    task: str
    run: str
    cgroup: str | None
    known: list[tuple[int, int]]
    """Process ids and start times."""


class OwnerState(NamedTuple):
    """An orphan, and the run that it belongs to."""

    pid: int
    start: int
    run: str


class RecordState(NamedTuple):
    """The recovery record of a run (:mod:`.record_memory`)."""

    fd: int
    pipes: dict[str, list[int]]
    """Device and inode of each pipe by its role."""


@dataclass(frozen=True)
class ProcessesState:
    """The part of the process manager that belongs to no living run."""

    exits: list[Exited]
    """Exits that the scheduler has not acknowledged."""
    stillborn: dict[str, str]
    """Why runs could not be started, until their logs are sealed."""
    ended_pipes: list[str]
    """Runs whose pipes have ended."""
    left: list[CgroupState]
    """Cgroups of ended runs that still contain processes."""
    nofile: int
    """The soft limit of open descriptors with which the daemon was started."""
    owners: list[OwnerState]
    records: dict[str, RecordState]
    left_running: list[LeftoverRunState] = field(default_factory=list)


class HeldText(NamedTuple):
    """The output that a mask holds back, and the number of secrets that it has replaced."""

    text: bytes
    masked: int


@dataclass(frozen=True)
class LeftoverOutputState:
    """Output of leftovers for the daemon's log."""

    task: str
    run: str
    secrets: list[str]
    held: HeldText
    unfinished: bytes
    dropped: int
    """The number of lines dropped since the last written line."""


class LeftoverPipeState(NamedTuple):
    """A pipe to which leftovers write."""

    fd: int
    output: LeftoverOutputState


class HelperOutputState(NamedTuple):
    """The output of a helper."""

    fd: int
    unfinished: bytes


@dataclass(frozen=True)
class FilesState:
    """The state of the file thread."""

    failing: dict[str, str]
    """Why log files cannot be written, by run."""
    echo: bytes
    """Lines of the daemon's log that were not written to standard error yet."""


@dataclass(frozen=True)
class PumpState:
    """The state of the pump and of the file thread."""

    logs: list[RunLogState]
    """The logs of runs that have ended or could not be started."""
    daemon: LogState
    helpers: list[HelperOutputState]
    files: FilesState
    left: list[LeftoverPipeState] = field(default_factory=list)


class StoreRequest(NamedTuple):
    """A change that the service manager's descriptor store has not received yet."""

    run: str
    fds: list[int] | None
    """Descriptors to store; None: remove all descriptors of the run from the store."""


class HeldSocketState(NamedTuple):
    """A listening socket that the root holds for a service."""

    service: str
    name: str
    identity: str
    """A digest by which the scheduler knows the configuration of the socket."""
    fd: int


@dataclass(frozen=True, kw_only=True)
class RootState:
    """The whole state of a root."""

    boot: DaemonSettings
    number: int
    """The number of upgrades so far, over all versions."""
    told_ready: bool
    terminal: bool
    """Whether the daemon ends when its terminal is closed."""
    kept: KeptDescriptors
    scheduler: HelperState
    api: HelperState
    runs: list[RunHandover]
    lives: ProcessesState
    pump: PumpState
    reload: bool = False
    """Whether the scheduler must still reload the configuration."""
    store: list[StoreRequest] = field(default_factory=list)
    sockets: list[HeldSocketState] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Handover(RootState):
    """The whole table (:mod:`.table`)."""

    handover: int
    version: str
    keep: list[int]
    signals: list[int]


# The packed form: the fields of fixed size, in order.

_CODES: dict[object, str] = {ProcessState: "q", bool: "?", int: "q", float: "d", int | None: "q", float | None: "d"}
_CODE = "<" + "".join(_CODES[attribute.type] for attribute in dataclasses.fields(RunProgress))
_NO_INT = -(1 << 63)


def pack(progress: RunProgress) -> bytes:
    """Return the fields of fixed size in their packed form."""
    values: list[object] = []
    for attribute in dataclasses.fields(RunProgress):
        value = getattr(progress, attribute.name)
        if attribute.type is ProcessState:
            value = PHASES.index(value)
        elif value is None:
            value = nan if attribute.type == float | None else _NO_INT
        values.append(value)
    return struct.pack(_CODE, *values)


def unpack(data: bytes) -> RunProgress:
    """Reverse :func:`pack`. An older version may have packed the data with fewer fields.

    Raises:
        UnknownFormat: a newer version has packed the data with more fields.
    """
    attributes = dataclasses.fields(RunProgress)
    count = next((n for n in range(1, len(attributes) + 1) if struct.calcsize(_CODE[: n + 1]) == len(data)), None)
    if count is None:
        raise UnknownFormat(f"{len(data)} bytes of progress are unknown")
    values: dict[str, object] = {}
    for attribute, value in zip(attributes, struct.unpack(_CODE[: count + 1], data), strict=False):
        if attribute.type is ProcessState:
            if not 0 <= value < len(PHASES):
                raise UnknownFormat(f"phase {value} is not known")
            values[attribute.name] = PHASES[value]
        elif isinstance(value, float):
            values[attribute.name] = None if isnan(value) else value
        else:
            values[attribute.name] = None if value == _NO_INT else value
    return from_json(RunProgress, values)  # type: ignore[no-any-return]


# The mapping of attributes to fields.


def state_of(process: ManagedProcess, exited: Exited | None = None) -> RunState:
    """Return the state that a root needs to own a run; `exited`: its exit, if the run has ended."""
    main, outcome, notify = process.main, process.outcome, process.notify_socket
    running = process.state is State.RUNNING and process.cause is None  # otherwise it is being stopped
    return RunState(
        RunStart(
            request=process.spawn,
            pid=main.pid,
            ticks=main.ticks,
            started_at=main.started_at,
            started_s=main.started_s,
        ),
        RunProgress(
            phase=process.phase,
            steps_left=process.steps_left or 0,
            deadline_s=process.deadline_s if running else None,
            kill_at_s=None if running else process.deadline_s,
            hurried=process.steps_left is None,
            killed=process.killed,
            cut_off=process.closes_early,
            abandoned=process.abandoned,
            adopted=main.adopted,
            unexecuted=process.status_fd is not None,
            status=outcome.status,
            ended_at=outcome.ended_at,
            lines=outcome.lines,
            ready_at=None if notify is None else notify.ready_at,
        ),
        RunDetails(
            cause=process.cause,
            by=process.by,
            reason=outcome.reason,
            cgroup=None if process.cgroup is None else cgroup_state(process.cgroup),
            leftovers=[(pid, start, name) for (pid, start), name in outcome.leftovers.items()],
            untouchable=sorted(outcome.not_permitted),
            remarks=list(outcome.log_notes),
            usage=outcome.usage,
            says=None if notify is None else notify.status,
            exited=exited,
            stopping_at=None if notify is None else notify.stopping_at,
            triggered=notify is not None and notify.triggered,
        ),
    )


def process_of(
    state: RunState, pidfd: int, status_fd: int | None, *, adopted: bool, drained: bool = False
) -> ManagedProcess:
    """Create a process from its state, without the notification socket.

    Args:
        state: The state of the process.
        pidfd: The pidfd of the main process.
        status_fd: The socket on which it may report why it cannot execute the command.
        adopted: The main process is not our child.
        drained: The pipes have ended.
    """
    start, progress, details = state.start, state.progress, state.details
    main = MainProcess(start.pid, pidfd, start.started_at, start.started_s, start.ticks, adopted)
    cgroup = None if details.cgroup is None else cgroup_of(details.cgroup)
    process = ManagedProcess(start.request, main, status_fd, cgroup)
    process.state = state_from(
        progress.phase,
        killed=progress.killed,
        closes_early=progress.cut_off,
        stopped=details.cause is not None,
        complete=progress.lines is not None,
        drained=drained,
    )
    process.steps_left = None if progress.hurried else progress.steps_left
    process.deadline_s = progress.deadline_s if progress.kill_at_s is None else progress.kill_at_s
    process.abandoned = progress.abandoned
    process.cause = details.cause
    process.by = details.by
    process.outcome = RunOutcome(
        reason=details.reason,
        ended_at=progress.ended_at,
        status=progress.status,
        usage=details.usage,
        leftovers={(pid, ticks): name for pid, ticks, name in details.leftovers},
        not_permitted=set(details.untouchable),
        log_notes=list(details.remarks),
        lines=progress.lines,
    )
    return process


def exact_of(process: ManagedProcess, log: RunLogState | None, keep: Callable[[int], int]) -> ExactState:
    """Return the state for the next root in this process; `keep` registers a descriptor that it needs."""
    notify, open_ = process.notify_socket, process.phase is ProcessState.RUNNING or process.main.adopted
    return ExactState(
        pidfd=keep(process.main.pidfd) if open_ else None,
        status_fd=None if process.status_fd is None else keep(process.status_fd),
        notify_fd=None if notify is None else keep(notify.fileno()),
        resume_at_s=None if notify is None else notify.resume_at_s,
        look_s=process.sweep_interval_s,
        log=log,
    )


def restore_exact(process: ManagedProcess, state: RunState, exact: ExactState) -> None:
    """Restore the notification socket and the search interval of a process in an upgrade."""
    process.sweep_interval_s = exact.look_s
    if exact.notify_fd is not None:
        process.notify_socket = NotifySocket(process.spawn, exact.notify_fd)
        process.notify_socket.resume_at_s = exact.resume_at_s
        restore_notified(process.notify_socket, state)


def restore_notified(notify_socket: NotifySocket, state: RunState) -> None:
    """Restore what the run has reported."""
    notify_socket.ready_at, notify_socket.status = state.progress.ready_at, state.details.says
    notify_socket.stopping_at, notify_socket.triggered = state.details.stopping_at, state.details.triggered


def cgroup_state(cgroup: Cgroup) -> CgroupState:
    """Return the state of a cgroup."""
    return CgroupState(cgroup.path, sorted(cgroup.limits), sorted(cgroup.controllers))


def cgroup_of(state: CgroupState) -> Cgroup:
    """Create a cgroup from its state."""
    cgroup = Cgroup(state.path, frozenset(state.controllers))
    cgroup.limits = set(state.limits)
    return cgroup
