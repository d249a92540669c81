"""The in-memory state of the scheduler: units (tasks and services) and their unfinished runs."""

from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from store.runs.definitions import Definition
from store.runs.run_durations import Expectation, expectation
from store.runs.writes import Approval
from store.tasks import PromiseState, encode_promises, update_task
from supervisor.config.model import Service, Task
from supervisor.config.public_definition import recorded_definition
from supervisor.ipc.log_line import stamp
from supervisor.ipc.plural import counted
from supervisor.schedule import overlap
from supervisor.schedule.admission import Claim, rank_of
from supervisor.schedule.instants import Schedule
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.flows.step_outputs import NONE, Outputs
from supervisor.scheduler.flows.step_values import Place
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.user_lookup import UserIdentity
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.run_parameters import NOTHING, ParameterValues
from supervisor.scheduler.services import instance_transitions


class Due(Struct, frozen=True):
    """What a run waits for before it asks for its places."""

    kind: str
    """One of :data:`store.runs.phases.DUE_KINDS`."""
    at: int
    """The latest end of the wait, in milliseconds since the epoch; of a wait without an end, its beginning."""

    @property
    def follows_clock(self) -> bool:
        """Whether `at` is a time of the wall clock that a person chose; otherwise the wait counts elapsed time."""
        return self.kind == "at"

    @property
    def is_ended_by_others(self) -> bool:
        """Whether it takes more than time to end the wait."""
        return self.kind in ("condition", "gate", "approval", "paused")

    @property
    def is_endless(self) -> bool:
        """Whether the wait lasts until somebody ends it."""
        return self.kind == "paused"


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
    place: Place | None = None
    """Its place in a flow; None: it is not part of one."""
    unconditional: bool = False
    """Whether it starts without being asked for its condition."""
    queued_at: int = field(init=False)
    """When its waiting for places begins, in milliseconds since the epoch: its creation, or when it is due."""
    state: run_transitions.State = field(default=run_transitions.State.QUEUED, init=False)
    due: Due | None = field(default=None, init=False)
    """What it waits for in the state ``WAITING``."""
    timer: Timer | None = field(default=None, init=False)
    """The timer of its due time."""
    ask_until: int | None = field(default=None, init=False)
    """How long its condition is asked again, in milliseconds since the epoch; None: it has not said no."""
    asked: bool = field(default=False, init=False)
    """Whether its condition was asked, and did not say no."""
    refusal: str | None = field(default=None, init=False)
    """Why it cannot start: what was wrong with its condition."""
    approval: Approval | None = field(default=None, init=False)
    """The approval that it still needs before it starts; None: it needs none."""
    identity: UserIdentity | None = field(default=None, init=False)
    """The user that runs it; None until the user is looked up."""
    definition_hash: str | None = field(default=None, init=False)
    """Hash of `definition` (:mod:`store.runs.definitions`); None if an earlier release started the run."""
    output_file: str | None = field(default=None, init=False)
    """The path of the file to which it writes values; None: it has none, or has not started."""
    outputs: Outputs = field(default=NONE, init=False)
    """The values that it wrote, once it has ended."""
    execution_id: str | None = field(default=None, init=False)
    """The name of its job in the container engine or job system that a launcher uses."""

    def __post_init__(self) -> None:
        self.queued_at = self.created_at
        self.definition_hash = self.unit.recorded.hash

    @property
    def claim(self) -> Claim:
        """The resources that it needs or holds.

        ``max_concurrent`` is that of the task's present definition, even if the run started with an earlier one.
        """
        task = self.unit.task
        priority = self.definition.queue_priority if isinstance(self.definition, Task) else 0
        limit = None if task is None else task.max_concurrent
        rank = rank_of(priority, self.queued_at)
        task_here = self.definition if isinstance(self.definition, Task) else None
        counts = task_here is not None and not task_here.steps and not task_here.external
        return Claim(self.id, self.unit.name, self.definition.uses, limit, rank, counts)

    @property
    def has_private_data(self) -> bool:
        """Whether it has data that is kept outside the database."""
        return bool(self.params.secret or self.files or self.has_outputs or self.unconditional)

    @property
    def has_outputs(self) -> bool:
        """Whether it can write values for others."""
        task = self.definition
        return isinstance(task, Task) and not task.steps and (self.place is not None or task.has_outputs)


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
    place: Place | None = None
    """The place of the run in a flow, if it is part of one."""
    due: Due | None = None
    """What it waits for; None: nothing but its places."""
    retry_of: str | None = None
    """The run of a flow that it continues as the next attempt."""
    attempt: int = 0
    """The number of this attempt; 0 without `retry_of`."""
    unconditional: bool = False
    """Whether the run starts without being asked for its condition."""
    needs_approval: bool | tuple[str, ...] = False
    """The approval that its step in a flow asks for; if it asks for none, that of its task counts."""


