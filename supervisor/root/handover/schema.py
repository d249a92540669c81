"""The schema of a run that passes from one root to the next, in two parts.

:class:`RunState` is all that owning a run needs. Every recovery record (:mod:`.record`) and every handover
(:mod:`.handover`) carries the same. :class:`ExactState` travels in an upgrade only, where the process stays and only
its program changes. The functions at the end are the only place that knows which attribute is which field.

The names of fields are the format and never change; classes and attributes may. A field that comes later stands at the
end of its class and has a default, which stands for it in what an older version wrote. A field with its default value
is not written. So an older version accepts runs that do not use the field, and refuses the others.
"""

import collections
import dataclasses
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

from logring.format_table import Foreign
from supervisor.host.cgroups import Cgroup, Usage
from supervisor.ipc.messages import Exited, Spawn, without_defaults
from supervisor.root.process.managed_process import ManagedProcess, ProcessState
from supervisor.root.process.notify_socket import NotifySocket

PHASES = (ProcessState.RUNNING, ProcessState.DRAINING, ProcessState.SEALING)
"""By their numbers in the packed form."""


@dataclass(frozen=True)
class CgroupState:
    """The cgroup of a run."""

    path: str
    limits: list[str] = field(default_factory=list)
    """The limited controllers out of memory and cpu."""
    controllers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunStart:
    """The request and the process that was started for it. Nothing of it ever changes."""

    request: Spawn
    pid: int
    ticks: int
    """When the main process started, as in proc(5): it distinguishes the process from a later one of that id. 0: not
    read."""
    started_at: int
    started_s: float


@dataclass(frozen=True)
class RunProgress:
    """The fields of fixed size, which change with each step of a run."""

    phase: ProcessState
    steps_left: int
    """Of the stop ladder."""
    deadline_s: float | None = None
    kill_at_s: float | None = None
    hurried: bool = False
    killed: bool = False
    cut_off: bool = False
    abandoned: bool = False
    adopted: bool = False
    unexecuted: bool = False
    """Its process may yet tell why the command cannot be executed."""
    status: int | None = None
    ended_at: int | None = None
    lines: int | None = None
    ready_at: int | None = None
    """When it said by sd_notify that it is ready."""


@dataclass(frozen=True)
class RunDetails:
    """The fields without a fixed size, which change rarely."""

    cause: str | None = None
    by: str | None = None
    reason: str | None = None
    cgroup: CgroupState | None = None
    leftovers: list[tuple[int, int, str]] = field(default_factory=list)
    """Processes that outlived the main process and were killed: ids, starts and names."""
    untouchable: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    usage: Usage | None = None
    says: str | None = None
    """The newest status that it told by sd_notify."""
    exited: Exited | None = None
    """How the run ended, until the scheduler has stored that; None: it has not ended."""


@dataclass(frozen=True)
class RunState:
    """All that owning a run needs."""

    start: RunStart
    progress: RunProgress
    details: RunDetails

    @property
    def run(self) -> str:
        """Return the run id."""
        return self.start.request.run


@dataclass(frozen=True)
class ExactState:
    """State that only the same process can keep. A killed root leaves nothing of it."""

    pidfd: int | None = None
    """None: the main process has ended, and is a zombie of ours."""
    status_fd: int | None = None
    notify_fd: int | None = None
    """The socket of sd_notify, with all that waits in it."""
    resume_at_s: float | None = None
    """When that is listened to again, after a flood."""
    look_s: float = 0.0
    """Seconds until the next look for processes that are left."""
    log: dict[str, Any] | None = None
    """Writer and file of the log, with all that is not written yet. None: the log is complete and written.

    It holds output that is not published, text that masks hold back, screen and redrawn lines, and frames on their way
    to the disk (:meth:`supervisor.root.output.run_log.RunLog.take_down`).
    """


# As JSON. Every class has the fields of its own above; only those here are made of more than JSON has.

_FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "request": lambda found: made(Spawn, found),
    "phase": ProcessState,
    "cgroup": lambda found: made(CgroupState, found),
    "usage": lambda found: made(Usage, found),
    "exited": lambda found: made(Exited, found),
    "leftovers": lambda found: [(pid, start, name) for pid, start, name in found],
}


