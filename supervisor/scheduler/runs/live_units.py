"""The in-memory state of the scheduler: units (tasks and services) and their unfinished runs."""

from dataclasses import KW_ONLY, dataclass, field

from msgspec import Struct

from store.runs.definitions import Definition
from supervisor.config.model import Service, Task
from supervisor.config.public_definition import recorded_definition
from supervisor.ipc.plural import counted
from supervisor.schedule.instants import Schedule
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.user_lookup import Identity
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.run_parameters import NOTHING, CommandParameters, InvalidParameters, ParameterValues
from supervisor.scheduler.services import instance_transitions


@dataclass(eq=False, slots=True)
class LiveRun:
    """A run that has not ended."""

    unit: "Unit"
    definition: Task | Service
    """The present definition while the run waits; afterwards that with which it started."""
    id: str
    _: KW_ONLY
    trigger: str
    created_at: int
    instance: int = 0
    attempt: int = 0
    retry_of: str | None = None
    scheduled_at: int | None = None
    params: ParameterValues = NOTHING
    files: tuple[str, ...] = ()
    """The changed files that started it."""
    by: str | None = None
    """The user who started it; a retry has that of the run that it repeats."""
    queued_at: int = field(init=False)
    """When its waiting time begins, in milliseconds since the epoch: its creation, or the end of its retry delay."""
    state: run_transitions.State = field(default=run_transitions.State.QUEUED, init=False)
    timer: Timer | None = field(default=None, init=False)
    """The timer of its retry delay."""
    identity: Identity | None = field(default=None, init=False)
    """The user that runs it; None until the user is looked up."""
    checked: CommandParameters | InvalidParameters | None = field(default=None, init=False)
    """The result of the check of its parameter values, if the check had to wait for a matching process."""
    definition_hash: str | None = field(default=None, init=False)
    """Hash of `definition` (:mod:`store.runs.definitions`); None if an earlier release started the run."""
    execution_id: str | None = field(default=None, init=False)
    """The name of its job in the container engine or job system that a launcher uses."""

    def __post_init__(self) -> None:
        self.queued_at = self.created_at
        self.definition_hash = self.unit.recorded.hash


class RunRequest(Struct, frozen=True, kw_only=True):
    """A request for a first run of a task."""

    trigger: str
    run_id: str | None = None
    """The id of the run; None: generate one."""
    by: str | None = None
    """The requester."""
    scheduled_at: int | None = None
    """The scheduled instant, in milliseconds since the epoch."""
    coalesce: bool = False
    """Whether to skip the run if another scheduled run of the task already waits."""
    params: ParameterValues | None = None
    """The parameter values; None: the defaults."""
    files: tuple[str, ...] = ()
    """The changed files that start the run."""


class ServiceInstance:
    """One numbered copy of a service."""

    __slots__ = (
        "failed_ends",
        "failures",
        "healthy",
        "index",
        "line",
        "probed",
        "ready_at",
        "ready_run",
        "run",
        "since",
        "started_at",
        "started_once",
        "state",
        "timer",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = instance_transitions.State.STOPPED
        self.since = 0
        """When it entered this state, in milliseconds since the epoch."""
        self.run: LiveRun | None = None
        self.failures = 0
        """Quick exits in a row."""
        self.failed_ends: list[int] = []
        """Times of its latest failures, oldest first; only as many as the detection of flapping needs."""
        self.healthy = False
        self.probed = False
        """Whether its current process passed the readiness check of ``ready``."""
        self.started_at: int | None = None
        """When its current process started, in milliseconds since the epoch."""
        self.ready_at: int | None = None
        """When its current process became ready."""
        self.line: str | None = None
        """Details of its state that users see."""
        self.ready_run: str | None = None
        """Id of the run that the previous scheduler stored as ready."""
        self.started_once = False
        self.timer: Timer | None = None
        """The timer of ``healthy_after`` or of the restart delay."""


class RollingRestart(Struct, frozen=True):
    """A rolling restart in progress."""

    index: int
    """The instance that is restarting; all instances before it are done."""
    end: int
    """Number of instances to restart."""

    def rest(self) -> str:
        """Say how many instances are left, such as ``; 2 of 3 instances were not restarted``; "" if none is."""
        left = self.end - self.index - 1
        if not left:
            return ""
        return f"; {left} of {counted(self.end, 'instance')} {'was' if left == 1 else 'were'} not restarted"


class Unit:
    """A task or a service."""

    def __init__(self, definition: Task | Service) -> None:
        self.definition = definition
        self._recorded: Definition | None = None
        self.name = definition.name
        self.active: dict[str, LiveRun] = {}
        """Admitted runs, oldest first: decided, starting, running or stopping."""
        self.queue: list[LiveRun] = []
        """Runs that wait for admission, oldest first."""
        self.waiting: dict[str, LiveRun] = {}
        """Retries of a task whose delay has not passed."""
        self.schedule = Schedule(definition if isinstance(definition, Task) else None)
        self.schedule_is_new = False
        """Whether the schedule changed since its instants were last accounted for."""
        self.known_at_ms: int | None = None
        """The value of ``at`` already accounted for, in milliseconds since the epoch."""
        self.last_instant: int | None = None
        """The newest instant accounted for, in milliseconds since the epoch."""
        self.newest_success: int | None = None
        """The newest instant with a successful run, in milliseconds since the epoch; None: unknown."""
        self.timer: Timer | None = None
        self.paused = False
        """Whether the schedule of the task is paused."""
        self.stopped = False
        """Whether the service is stopped: no instance should run."""
        self.rolling: RollingRestart | None = None
        self.fatal_since: int | None = None
        """When the open crash-loop incident was reported, in milliseconds since the epoch."""
        self.flapping_since: int | None = None
        """When the service was reported as flapping, in milliseconds since the epoch."""
        self.last_command: str | None = None
        """Id of the last stored command; a repeated request with the same id has no effect."""
        self.last_boot: str | None = None
        """Id of the host boot in which a task with ``run_on_start = "boot"`` last ran."""
        self.failures = 0
        """Consecutive failed runs of a task; a run and its retries count as one."""
        self.failed_attempts = 0
        """Consecutive failed attempts of a task; each retry counts."""
        self.configured = True
        """False once it left the configuration. Nothing starts; active runs of a task finish, a service stops."""
        self.instances: list[ServiceInstance] = []
        if isinstance(definition, Service):
            self.stopped = not definition.autostart
            self.instances = [ServiceInstance(index) for index in range(definition.instances)]

    def redefine(self, definition: Task | Service) -> None:
        """Replace the definition by one of the same kind, also for waiting runs. The controller updates instances."""
        self.definition = definition
        self._recorded = None
        if isinstance(definition, Task):
            self.schedule = Schedule(definition)
        for run in (*self.queue, *self.waiting.values()):
            run.definition, run.definition_hash = definition, self.recorded.hash

    @property
    def recorded(self) -> Definition:
        """The form of the definition that runs refer to, made once for each definition."""
        if self._recorded is None:
            self._recorded = recorded_definition(self.definition)
        return self._recorded

    @property
    def task(self) -> Task | None:
        """The definition if this unit is a task."""
        return self.definition if isinstance(self.definition, Task) else None

    @property
    def service(self) -> Service | None:
        """The definition if this unit is a service."""
        return self.definition if isinstance(self.definition, Service) else None