class Withheld(Struct, frozen=True, kw_only=True):
    """Who keeps a unit from starting by itself: a person disabled the service or paused the task."""

    by: str
    at: int
    """In milliseconds since the epoch, like `until`."""
    until: int | None = None
    note: str | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {stamp(self.until)}"
        return f"by {self.by} since {stamp(self.at)}{until}" + (f": {self.note}" if self.note else "")


@dataclass(slots=True)
class NextRun:
    """The next run of an instance, which starts beside the present one (``restart_order = "new_first"``)."""

    id: str
    run: LiveRun | None = None
    """None until the takeover has found it."""
    started_at: int | None = None
    """When its process started, in milliseconds since the epoch."""
    reason: str | None = None
    """Why it cannot replace the present run."""


class ServiceInstance:
    """One numbered copy of a service."""

    __slots__ = (
        "failed_ends",
        "failures",
        "healthy",
        "index",
        "line",
        "next",
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
        self.next: NextRun | None = None
        """The run that will replace `run` once it is ready."""
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

    @property
    def next_run(self) -> LiveRun | None:
        """Return the run that will replace the present one; None if there is none, or none was found yet."""
        return None if self.next is None else self.next.run


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
        """Runs of a task that are not yet due, such as retries whose delay has not passed."""
        self.schedule = Schedule(definition if isinstance(definition, Task) else None)
        self.former_schedule: Schedule | None = None
        """The schedule that applied until this scheduler started, if it was another one."""
        self.known_at_ms: int | None = None
        """The value of ``at`` already accounted for, in milliseconds since the epoch."""
        self.last_instant: int | None = None
        """The newest instant accounted for, in milliseconds since the epoch."""
        self.newest_success: int | None = None
        """The newest instant with a successful run, in milliseconds since the epoch; None: unknown."""
        self.reported_at: int | None = None
        """When the job of a task that runs elsewhere last reported, in milliseconds since the epoch."""
        self.starts_at: int | None = None
        """When the next scheduled run starts, in milliseconds since the epoch."""
        self.timer: Timer | None = None
        self.paused = False
        """Whether the schedule of the task is paused."""
        self.pause_timer: Timer | None = None
        """The timer of the end of the pause."""
        self.stopped = False
        """Whether the service is stopped: no instance should run."""
        self.withheld: Withheld | None = None
        """Who disabled the service or paused the task."""
        self.promises = PromiseState()
        """What is known about the promises of the task; :func:`note_promises` changes it."""
        self.rolling: RollingRestart | None = None
        self.fatal_since: int | None = None
        """When the open crash-loop incident was reported, in milliseconds since the epoch."""
        self.flapping_since: int | None = None
        """When the service was reported as flapping, in milliseconds since the epoch."""
        self.has_public_incident = False
        """Whether the public status page has an open incident of it."""
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
        self.followed: dict[str, frozenset[str]] = {}
        """The runs of the services that it follows (``on_restart``), by name, when its own processes started."""
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

    def admission(self, task: Task, *, coalesce: bool = False, gated: bool = False) -> overlap.Admission:
        """Return the decision about a new run outside flows.

        Args:
            task: the present definition.
            coalesce: whether another one that waits makes it unnecessary.
            gated: whether it waits for other tasks or people first: active runs count only afterwards.
        """
        waiting = [run for run in (*self.queue, *self.held_back) if run.place is None]
        return overlap.decide(
            task.on_overlap,
            running=0 if gated else len(self.active),
            queued=len(waiting),
            max_concurrent=task.max_concurrent,
            queue_max=task.queue_max,
            another_waits=coalesce and any(run.scheduled_at is not None and not run.attempt for run in waiting),
        )

    @property
    def held_back(self) -> list[LiveRun]:
        """The runs that a condition, a gate or an approval holds back: the overlap policy counts them as waiting."""
        kinds = ("condition", "gate", "approval")
        return [run for run in self.waiting.values() if run.due is not None and run.due.kind in kinds]

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


def note_promises(unit: Unit, change: Change, **values: object) -> None:
    """Change fields of the state of a task's promises, and store them if they differ."""
    state = replace(unit.promises, **values)
    if state != unit.promises:
        unit.promises = state
        change.write(partial(update_task, name=unit.name, promises=encode_promises(state)))


def expected_of(run: LiveRun) -> Expectation | None:
    """Return how long a run usually takes; None if nobody knows."""
    definition = run.definition
    return (
        expectation(definition.expected_duration_ms, run.unit.promises.durations)
        if isinstance(definition, Task)
        else None
    )