def plain(part: Any) -> dict[str, Any]:
    """Return an object of one of these classes as JSON has it, without fields that have their defaults."""
    found = {}
    for one in dataclasses.fields(part):
        value = getattr(part, one.name)
        default = one.default_factory() if one.default_factory is not dataclasses.MISSING else one.default
        if default is dataclasses.MISSING or value != default:
            found[one.name] = _plain_value(value)
    return found


def _plain_value(value: Any) -> Any:
    if isinstance(value, ProcessState):
        return value.value
    if isinstance(value, Spawn):
        return without_defaults(value)
    return plain(value) if dataclasses.is_dataclass(value) else value


def made(cls: Any, found: dict[str, Any]) -> Any:
    """Return the object of the class `cls` of which :func:`plain` has made `found`, perhaps in another version.

    Raises:
        Foreign: a field is missing, or one is unknown.
    """
    known = {one.name: one for one in dataclasses.fields(cls)}
    if unknown := sorted(found.keys() - known.keys()):
        raise Foreign(f"{cls.__name__} has the unknown fields {', '.join(unknown)}")
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    needed = {name for name, one in known.items() if (one.default, one.default_factory) == missing}
    if lacking := sorted(needed - found.keys()):
        raise Foreign(f"{cls.__name__} lacks {', '.join(lacking)}")
    try:
        return cls(
            **{
                name: _FROM_JSON[name](value) if name in _FROM_JSON and value is not None else value
                for name, value in found.items()
            }
        )
    except (TypeError, ValueError, AttributeError) as err:
        raise Foreign(f"{cls.__name__}: {err}") from err


def plain_state(state: RunState) -> dict[str, Any]:
    """Return a run as JSON has it."""
    return {"start": plain(state.start), "progress": plain(state.progress), "details": plain(state.details)}


def made_state(found: dict[str, Any]) -> RunState:
    """Return the run of which :func:`plain_state` has made `found`.

    Raises:
        Foreign, KeyError: it is not what this version knows.
    """
    return RunState(
        made(RunStart, found["start"]), made(RunProgress, found["progress"]), made(RunDetails, found["details"])
    )


# Packed: fields of fixed size one after the other, in their order.

_CODES: dict[Any, str] = {ProcessState: "q", bool: "?", int: "q", float: "d", int | None: "q", float | None: "d"}
_CODE = "<" + "".join(_CODES[one.type] for one in dataclasses.fields(RunProgress))
_NO_INT = -(1 << 63)


def packed(progress: RunProgress) -> bytes:
    """Return the fields of fixed size in their packed form."""
    values: list[Any] = []
    for one in dataclasses.fields(RunProgress):
        value = getattr(progress, one.name)
        if one.type is ProcessState:
            value = PHASES.index(value)
        elif value is None:
            value = nan if one.type == float | None else _NO_INT
        values.append(value)
    return struct.pack(_CODE, *values)


def unpacked(data: bytes) -> RunProgress:
    """Return the progress that :func:`packed` was given, perhaps in an older version, which had fewer fields.

    Raises:
        Foreign: a newer version has packed it, which has more.
    """
    known = dataclasses.fields(RunProgress)
    count = next((n for n in range(1, len(known) + 1) if struct.calcsize(_CODE[: n + 1]) == len(data)), None)
    if count is None:
        raise Foreign(f"{len(data)} bytes of progress are not known")
    found: dict[str, Any] = {}
    for one, value in zip(known, struct.unpack(_CODE[: count + 1], data), strict=False):
        if one.type is ProcessState:
            if not 0 <= value < len(PHASES):
                raise Foreign(f"phase {value} is not known")
            found[one.name] = PHASES[value]
        elif isinstance(value, float):
            found[one.name] = None if isnan(value) else value
        else:
            found[one.name] = None if value == _NO_INT else value
    return made(RunProgress, found)  # type: ignore[no-any-return]


# Which attribute is which field.


