"""What the scheduler keeps in memory: units (tasks and services) and their runs that have not ended."""

import collections
from dataclasses import dataclass

from supervisor.config.model import Service, Task
from supervisor.schedule.instants import Schedule
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.user_lookup import Identity
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.parameters import NOTHING, ParameterValues
from supervisor.scheduler.services import instance_transitions


class LiveRun:
    """A run that has not ended."""

    __slots__ = (
        "attempt",
        "created_at",
        "definition",
        "execution_id",
        "id",
        "identity",
        "instance",
        "params",
        "retry_of",
        "scheduled_at",
        "state",
        "timer",
        "trigger",
        "unit",
    )

    def __init__(
        self,
        unit: "Unit",
        definition: Task | Service,
        run_id: str,
        *,
        trigger: str,
        created_at: int,
        instance: int = 0,
        attempt: int = 0,
        retry_of: str | None = None,
        scheduled_at: int | None = None,
        params: ParameterValues = NOTHING,
    ) -> None:
        self.unit = unit
        self.definition = definition
        """What it runs under, whatever becomes of the configuration."""
        self.id = run_id
        self.trigger = trigger
        self.created_at = created_at
        self.instance = instance
        self.attempt = attempt
        self.retry_of = retry_of
        self.scheduled_at = scheduled_at
        self.params = params
        self.state = run_transitions.State.QUEUED
        self.timer: Timer | None = None
        """The retry delay, while it waits for that."""
        self.identity: Identity | None = None
        """Who runs it; None: that was not looked up."""
        self.execution_id: str | None = None
        """What the engine that it was launched through calls it."""


class ServiceInstance:
    """One place of a service."""

    __slots__ = (
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
        """When it came into this state, milliseconds since the epoch."""
        self.run: LiveRun | None = None
        self.failures = 0
        """Quick exits in a row."""
        self.healthy = False
        self.probed = False
        """Its present process was found ready, by what ``ready`` says."""
        self.started_at: int | None = None
        """When its present process was started, ms since the epoch."""
        self.ready_at: int | None = None
        """When that was found ready."""
        self.line: str | None = None
        """How it stands, in words for people."""
        self.ready_run: str | None = None
        """The run that was ready when the scheduler before stored that."""
        self.started_once = False
        self.timer: Timer | None = None
        """Health watch or restart delay."""


@dataclass(frozen=True)
class Roll:
    """A rolling restart that is under way."""

    index: int
    """The instance that is being restarted; those before it are done."""
    end: int
    """Number of instances that it is about."""


class Unit:
    """A task or a service."""

    def __init__(self, definition: Task | Service) -> None:
        self.definition = definition
        self.name = definition.name
        self.active: dict[str, LiveRun] = {}
        """Runs that hold a slot, oldest first: decided, being started, running, being stopped."""
        self.queue: collections.deque[LiveRun] = collections.deque()
        """Runs of a task that wait for a slot, in their order."""
        self.waiting: dict[str, LiveRun] = {}
        """Retries of a task that wait for their delay."""
        self.schedule = Schedule(definition if isinstance(definition, Task) else None)
        self.schedule_is_new = False
        """What it was before it has not been accounted for."""
        self.known_at_ms: int | None = None
        """The single time, milliseconds since the epoch, that has been seen before."""
        self.last_instant: int | None = None
        """The newest instant that was accounted for, milliseconds since the epoch."""
        self.newest_success: int | None = None
        """The newest instant whose run has succeeded, milliseconds since the epoch; None: unknown."""
        self.timer: Timer | None = None
        self.paused = False
        """The schedule of a task rests."""
        self.stopped = False
        """No instance of a service is wanted."""
        self.rolling: Roll | None = None
        self.fatal_since: int | None = None
        """People were told then (milliseconds since the epoch) that it is given up, and not yet that it is back."""
        self.last_restart: str | None = None
        """Id of the command that restarted it last."""
        self.last_boot: str | None = None
        """The boot of the host for which a task that runs once per boot ran last."""
        self.failures = 0
        """Runs of a task that failed in a row; a run and its retries are one."""
        self.failed_attempts = 0
        """The same, with each retry by itself."""
        self.configured = True
        """False once it has left the configuration: its runs end, and no other ones come."""
        self.instances: list[ServiceInstance] = []
        if isinstance(definition, Service):
            self.stopped = not definition.autostart
            self.instances = [ServiceInstance(index) for index in range(definition.instances)]

    def redefine(self, definition: Task | Service) -> None:
        """Take another definition of the same kind. Runs that have not begun follow it; instances are the keeper's."""
        self.definition = definition
        if isinstance(definition, Task):
            self.schedule = Schedule(definition)
            for run in (*self.queue, *self.waiting.values()):
                run.definition = definition

    @property
    def task(self) -> Task | None:
        """The definition, when this is a task."""
        return self.definition if isinstance(self.definition, Task) else None

    @property
    def service(self) -> Service | None:
        """The definition, when this is a service."""
        return self.definition if isinstance(self.definition, Service) else None
