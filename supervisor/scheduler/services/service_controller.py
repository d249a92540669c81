"""The controller of services: carries out the actions of their instances' state machine.

``Unit.stopped`` is the wanted state of a service, which is stored. Each instance has its actual state. Users change the
wanted state; the transition table brings the instances there.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from store.tasks import StoredInstance, drop_instances, set_instance, update_task
from supervisor.config.diff import process_hash
from supervisor.config.model import Service, Task
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.loop.user_lookup import UserLookup
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, ServiceInstance, Unit
from supervisor.scheduler.runs.retry import delay_ms
from supervisor.scheduler.runs.run_observer import ServiceListener
from supervisor.scheduler.services import instance_transitions
from supervisor.scheduler.services.dependency_gate import DependencyGate
from supervisor.scheduler.services.held_sockets import HeldSockets
from supervisor.scheduler.services.incidents import CrashLoops, Flapping
from supervisor.scheduler.services.instance_transitions import Action, Event, State
from supervisor.scheduler.services.readiness import is_ready
from supervisor.scheduler.services.rolling_restart import Replacements, RollingRestarts
from supervisor.scheduler.services.service_health import HealthMonitor, liveness, readiness
from supervisor.scheduler.services.start_order import OrderedStop
from supervisor.scheduler.services.watcher_client import WatcherClient

NOT_CONFIGURED = "no longer configured"
_RECONFIGURED = "configuration changed"
_KILLED_MS = 10_000
"""How long a removed service may take to end after SIGKILL before new services no longer wait for it."""
_WAITING = frozenset({State.BACKOFF, State.FATAL})
_ENDS_ON_REQUEST = frozenset({State.STOPPING, State.RESTARTING})


class ServiceRuns(Protocol):
    """Creates and stops the runs of instances, and runs tasks on which services depend."""

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create the first attempt of a run of a task."""

    def create_service_run(self, unit: Unit, index: int, trigger: str, change: Change) -> LiveRun:
        """Create the next run of an instance."""

    def stop(
        self, run: LiveRun, change: Change, *, cause: str = "stop", by: str | None = None, note: str | None = None
    ) -> None:
        """End a run."""


