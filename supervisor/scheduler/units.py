"""What the scheduler keeps in memory: units (tasks and services) and their runs that have not ended."""

import collections
from zoneinfo import ZoneInfo

from supervisor.config.model import Service, Task
from supervisor.logline import stamp
from supervisor.messages import Spawn
from supervisor.scheduler import runs, services
from supervisor.scheduler.cron import Cron
from supervisor.scheduler.loop import Timer


class LiveRun:
    """A run that has not ended."""

    __slots__ = (
        "attempt",
        "created_at",
        "definition",
        "id",
        "instance",
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
        self.state = runs.State.QUEUED
        self.timer: Timer | None = None
        """The retry delay, while it waits for that."""


class ServiceInstance:
    """One place of a service."""

    __slots__ = ("failures", "healthy", "index", "run", "since", "started_once", "state", "timer")

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = services.State.STOPPED
        self.since = 0
        """When it came into this state, milliseconds since the epoch."""
        self.run: LiveRun | None = None
        self.failures = 0
        """Quick exits in a row."""
        self.healthy = False
        self.started_once = False
        self.timer: Timer | None = None
        """Health watch or restart delay."""


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
        self.crons: list[Cron] = []
        self.last_instant: int | None = None
        """The newest instant that was accounted for, milliseconds since the epoch."""
        self.timer: Timer | None = None
        self.instances: list[ServiceInstance] = []
        if isinstance(definition, Task):
            zone = ZoneInfo(definition.timezone)
            self.crons = [Cron(expression, zone) for expression in definition.crons]
        else:
            self.instances = [ServiceInstance(index) for index in range(definition.instances)]

    @property
    def task(self) -> Task | None:
        """The definition, when this is a task."""
        return self.definition if isinstance(self.definition, Task) else None

    @property
    def service(self) -> Service | None:
        """The definition, when this is a service."""
        return self.definition if isinstance(self.definition, Service) else None


def spawn_of(run: LiveRun, daemon_id: str, log: str) -> Spawn:
    """How the root has to start `run`."""
    definition = run.definition
    command = definition.run
    argv = [definition.shell, "-e", "-c", command] if isinstance(command, str) else list(command)
    env = {
        **definition.env,
        **definition.secrets,
        "RINGWARD_RUN_ID": run.id,
        "RINGWARD_TASK": definition.name,
        "RINGWARD_INSTANCE": str(run.instance),
        "RINGWARD_ATTEMPT": str(run.attempt),
        "RINGWARD_TRIGGER": run.trigger,
        "RINGWARD_DAEMON": daemon_id,
    }
    if run.scheduled_at is not None:
        env["RINGWARD_SCHEDULED_AT"] = stamp(run.scheduled_at)
    return Spawn(
        run=run.id,
        task=definition.name,
        argv=argv,
        env=env,
        secrets=list(definition.secrets),
        cwd=definition.working_dir,
        log=log,
        log_max_bytes=definition.log_max_bytes,
        log_on_full=definition.log_on_full,
        timeout_ms=definition.timeout_ms if isinstance(definition, Task) else None,
        stop_signal=definition.stop_signal,
        grace_ms=definition.grace_ms,
        tty=definition.tty,
        merge_stderr=definition.merge_stderr,
        redraw=definition.redraw,
    )
