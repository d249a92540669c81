"""Keeping services up: the service-instance table at work."""

from store.tasks import Instance, set_instance
from supervisor.config.model import Service
from supervisor.logline import Log
from supervisor.scheduler import services
from supervisor.scheduler.commit import Change
from supervisor.scheduler.engine import Engine
from supervisor.scheduler.loop import Loop
from supervisor.scheduler.notices import Notices
from supervisor.scheduler.retry import delay_ms
from supervisor.scheduler.services import Action, Event
from supervisor.scheduler.units import LiveRun, ServiceInstance, Unit
from supervisor.scheduler.verdict import Verdict

_FOR_GOOD = (services.State.EXITED, services.State.FATAL)


class Keeper:
    """Brings instances up and back; the engine's listener for their runs."""

    def __init__(self, loop: Loop, engine: Engine, notices: Notices, log: Log, *, first: bool) -> None:
        """`first`: no scheduler of this daemon was at work before, so first starts are the daemon's start-up."""
        self._loop = loop
        self._engine = engine
        self._notices = notices
        self._log = log
        self._first = first

    def up(self, unit: Unit, change: Change) -> None:
        """Want all instances of a service, except those that had ended for good before the scheduler was restarted."""
        for instance in unit.instances:
            if instance.state not in _FOR_GOOD:
                self._apply(unit, instance, Event.UP, change)

    def down(self, unit: Unit, change: Change) -> None:
        """Want no instance of a service, because the daemon is being shut down."""
        for instance in unit.instances:
            self._apply(unit, instance, Event.DOWN, change)

    def run_started(self, run: LiveRun, change: Change) -> None:
        """The run of an instance has a process."""
        instance = self._instance_of(run)
        if instance is not None:
            self._apply(run.unit, instance, Event.STARTED, change)

    def run_ended(self, run: LiveRun, verdict: Verdict, *, requested: bool, ran_ms: int | None, change: Change) -> None:
        """The run of an instance has ended: restart it as its policy says."""
        instance = self._instance_of(run)
        service = run.unit.service
        if instance is None or service is None:
            return
        instance.run = None
        self._cancel(instance)
        # A run that ended while no scheduler watched its health was healthy when it lived that long.
        healthy = instance.healthy or (ran_ms is not None and ran_ms >= service.healthy_after_ms)
        if not requested:
            instance.failures = 0 if healthy else instance.failures + 1
        event = services.classify(
            service.restart,
            succeeded=verdict.succeeded,
            requested=requested,
            failures=instance.failures,
            attempts=service.restart_attempts,
        )
        self._apply(run.unit, instance, event, change)
        if instance.state is services.State.FATAL:
            self._notices.service_fatal(run.unit, instance, run.id, change)

    @staticmethod
    def _instance_of(run: LiveRun) -> ServiceInstance | None:
        """The instance that `run` belongs to; None when the service has fewer instances now."""
        instances = run.unit.instances
        return instances[run.instance] if run.instance < len(instances) else None

    @staticmethod
    def _cancel(instance: ServiceInstance) -> None:
        if instance.timer is not None:
            instance.timer.cancel()
            instance.timer = None

    def _timed(self, unit: Unit, instance: ServiceInstance, event: Event) -> None:
        instance.timer = None
        change = self._engine.change()
        self._apply(unit, instance, event, change)
        self._engine.commit(change)

    def _apply(self, unit: Unit, instance: ServiceInstance, event: Event, change: Change) -> None:
        service = unit.service
        if service is None:
            return
        before = instance.state
        instance.state, actions = services.step(before, event)
        for action in actions:
            if action is Action.START:
                self._start(unit, instance, change)
            elif action is Action.STOP:
                if instance.run is not None:
                    self._engine.stop(instance.run, change, cause="shutdown" if self._engine.ending else "stop")
            elif action is Action.WATCH_HEALTH:
                self.watch_health(unit, instance, service.healthy_after_ms)
            elif action is Action.RESET_FAILURES:
                instance.failures = 0
                instance.healthy = True
                self.report(unit, instance, change)
            elif action is Action.CANCEL_WAIT:
                self._cancel(instance)
            elif action is Action.WAIT:
                self._wait(unit, instance, service)
        if instance.state is not before:
            instance.since = change.now_ms
            self.report(unit, instance, change)

    def _start(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        trigger = "startup" if self._first and not instance.started_once else "service"
        instance.started_once = True
        instance.healthy = False
        instance.run = self._engine.create_service_run(unit, instance.index, trigger, change)

    def watch_health(self, unit: Unit, instance: ServiceInstance, delay: int) -> None:
        """Count the instance as healthy when it still runs after `delay` milliseconds."""
        instance.timer = self._loop.after(delay, lambda: self._timed(unit, instance, Event.HEALTHY))

    def _wait(self, unit: Unit, instance: ServiceInstance, service: Service) -> None:
        delay = delay_ms(
            service.restart_backoff, service.restart_delay_ms, service.restart_max_delay_ms, max(1, instance.failures)
        )
        instance.timer = self._loop.after(delay, lambda: self._timed(unit, instance, Event.DELAY_OVER))

    def report(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        """Store and announce where an instance stands."""
        state, index, failures = instance.state.value, instance.index, instance.failures
        run_id = instance.run.id if instance.run is not None else None
        row = Instance(unit.name, index, state, run_id, instance.since, failures)
        change.write(lambda db: set_instance(db, row))
        body = {"taskName": unit.name, "instanceIndex": index, "state": state, "runId": run_id}
        change.announce("service.state", body)
        if instance.state is services.State.FATAL:
            self._log.error(f"{unit.name}[{index}] is fatal: it ended {failures} times in a row before it was healthy")