def state_of(instance: ManagedProcess, exited: Exited | None = None) -> RunState:
    """Return all that owning a run needs; `exited`: how it has ended."""
    ear = instance.notify_socket
    return RunState(
        RunStart(
            request=instance.spawn,
            pid=instance.pid,
            ticks=instance.start,
            started_at=instance.started_at,
            started_s=instance.started_s,
        ),
        RunProgress(
            phase=instance.phase,
            steps_left=len(instance.steps),
            deadline_s=instance.deadline_s,
            kill_at_s=instance.kill_at_s,
            hurried=instance.without_grace,
            killed=instance.killed,
            cut_off=instance.closes_early,
            abandoned=instance.abandoned,
            adopted=instance.adopted,
            unexecuted=instance.status_fd is not None,
            status=instance.status,
            ended_at=instance.ended_at,
            lines=instance.lines,
            ready_at=None if ear is None else ear.ready_at,
        ),
        RunDetails(
            cause=instance.cause,
            by=instance.by,
            reason=instance.reason,
            cgroup=None if instance.cgroup is None else cgroup_state(instance.cgroup),
            leftovers=[(pid, start, name) for (pid, start), name in instance.leftovers.items()],
            untouchable=sorted(instance.not_permitted),
            remarks=list(instance.log_notes),
            usage=instance.usage,
            says=None if ear is None else ear.status,
            exited=exited,
        ),
    )


def instance_of(state: RunState, pidfd: int, status_fd: int | None) -> ManagedProcess:
    """Return the instance whose state that was, without its ear."""
    start, progress, details = state.start, state.progress, state.details
    cgroup = None if details.cgroup is None else cgroup_of(details.cgroup)
    instance = ManagedProcess(start.request, start.pid, pidfd, start.started_at, status_fd, cgroup)
    instance.started_s = start.started_s
    instance.start = start.ticks
    instance.phase = progress.phase
    instance.steps = collections.deque(list(instance.steps)[len(instance.steps) - progress.steps_left :])
    instance.deadline_s = progress.deadline_s
    instance.kill_at_s = progress.kill_at_s
    instance.without_grace = progress.hurried
    instance.killed = progress.killed
    instance.closes_early = progress.cut_off
    instance.abandoned = progress.abandoned
    instance.adopted = progress.adopted
    instance.status = progress.status
    instance.ended_at = progress.ended_at
    instance.lines = progress.lines
    instance.cause = details.cause
    instance.by = details.by
    instance.reason = details.reason
    instance.leftovers = {(pid, ticks): name for pid, ticks, name in details.leftovers}
    instance.not_permitted = set(details.untouchable)
    instance.log_notes = list(details.remarks)
    instance.usage = details.usage
    return instance


def exact_of(instance: ManagedProcess, log: dict[str, Any] | None, keep: Callable[[int], int]) -> ExactState:
    """Return what only the next program in this process can go on with; `keep` takes note of descriptors."""
    ear, open_ = instance.notify_socket, instance.phase is ProcessState.RUNNING or instance.adopted
    return ExactState(
        pidfd=keep(instance.pidfd) if open_ else None,
        status_fd=None if instance.status_fd is None else keep(instance.status_fd),
        notify_fd=None if ear is None else keep(ear.fileno()),
        resume_at_s=None if ear is None else ear.resume_at_s,
        look_s=instance.sweep_interval_s,
        log=log,
    )


def take_up_exact(instance: ManagedProcess, state: RunState, exact: ExactState) -> None:
    """Have an instance go on with its socket where it was."""
    instance.sweep_interval_s = exact.look_s
    if exact.notify_fd is not None:
        instance.notify_socket = NotifySocket.take_up(instance.spawn, exact.notify_fd, exact.resume_at_s)
        remember(instance.notify_socket, state)


def remember(ear: NotifySocket, state: RunState) -> None:
    """Have an ear remember the status and the readiness that its run has told."""
    ear.ready_at, ear.status = state.progress.ready_at, state.details.says


def cgroup_state(cgroup: Cgroup) -> CgroupState:
    """Return the state of a cgroup."""
    return CgroupState(cgroup.path, sorted(cgroup.limits), sorted(cgroup.controllers))


def cgroup_of(state: CgroupState) -> Cgroup:
    """Return the cgroup that had this state."""
    cgroup = Cgroup(state.path, frozenset(state.controllers))
    cgroup.limits = set(state.limits)
    return cgroup


def plain_cgroups(cgroups: Iterable[Cgroup]) -> list[dict[str, Any]]:
    """Return cgroups as JSON has them."""
    return [plain(cgroup_state(cgroup)) for cgroup in cgroups]


def made_cgroups(found: Iterable[dict[str, Any]]) -> list[Cgroup]:
    """Return the cgroups of which :func:`plain_cgroups` has made `found`."""
    return [cgroup_of(made(CgroupState, one)) for one in found]