class ServiceController(ServiceListener):
    """Starts, restarts and stops instances; the run engine reports starts and ends of their runs."""

    def __init__(
        self,
        core: Core,
        runs: ServiceRuns,
        user_lookup: UserLookup,
        watcher: WatcherClient,
        notifications: Notifications,
        root: RootConnection,
    ) -> None:
        self._loop = loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._log = core.log
        self._runs = runs
        self._health = HealthMonitor(loop, core.procedures, core.daemon.settings, user_lookup, watcher, self)
        self._crash_loops = CrashLoops(notifications)
        self._flapping = Flapping(loop, notifications, core.committer)
        self._rolling = RollingRestarts(
            notifications, core.log, lambda unit, instance, change: self._apply(unit, instance, Event.RESTART, change)
        )
        self.sockets = HeldSockets(core, root, self._sockets_bound)
        self._replacements = Replacements(runs, self._health, notifications, core.log, self.report, self._must_wait)
        self.dependency_gate = DependencyGate(
            run_task=lambda unit, task, change: runs.create_task_run(unit, task, change, RunRequest(trigger="service")),
            release=lambda unit, instance, change: self._apply(unit, instance, Event.RELEASED, change),
            report=self.report,
            sockets=self.sockets.missing,
            restart=self._follow,
        )
        """Holds instances until the dependencies of their service are met."""
        self._ordered_stop = OrderedStop(self._down)
        self.leaving: dict[str, Unit] = {}
        """Removed services with processes that have not exited yet, by name."""
        self._unreported: set[tuple[Unit, ServiceInstance]] = set()
        """Instances with details that are not stored yet."""

    # Requests of users.

    def take_over(self, unit: Unit, change: Change) -> None:
        """Start or continue a service when the scheduler starts, from the states that the takeover found."""
        if unit.stopped:
            return
        self._flapping.wait(unit)
        if self._daemon.first:
            self.start_needed(unit, change)
        current = [run for instance in unit.instances for run in _runs_of(instance)]
        for run in list(unit.active.values()):
            if run not in current:  # it was replaced, but the previous scheduler died before it was stopped
                self._runs.stop(run, change)
        self._rolling.clip(unit, len(unit.instances), change)  # the configuration may have changed meanwhile
        if all(instance.run is None for instance in unit.instances):
            self.dependency_gate.added(unit)
        for instance in unit.instances:
            following = instance.next_run
            if following is None:
                instance.next = None
            elif instance.run is None:
                self._go_on_with_next(unit, instance, following, change)
            if instance.run is None and instance.state in instance_transitions.ENDING:
                instance.state = State.STOPPED
            if self._daemon.first or instance.state is State.STOPPED:
                self._apply(unit, instance, Event.UP, change)
            elif instance.state in _WAITING and instance.timer is None:
                self._wait(unit, instance, change)
            else:
                self._rolling.advance(unit, instance, change)
        self.dependency_gate.follow(unit, change)

    def start(self, unit: Unit, change: Change) -> None:
        """Start all instances, including exited and fatal ones; a stopping one starts again after it exits."""
        self.start_needed(unit, change)
        self._up(unit, change)

    def start_needed(self, unit: Unit, change: Change) -> None:
        """Start the dependencies of a service that are stopped or fatal."""
        for other in self.dependency_gate.down(unit):
            self._up(other, change)

    def _up(self, unit: Unit, change: Change) -> None:
        self._want(unit, change, stopped=False)
        for instance in unit.instances:
            self._apply(unit, instance, Event.UP, change)

    def stop(self, unit: Unit, change: Change, *, by: str | None = None) -> None:
        """Stop a service until a user starts it or the daemon restarts."""
        self._want_stopped(unit, change)
        self._down(unit, change, by)

    def stop_in_order(self, units: Iterable[Unit], change: Change, *, by: str | None = None) -> None:
        """Stop services; each waits until its dependents among `units` have ended."""
        chosen = list(units)
        for unit in chosen:
            self._want_stopped(unit, change)
        self._ordered_stop.add(chosen, change, by)

    def finish_stops(self, units: Iterable[Unit], change: Change) -> None:
        """Stop the services that the previous scheduler should have stopped, but that still run."""
        self._ordered_stop.add([unit for unit in units if unit.stopped and unit.active], change, None)

    def _want_stopped(self, unit: Unit, change: Change) -> None:
        self._want(unit, change, stopped=True)
        self._rolling.cancel(unit, "the service is stopped", change)
        self._crash_loops.close(unit, change)
        self._flapping.close(unit, change)

    def _down(self, unit: Unit, change: Change, by: str | None) -> None:
        for instance in unit.instances:
            self._apply(unit, instance, Event.DOWN, change, by=by)

    def restart(self, unit: Unit, change: Change, *, by: str | None = None) -> None:
        """Restart all instances together, without restart delays; start stopped instances."""
        self._want(unit, change, stopped=False)
        self.start_needed(unit, change)
        for instance in unit.instances:
            self._apply(unit, instance, Event.RESTART, change, by=by)

    def roll(self, unit: Unit, change: Change) -> None:
        """Begin a rolling restart; if the service is stopped, start it."""
        if unit.stopped:
            self.start(unit, change)
        else:
            self.start_needed(unit, change)
            self._renew(unit, len(unit.instances), change)

    def _renew(self, unit: Unit, count: int, change: Change) -> None:
        """Restart the first `count` instances one by one; together if the others would occupy a new address."""
        if self.sockets.lacks(unit):
            for instance in unit.instances[:count]:
                self._apply(unit, instance, Event.RESTART, change, by=_RECONFIGURED)
        else:
            self._rolling.start(unit, count, change)

    def _follow(self, unit: Unit, instance: ServiceInstance, change: Change, reason: str) -> None:
        """Restart an instance because its service follows another one; without that one, it waits after its stop."""
        if not (unit.stopped or self._daemon.ending):
            self._log.info(f"{unit.name}[{instance.index}] restarts: {reason}")
            self._apply(unit, instance, Event.RESTART, change, by=reason)

    def _must_wait(self, unit: Unit) -> bool:
        """Return whether the present processes of a service must end before the next ones can start."""
        return self.dependency_gate.missing(unit) is not None

    def down(self, unit: Unit, change: Change) -> None:
        """Stop all instances for a shutdown; the stored wanted state stays, so the next daemon starts them."""
        unit.rolling = None
        for instance in unit.instances:
            self._apply(unit, instance, Event.DOWN, change)

    def _want(self, unit: Unit, change: Change, *, stopped: bool) -> None:
        self._ordered_stop.cancel(unit)
        unit.stopped = stopped
        change.write(update_task, unit.name, stopped=stopped)

    # Changes of the configuration. The caller writes the row of the unit itself.

    def add(self, unit: Unit, change: Change) -> None:
        """Start a new service, after the processes of a removed service with the same name have exited."""
        leaving = self.leaving.pop(unit.name, None)
        if leaving is not None:
            for run in leaving.active.values():
                run.unit = unit
                unit.active[run.id] = run
            self.dependency_gate.has_ended(leaving, change)
        self.dependency_gate.added(unit)
        self._want(unit, change, stopped=unit.stopped)
        self._fill(unit, 0, change)

    def replace(self, unit: Unit, definition: Service, change: Change) -> None:
        """Apply a new definition to a service.

        Additional instances start, and surplus instances stop. If the change requires new processes and the service is
        not stopped, the instances restart one by one.
        """
        before = unit.service
        if before is None:
            return
        unit.redefine(definition)
        self.sockets.drop_changed(unit)
        kept_count = min(len(unit.instances), definition.instances)
        self._rolling.clip(unit, kept_count, change)
        for instance in unit.instances[kept_count:]:
            self._dismiss(unit, instance, change)
        del unit.instances[kept_count:]
        change.write(drop_instances, unit.name, kept_count)
        for instance in unit.instances:
            if instance.state in _WAITING:
                self._wait(unit, instance, change)
            elif instance.state is State.RUNNING and not instance.healthy:
                self._watch_rest(unit, definition, instance, change)
        unit.instances += [ServiceInstance(index) for index in range(kept_count, definition.instances)]
        self._fill(unit, kept_count, change)
        self._crash_loops.check_recovery(unit, change)
        if definition.flap_window_ms != before.flap_window_ms:
            self._flapping.wait(unit)
        if unit.stopped or process_hash(before) == process_hash(definition):
            return
        if kept_count > 1:
            self._renew(unit, kept_count, change)
        elif kept_count:
            self._apply(unit, unit.instances[0], Event.RESTART, change, by=_RECONFIGURED)

    def remove(self, unit: Unit, change: Change) -> None:
        """Stop a service that left the configuration; the ends of its runs are still stored."""
        self._ordered_stop.cancel(unit)
        unit.stopped = True
        unit.rolling = None
        self._flapping.close(unit, change)
        for instance in unit.instances:
            self._dismiss(unit, instance, change)
        unit.instances.clear()
        self.sockets.close(unit.name)
        change.write(drop_instances, unit.name)
        if unit.active:
            self.leaving[unit.name] = unit
            self.await_end(unit)

    def await_end(self, unit: Unit) -> None:
        """Let new services wait for the end of a removed one, until it should have been killed."""

        def waited() -> None:
            with self._committer.changing() as change:
                self.dependency_gate.has_ended(unit, change)

        self.dependency_gate.removed(unit)
        longest_ms = max(run.definition.stop_ms for run in unit.active.values())
        self._loop.after(longest_ms + _KILLED_MS, waited)

    def _dismiss(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        self._apply(unit, instance, Event.DOWN, change, by=NOT_CONFIGURED)
        self._cancel(instance)

    def _fill(self, unit: Unit, kept_count: int, change: Change) -> None:
        """Start new instances; each waits until an earlier process with the same index has exited."""
        ending = {run.instance: run for run in unit.active.values()}
        for instance in unit.instances[kept_count:]:
            instance.run = ending.get(instance.index)
            if instance.run is not None:
                instance.state = State.STOPPING
            instance.since = change.now_ms
            if unit.stopped:
                self.report(unit, instance, change)
            else:
                self._apply(unit, instance, Event.UP, change)

    # Reports of the run engine.

    def run_started(self, run: LiveRun, at: int, change: Change) -> None:
        """Handle a run of an instance that has a process since `at` (ms since the epoch)."""
        instance = self._instance_of(run)
        if instance is not None:
            instance.started_at = at
            self._apply(run.unit, instance, Event.STARTED, change)
            return
        waiting = self._replaced_by(run)
        if waiting is not None and waiting.next is not None:
            self._replacements.started(waiting.next, run, at, change.now_ms)

    def task_ended(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        """Handle the end of a task on which services may depend."""
        self.dependency_gate.task_ended(run, verdict, change)

    def run_ended(self, run: LiveRun, verdict: Verdict, *, requested: bool, ran_ms: int | None, change: Change) -> None:
        """Handle the end of an instance's run: restart it or give up, according to its policy."""
        self._health.forget(run.id)
        waiting = self._replaced_by(run)
        if waiting is not None:
            self._replacements.failed(run.unit, waiting, run.id, verdict.text, change)
            self._rolling.cancel(run.unit, "its next process did not become ready", change)
        instance = self._instance_of(run)
        service = run.unit.service
        if instance is None or service is None:
            self._forget_leaving(run.unit, change)
            self._ordered_stop.stop_unneeded(change)
            return
        if instance.next_run is not None:
            self._go_on_with_next(run.unit, instance, instance.next_run, change)
            return
        healthy = self._was_healthy(instance, service, ran_ms)
        instance.run = None
        self._cancel(instance)
        # A run that died in a crash or shutdown of the daemon is not a failure of the service.
        intended = requested or instance.state in _ENDS_ON_REQUEST
        innocent = intended or verdict.reason == "crashed" or self._daemon.ending
        if not innocent:
            instance.failures = 0 if healthy else instance.failures + 1
            if not healthy and verdict.exit_code == 0 and verdict.leftovers:
                instance.line = _in_background(verdict.leftovers)
        event = instance_transitions.classify(
            service.restart,
            succeeded=verdict.succeeded,
            requested=innocent,
            failures=instance.failures,
            attempts=service.restart_attempts,
        )
        ended_at = None if ran_ms is None or instance.started_at is None else instance.started_at + ran_ms
        self._apply(run.unit, instance, event, change, at=ended_at)
        if instance.state is State.FATAL:
            self._crash_loops.given_up(run.unit, service, instance, run.id, change)
            self._flapping.close(run.unit, change)
        elif not innocent and not verdict.succeeded:
            at = change.now_ms if ended_at is None else min(ended_at, change.now_ms)
            self._flapping.failed(run.unit, instance, run.id, at, change)
        # A stop in order reaches a service only after its dependents ended. A run that ends before must not restart.
        if self._daemon.ending or run.unit.stopped:
            self._apply(run.unit, instance, Event.DOWN, change)
        self._ordered_stop.stop_unneeded(change)

    @staticmethod
    def _was_healthy(instance: ServiceInstance, service: Service, ran_ms: int | None) -> bool:
        """Return whether the run had become healthy, perhaps while no scheduler was there to see it."""
        if instance.healthy or ran_ms is None or instance.run is None or readiness(instance.run) is None:
            return instance.healthy or (ran_ms is not None and ran_ms >= service.healthy_after_ms)
        if instance.started_at is None or instance.ready_at is None:
            return False
        return instance.started_at + ran_ms - instance.ready_at >= service.healthy_after_ms

    @staticmethod
    def _instance_of(run: LiveRun) -> ServiceInstance | None:
        """Return the instance of `run`; None if the instance was removed or has another run."""
        instances = run.unit.instances
        instance = instances[run.instance] if run.instance < len(instances) else None
        return instance if instance is not None and instance.run is run else None

    @staticmethod
    def _replaced_by(run: LiveRun) -> ServiceInstance | None:
        """Return the instance whose present run will be replaced by `run`."""
        waiting = (instance for instance in run.unit.instances if instance.next_run is run)
        return next(waiting, None)

    def _replace(self, unit: Unit, instance: ServiceInstance, run: LiveRun, change: Change) -> None:
        """Replace the present run of an instance, and stop it, because the next one is ready."""
        before = instance.run
        self._take_next(instance, run)
        self._watch_ready(unit, instance, change)
        self.report(unit, instance, change)
        if before is not None:
            self._health.forget(before.id)
            self._runs.stop(before, change)
        self._rolling.advance(unit, instance, change)
        self.dependency_gate.check_dependents(unit, change)

    def _go_on_with_next(self, unit: Unit, instance: ServiceInstance, run: LiveRun, change: Change) -> None:
        """Make the next run that of the instance, because the present one has ended meanwhile."""
        self._take_next(instance, run)
        instance.state, instance.since = State.STARTING, change.now_ms
        self.report(unit, instance, change)
        self.dependency_gate.check_dependents(unit, change)
        self._ordered_stop.stop_unneeded(change)

    def _take_next(self, instance: ServiceInstance, run: LiveRun) -> None:
        self._cancel(instance)
        instance.started_at = None if instance.next is None else instance.next.started_at
        instance.run, instance.next, instance.line = run, None, None
        instance.healthy = instance.probed = False

    def _forget_leaving(self, unit: Unit, change: Change) -> None:
        if not unit.active and self.leaving.get(unit.name) is unit:
            del self.leaving[unit.name]
            self.dependency_gate.has_ended(unit, change)

    # Health.

    def resume(self, run: LiveRun, instance: ServiceInstance, started_at: int, change: Change) -> None:
        """Continue the health checks that the previous scheduler began; the process started at `started_at`."""
        if instance.next is not None and instance.next.run is run:
            self._replacements.started(instance.next, run, started_at, change.now_ms, retaken=True)
            return
        instance.started_at = started_at
        probe, service = readiness(run), run.unit.service
        if instance.state is State.STARTING and probe is not None:
            self._health.await_ready(run, probe, change.now_ms - started_at, retaken=True)
        elif instance.state is State.RUNNING and service is not None:
            if probe is not None:
                instance.probed = True
                instance.ready_at = instance.since
            else:
                instance.healthy = instance.ready_run == run.id
            self._watch_life(run)
            self._watch_rest(run.unit, service, instance, change)

    def _watch_life(self, run: LiveRun) -> None:
        probe = liveness(run)
        if probe is not None:
            self._health.watch_life(run, probe)

    def run_notified(self, run: LiveRun, news: dict[str, Any]) -> None:
        """Handle a ``notified`` message, with which the root passes on sd_notify(3) messages of a run."""
        if self._instance_of(run) is not None or self._replaced_by(run) is not None:
            self._health.notified(run, news)

    def run_ready(self, run: LiveRun, line: str | None) -> None:
        """Handle a run that became ready; `line` has details for users."""
        waiting = self._replaced_by(run)
        if waiting is None:
            self._apply_to_run(run, Event.READY, line)
        else:
            with self._committer.changing() as change:
                self._replace(run.unit, waiting, run, change)

    def run_unhealthy(self, run: LiveRun, reason: str) -> None:
        """Stop an unhealthy run, and log the reason, unless it is being stopped anyway."""
        waiting = self._replaced_by(run)
        if waiting is not None and waiting.next is not None:
            with self._committer.changing() as change:
                self._replacements.unfit(waiting.next, run, reason, change)
        instance = self._instance_of(run)
        if instance is None or (instance.state, Event.UNHEALTHY) not in instance_transitions.TABLE:
            return
        self._log.warning(f"{run.unit.name}[{run.instance}] {run.id}: {reason}")
        self._apply_to_run(run, Event.UNHEALTHY, reason)

    def run_reports(self, run: LiveRun, line: str | None) -> None:
        """Store new details of an instance that users see."""
        instance = self._instance_of(run)
        if instance is None:
            return
        instance.line = line
        self._unreported.add((run.unit, instance))
        self.go_on()

    def go_on(self) -> None:
        """Store pending details if the database can be written.

        Until then only the latest details of each instance wait, so a long outage takes no memory.
        """
        if not self._unreported or not self._committer.storing:
            return
        unreported, self._unreported = self._unreported, set()
        with self._committer.changing() as change:
            for unit, instance in unreported:
                if instance in unit.instances:
                    self.report(unit, instance, change)

    def _apply_to_run(self, run: LiveRun, event: Event, line: str | None) -> None:
        instance = self._instance_of(run)
        if instance is not None:
            with self._committer.changing() as change:
                instance.line = line
                self._apply(run.unit, instance, event, change)

    # The table and its actions.

    @staticmethod
    def _cancel(instance: ServiceInstance) -> None:
        if instance.timer is not None:
            instance.timer.cancel()
            instance.timer = None

    def _timed(self, unit: Unit, instance: ServiceInstance, event: Event) -> None:
        instance.timer = None
        with self._committer.changing() as change:
            self._apply(unit, instance, event, change)

    def _apply(
        self,
        unit: Unit,
        instance: ServiceInstance,
        event: Event,
        change: Change,
        *,
        by: str | None = None,
        at: int | None = None,
    ) -> None:
        """Carry out a transition; `at`: time of the event in milliseconds since the epoch (None: now)."""
        if unit.service is None or (event is Event.RESTART and self._replacements.start(unit, instance, change)):
            return
        if event is Event.DOWN:
            self._replacements.cancel(instance, change, by)
        before = instance.state
        after, actions = instance_transitions.step(before, event)
        instance.state = after
        if after is not before:
            instance.since = change.now_ms if at is None else min(at, change.now_ms)
        if after is State.STOPPED:
            instance.line = None
        for action in actions:
            self._act(action, unit, instance, change, by)
        if after is not before and instance.state is after:  # else an action changed the state again, and reported that
            self.report(unit, instance, change)
        self._rolling.advance(unit, instance, change)
        self.dependency_gate.check_dependents(unit, change)
        self.sockets.close_unneeded(unit)

    def _act(self, action: Action, unit: Unit, instance: ServiceInstance, change: Change, by: str | None) -> None:
        actions: dict[Action, Callable[[], None]] = {
            Action.START: lambda: self._start(unit, instance, change),
            Action.STOP: lambda: self._stop(instance, change, by),
            Action.STOP_UNHEALTHY: lambda: self._stop_unhealthy(instance, change),
            Action.AWAIT_READY: lambda: self._await_ready(unit, instance, change),
            Action.WATCH_HEALTH: lambda: self._watch_ready(unit, instance, change),
            Action.RESET_FAILURES: lambda: self._reset_failures(instance),
            Action.MARK_HEALTHY: lambda: self._mark_healthy(unit, instance, change),
            Action.CANCEL_WAIT: lambda: self._cancel(instance),
            Action.WAIT: lambda: self._wait(unit, instance, change),
        }
        actions[action]()

    @staticmethod
    def _reset_failures(instance: ServiceInstance) -> None:
        instance.failures = 0

    def _stop_unhealthy(self, instance: ServiceInstance, change: Change) -> None:
        if instance.run is not None:
            self._runs.stop(instance.run, change, cause="unfit", note=f"{instance.line}: stopping")

    def _watch_ready(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        if instance.run is None or unit.service is None:
            return
        instance.probed = readiness(instance.run) is not None
        instance.ready_at = change.now_ms
        self._watch_life(instance.run)
        self.watch_health(unit, instance, unit.service.healthy_after_ms)

    def _await_ready(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        probe = None if instance.run is None else readiness(instance.run)
        if instance.run is None or probe is None:
            self._apply(unit, instance, Event.READY, change)
        else:
            ran_ms = change.now_ms - (instance.started_at or change.now_ms)
            self._health.await_ready(instance.run, probe, ran_ms)

    def _start(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        instance.line = self.dependency_gate.missing(unit)
        if instance.line is not None:
            self._apply(unit, instance, Event.HOLD, change)
            self.dependency_gate.run_needed(unit, change)
            return
        trigger = "startup" if self._daemon.first and not instance.started_once else "service"
        instance.started_once = True
        self.dependency_gate.starts(unit)
        instance.healthy = instance.probed = False
        instance.started_at = instance.ready_at = instance.line = None
        instance.run = self._runs.create_service_run(unit, instance.index, trigger, change)

    def _sockets_bound(self, unit: Unit) -> None:
        with self._committer.changing() as change:
            self.dependency_gate.check(unit, change)

    def _stop(self, instance: ServiceInstance, change: Change, by: str | None) -> None:
        if instance.run is not None:
            cause = "shutdown" if self._daemon.ending else "stop"
            self._runs.stop(instance.run, change, cause=cause, by=by)

    def _mark_healthy(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        instance.healthy = True
        self.report(unit, instance, change)
        self._crash_loops.check_recovery(unit, change)

    def watch_health(self, unit: Unit, instance: ServiceInstance, delay: int) -> None:
        """Mark the instance healthy after `delay` milliseconds, unless its run ends before."""
        self._cancel(instance)
        instance.timer = self._loop.after(delay, self._timed, unit, instance, Event.HEALTHY)

    def _watch_rest(self, unit: Unit, service: Service, instance: ServiceInstance, change: Change) -> None:
        """Mark a running instance healthy after the rest of ``healthy_after``."""
        since = (instance.ready_at if instance.probed else instance.started_at) or change.now_ms
        # A clock that was set back must not prolong the wait.
        remaining_ms = min(service.healthy_after_ms, max(0, since + service.healthy_after_ms - change.now_ms))
        self.watch_health(unit, instance, remaining_ms)

    def _wait(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        """Set the restart timer, counted from the state change; without ``fatal_retry`` a fatal instance has none."""
        self._cancel(instance)
        service = unit.service
        if service is None:
            return
        delay: int | None = service.fatal_retry_ms
        if instance.state is State.BACKOFF:
            kind, base, most = service.restart_backoff, service.restart_delay_ms, service.restart_max_delay_ms
            delay = delay_ms(kind, base, most, max(1, instance.failures))
            # Without a delay, restart at once. A rolling restart must first see BACKOFF, which ends it.
            if delay == 0 and not self._daemon.ending and unit.rolling is None:
                self._apply(unit, instance, Event.DELAY_OVER, change)
                return
        if delay is not None:
            # A clock that was set back must not prolong the wait.
            remaining_ms = min(delay, max(0, instance.since + delay - change.now_ms))
            instance.timer = self._loop.after(remaining_ms, self._timed, unit, instance, Event.DELAY_OVER)

    def report(self, unit: Unit, instance: ServiceInstance, change: Change) -> None:
        """Store and announce the present state of an instance."""
        state, index, failures = instance.state.shown, instance.index, instance.failures
        run_id = instance.run.id if instance.run is not None else None
        ready, line = is_ready(instance), instance.line
        next_run = None if instance.next is None else instance.next.id
        row = StoredInstance(unit.name, index, state, run_id, instance.since, failures, ready, line, next_run)
        change.write(set_instance, row)
        body: dict[str, Any] = {"taskName": unit.name, "instanceIndex": index, "state": state, "ready": ready}
        if run_id is not None:
            body["runId"] = run_id
        if line is not None:
            body["detail"] = line
        change.announce("service.state", body)
        if instance.state is State.FATAL:
            self._log.error(f"{unit.name}[{index}] gave up after {failures} quick failures in a row")


def _runs_of(instance: ServiceInstance) -> list[LiveRun]:
    """Return the present and the next run of an instance."""
    return [run for run in (instance.run, instance.next_run) if run is not None]


def _in_background(leftovers: tuple[str, ...]) -> str:
    """Return what to do about a program that puts itself into the background."""
    named = leftovers[0] if len(leftovers) == 1 else f"{leftovers[0]} and {len(leftovers) - 1} more"
    return (
        f"it exited with code 0 and left {named}, so it went to the background; make it stay in the"
        " foreground, for example with exec, -F, --foreground or daemon off"
    )
