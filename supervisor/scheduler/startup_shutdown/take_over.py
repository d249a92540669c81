"""Takeover: a scheduler that starts reconciles its memory, the store and the root.

The root is right about processes, the store about everything else. A run that both know continues. An exit that the
root still holds is stored. A run that only the store considers active has crashed. Pending runs start.
"""

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import msgspec

from logring.errors import LogError
from logring.log_paths import log_path
from logring.logfile.leftover_ring import save_leftover_ring
from store.database import Database
from store.notifications import public_incidents
from store.runs.writes import Approval, Run, get_run, newest_request, newest_successes, update_run
from store.tasks import StoredInstance, TaskRecord, all_tasks, decode_promises, failed_ends, instances
from supervisor.config.diff import process_hash
from supervisor.config.model import Config, Service, Task
from supervisor.config.value_records import CronEntry
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Exited
from supervisor.schedule.instants import Schedule, same_instants
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.procedures import Procedure, Wait
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.end_reason import CRASHED_EXIT_CODE, verdict_of
from supervisor.scheduler.runs.live_units import Due, LiveRun, NextRun, ServiceInstance, Unit, Withheld
from supervisor.scheduler.runs.private_data import PrivateData
from supervisor.scheduler.runs.retry import longest_delay_ms
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.runs.run_observer import JobTracker
from supervisor.scheduler.runs.run_rows import ended_columns, output_file_of, with_policy
from supervisor.scheduler.services import instance_transitions
from supervisor.scheduler.services.rolling_restart import stored_roll
from supervisor.scheduler.services.service_controller import NOT_CONFIGURED, ServiceController
from supervisor.scheduler.services.service_health import readiness
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns, insert_missing

_RING_SUFFIX = ".ring"
_UNHEALTHY = "unfit"
_MOST_FAILURES = 1000
"""Maximum number of failures to read for each service."""


def make_units(
    db: Database, config: Config, *, first: bool, running_names: Collection[str] = frozenset()
) -> dict[str, Unit]:
    """Return all configured units, by name, with their stored state.

    The first scheduler of a daemon ignores stored states of instances: services start anew. The exception are services
    with runs that survived a killed supervisor (`running_names`).
    """
    definitions: list[Task | Service] = [*config.tasks.values(), *config.services.values()]
    units = {definition.name: Unit(definition) for definition in definitions}
    for row in all_tasks(db):
        unit = units.get(row.name)
        if unit is not None:
            _recall_unit(unit, row, first=first and row.name not in running_names)
    for incident in public_incidents(db):
        if incident.ended_at is None and incident.task_name in units:
            units[incident.task_name].has_public_incident = True
    for name, at_ms in newest_successes(db).items():
        if name in units:
            units[name].newest_success = at_ms
    for instance in instances(db):
        unit = units.get(instance.task_name)
        remembered = not first or instance.task_name in running_names
        if remembered and unit is not None and instance.instance_index < len(unit.instances):
            _recall_instance(unit, unit.instances[instance.instance_index], instance)
    for unit in units.values():
        if unit.service is not None and unit.service.flap_restarts != math.inf:
            _recall_failures(db, unit, unit.service)
        if unit.task is not None and unit.task.external:
            unit.reported_at = newest_request(db, unit.name)
    return units


def _recall_failures(db: Database, unit: Unit, service: Service) -> None:
    limit = min(_MOST_FAILURES, (int(service.flap_restarts) + 1) * service.instances)
    for index, at in failed_ends(db, unit.name, limit):
        if index < len(unit.instances):
            unit.instances[index].failed_ends.append(at)


def _recall_unit(unit: Unit, row: TaskRecord, *, first: bool) -> None:
    before = json.loads(row.definition)
    unit.last_instant, unit.starts_at = row.last_instant, row.next_run_at
    unit.known_at_ms = before.get("at_ms") if row.last_instant is not None else None
    unit.former_schedule = _former_schedule(unit.task, before)
    unit.paused = row.paused
    unit.fatal_since = row.fatal_since
    unit.flapping_since = row.flapping_since
    unit.last_boot = row.last_boot
    unit.promises = decode_promises(row.promises)
    unit.failures = row.failures
    unit.failed_attempts = row.failed_attempts
    if not first:
        unit.stopped = row.stopped
        unit.rolling = stored_roll(row.rolling)
        unit.last_command = row.last_restart
    if row.withheld is not None and row.kind == unit.definition.kind:
        unit.withheld = msgspec.json.decode(row.withheld, type=Withheld)
        unit.stopped = unit.service is not None


def _former_schedule(task: Task | None, before: Mapping[str, Any]) -> Schedule | None:
    """Return the schedule of a stored definition if its instants differ from those of the present one, else None.

    A schedule that this host cannot read any more, for example because its time zone is gone, has no instants. The
    calendars are the present ones: a stored definition only has their names.
    """
    if task is None:
        return None
    former = replace(
        task,
        cron=tuple(map(CronEntry, before.get("cron", ()))),
        every_ms=before.get("every_ms"),
        at_ms=before.get("at_ms"),
        skip_on=tuple(calendar for calendar in task.skip_on if calendar.name in before.get("skip_on", ())),
        shift=before.get("shift"),
        business_day=before.get("business_day"),
        **{name: before[name] for name in ("timezone", "dst_gap", "dst_overlap", "jitter_ms") if name in before},
    )
    if same_instants(task, former):
        return None
    try:
        return Schedule(former)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return Schedule(None)


def _recall_instance(unit: Unit, instance: ServiceInstance, row: StoredInstance) -> None:
    instance.failures = row.failures
    instance.since = row.since
    instance.line = row.detail
    instance.next = None if row.next_run is None else NextRun(row.next_run)
    state = instance_transitions.State(row.state)
    if state is instance_transitions.State.RUNNING:
        instance.ready_run = row.run_id
    if state in (
        instance_transitions.State.EXITED,
        instance_transitions.State.FATAL,
        instance_transitions.State.BACKOFF,
    ):
        instance.state = state
    elif state is instance_transitions.State.STOPPING and not unit.stopped:
        instance.state = instance_transitions.State.RESTARTING


def save_leftover_rings(db: Database, settings: DaemonSettings, known_runs: KnownRuns, log: Log) -> None:
    """Append the rings that a crashed root left to the log files; call this before the root starts any run."""
    for name in os.listdir(settings.runtime_dir):
        run_id = name.removesuffix(_RING_SUFFIX)
        if run_id == name or run_id in known_runs.ids_at_root:
            continue
        run = get_run(db, run_id, include_deleted=True)
        if run is None:
            continue
        path = log_path(settings.data_dir, run.task_name, run_id)
        try:
            save_leftover_ring(f"{settings.runtime_dir}/{name}", path)
        except (OSError, LogError) as err:
            log.error(f"{run.task_name} {run_id}: cannot save the end of its log: {err}")


def _removed_unit(row: Run) -> Unit:
    """Return a removed task or service that still has an unfinished run."""
    unused: dict[str, Any] = {"run": ("false",), "grace_ms": 0, "keep_runs": 0, "keep_for_ms": 0, "keep_refused": 0}
    is_service = row.kind == "service"
    unit = Unit(
        Service(name=row.task_name, **unused) if is_service else Task(name=row.task_name, timezone="UTC", **unused)
    )
    unit.configured = False
    unit.instances.clear()
    return unit


def _waits(row: Run, now_ms: int) -> bool:
    """Return whether a run with a due time goes on waiting; that of a condition is asked at once."""
    return row.due_kind in ("at", "gate", "approval") or (row.due_kind != "condition" and (row.due_at or 0) > now_ms)


class TakeOver:
    """Reconciles memory, store and root once, when the scheduler starts."""

    def __init__(
        self,
        core: Core,
        engine: RunEngine,
        controller: ServiceController,
        root: RootConnection,
        units: dict[str, Unit],
        jobs: JobTracker | None = None,
    ) -> None:
        self._committer = core.committer
        self._procedures = core.procedures
        self._private = PrivateData(core.daemon.settings)
        self._log = core.log
        self._engine = engine
        self._controller = controller
        self._root = root
        self._units = units
        self._flows, self._external = engine.flows, engine.external
        self._jobs = jobs or JobTracker()
        self._first = False
        """Whether this is the first scheduler of its root."""
        self._approvals: Mapping[str, Approval] = {}
        """The approvals that unfinished runs still need, by run id."""
        self.outdated: dict[str, set[int]] = {}
        """Instances, by service, whose processes have an earlier definition, because a reload was interrupted."""
        self.leaving: dict[str, Unit] = {}
        """Removed tasks that still have runs, by name."""

    def reconcile(self, known_runs: KnownRuns, change: Change) -> None:
        """Adopt, end or start all unfinished runs; afterwards each has a state of :mod:`.run_transitions`.

        Admission is suspended meanwhile: until all active runs are known, limits cannot be observed.
        """
        self._first, self._approvals = known_runs.first, known_runs.approvals
        self._engine.hold_admission(True)
        ended = {exited.run: exited for exited in known_runs.exits}
        replaced, run_rows = known_runs.replaced(), known_runs.run_rows
        instances = (instance for unit in self._units.values() for instance in unit.instances)
        following = {instance.next.id for instance in instances if instance.next is not None}
        # Runs that replace others come first: when a present run has ended, its next one takes its place.
        for row in sorted(known_runs.unfinished, key=lambda row: row.id not in following):
            if row.id in known_runs.missing_in_store:
                change.write(insert_missing, row)
            if row.id in replaced:
                self._end_replaced(row, ended.get(row.id), change)
                continue
            instance = known_runs.running.get(row.id) or self._snapshot(row, known_runs)
            run = self._adopted(row, run_rows.get(row.id))
            if instance is not None:
                self._is_running(run, row, instance, change)
            elif row.id in ended:
                self._has_ended(run, row, ended[row.id], change)
            else:
                perhaps = known_runs.again and row.id not in known_runs.waiting
                self._unknown_to_root(run, row, change, again=perhaps or row.id in known_runs.recent_starts)
        stored = {row.id for row in known_runs.unfinished}
        self._private.sweep(stored)
        self._jobs.forget_others(stored)
        for run_id in known_runs.running.keys() - stored:
            self._log.warning(f"stopping {run_id}, which is not in the database")
            self._root.send({"op": "stop", "run": run_id, "cause": "stop", "by": "unknown run", "force": False})
        stale = [run_id for run_id in ended if run_id not in stored]
        if stale:
            self._root.send({"op": "ack", "runs": stale})
        self._engine.hold_admission(False)
        self._flows.resume(change)
        self._engine.admit_waiting(change)
        for unit in self._controller.leaving.values():
            self._controller.await_end(unit)
        for unit in self._units.values():
            self._make_room(unit, change)
            for target in unit.instances:
                target.since = target.since or change.now_ms
                self._controller.report(unit, target, change)

    def _snapshot(self, row: Run, known_runs: KnownRuns) -> dict[str, Any] | None:
        """Return the state of a run without a process here; None for another run.

        A restored copy of the database may lack steps that have run since, so then flows end as crashed.
        """
        if known_runs.again:
            self._flows.forget(row.id)
        return self._flows.snapshot(row) or self._external.snapshot(row)

    def _make_room(self, unit: Unit, change: Change) -> None:
        """Stop older runs for newer ones that are stored; the previous scheduler may have died before it did so."""
        task = unit.task
        if task is not None and task.on_overlap == "terminate":
            self._engine.terminate_again(unit, task, change)

    def _end_replaced(self, row: Run, exited: Exited | None, change: Change) -> None:
        """Store the end of a run whose instance already has a newer active run."""
        if exited is None:
            columns = {"end_reason": "crashed", "exit_code": CRASHED_EXIT_CODE, "ended_at": change.now_ms}
        else:
            unit = self._units.get(row.task_name)
            columns = ended_columns(verdict_of(exited, (0,) if unit is None else unit.definition.exit_codes), exited)
            change.then(lambda: self._root.send({"op": "ack", "runs": [row.id]}))
        change.write(update_run, row.id, **{"status": "ended", **columns})
        self._log.info(f"{row.task_name} {row.id}: {columns['end_reason']}; a newer run of its instance is active")

    def _adopted(self, row: Run, run_row: dict[str, Any] | None) -> LiveRun:
        """Adopt a run. Without a `run_row` the root did not start it, so the present definition applies in full."""
        unit = self._units.get(row.task_name)
        if unit is None or unit.definition.kind != row.kind:
            unit = self._removed_unit(row)
        run = LiveRun(
            unit,
            with_policy(unit.definition, run_row) if run_row else unit.definition,
            row.id,
            trigger=row.triggered_by,
            created_at=row.created_at,
            instance=row.instance_index,
            attempt=row.retry_attempt,
            retry_of=row.retry_of_run_id,
            scheduled_at=row.scheduled_at,
            params=self._private.parameters_of(row),
            files=self._private.files_of(row.id),
            unconditional=self._private.is_unconditional(row.id),
            by=row.requested_by,
            place=self._flows.place_of(row),
        )
        if run_row:  # perhaps under an earlier definition
            run.definition_hash = run_row.get("definition_hash")
            run.output_file = output_file_of(run_row)
        elif row.status != "pending" or not unit.configured:
            run.definition_hash = row.definition_hash
        if row.due_kind == "condition":
            run.ask_until = row.due_at
        elif row.due_at is not None:
            run.queued_at = row.due_at
        self._engine.adopt(run)
        for executor in (self._flows, self._external):
            executor.adopt(run)
        run.execution_id, run.approval = row.execution_id, self._approvals.get(row.id)
        self._jobs.adopt(run)
        return run

    def _unknown_to_root(self, run: LiveRun, row: Run, change: Change, *, again: bool) -> None:
        """Handle a run that the root does not know: it died with an earlier root, or never started.

        `again`: a pending run that may have started, and must not start a second time.
        """
        if row.status == "running" or again:
            self._was_running(run)
            self._forget_first_start(run)
            job_is_gone = self._jobs.search(run)
            if job_is_gone is None:
                self._lost(run, change)
            else:
                self._procedures.start(self._lost_once(run, job_is_gone))
            return
        # An earlier root may have been killed after it launched the job, but before the start was stored.
        job_is_gone = self._jobs.search(run) if self._first else None
        if job_is_gone is None:
            self._requeue(run, row, change)
        else:
            self._procedures.start(self._requeue_once(run, row, job_is_gone))

    def _lost(self, run: LiveRun, change: Change) -> None:
        self._log.warning(f"{run.unit.name} {run.id} crashed: its end was not observed")
        self._engine.lost(run, change)

    def _lost_once(self, run: LiveRun, job_is_gone: Wait) -> Procedure[None]:
        """End a run as crashed after the search for its job."""
        yield job_is_gone
        with self._committer.changing() as change:
            self._lost(run, change)

    def _requeue_once(self, run: LiveRun, row: Run, job_is_gone: Wait) -> Procedure[None]:
        """Let a pending run start after the search for its job."""
        self._engine.hold(run)  # while its job may still run, its places are not free
        self._assign_instance(run, instance_transitions.State.STARTING)
        yield job_is_gone
        with self._committer.changing() as change:
            if run.state is run_transitions.State.QUEUED:  # else a user stopped it during the search
                self._engine.release(run)
                self._requeue(run, row, change)
                self._engine.admit_waiting(change)

    def _removed_unit(self, row: Run) -> Unit:
        if row.kind == "service":
            return self._controller.leaving.setdefault(row.task_name, _removed_unit(row))
        return self.leaving.setdefault(row.task_name, _removed_unit(row))

    def _was_running(self, run: LiveRun) -> None:
        run.state = run_transitions.State.RUNNING
        self._engine.hold(run)
        self._assign_instance(run, instance_transitions.State.RUNNING)

    def _forget_first_start(self, run: LiveRun) -> None:
        """Make the next run of the instance its first start: this run belonged to an earlier daemon."""
        if self._first and self._has_instance(run):
            run.unit.instances[run.instance].started_once = False

    def _assign_instance(self, run: LiveRun, state: instance_transitions.State) -> None:
        """Assign a run of a service to its instance, which gets `state` unless it is stopping or restarting."""
        if self._has_instance(run):
            instance = run.unit.instances[run.instance]
            if instance.next is not None and instance.next.id == run.id:
                instance.next.run = run
                return
            instance.run = run
            instance.started_once = True
            instance.ready_at = instance.since if instance.ready_run == run.id else None
            if (
                state is instance_transitions.State.RUNNING
                and readiness(run) is not None
                and instance.ready_run != run.id
            ):
                state = instance_transitions.State.STARTING
            if run.unit.stopped:
                instance.state = instance_transitions.State.STOPPING
            elif instance.state is not instance_transitions.State.RESTARTING:
                instance.state = state

    def _is_running(self, run: LiveRun, row: Run, instance: dict[str, Any], change: Change) -> None:
        if row.status == "pending":
            self._store_start(run, instance["started_at"], change)
        else:
            self._was_running(run)
            if self._has_instance(run):
                self._resume(run, instance, change)
        if row.status != "pending":  # for pending runs, _store_start has told the observers
            self._engine.observe(run, instance["started_at"])
        if instance.get("heard") is not None:
            self._controller.run_notified(run, instance["heard"])
        if instance["cause"] is not None:
            run.state = run_transitions.State.STOPPING
            self._restart_returned_service(run, instance.get("by"))
            self._jobs.stop_job(run.id)
        elif row.kind == "service" and not self._has_instance(run):
            self._engine.stop(run, change, by=NOT_CONFIGURED)
        elif self._must_stop(run):  # the previous scheduler died before it asked the root to stop the run
            self._engine.stop(run, change)
        elif row.kind == "service" and self._is_outdated(run, instance["recipe"]):
            self.outdated.setdefault(row.task_name, set()).add(row.instance_index)

    @staticmethod
    def _is_outdated(run: LiveRun, recipe: str) -> bool:
        """Return whether a process has an earlier definition, and no later run is about to replace it."""
        following = run.unit.instances[run.instance].next
        replaced = following is not None and following.run not in (None, run)
        return recipe != process_hash(run.unit.definition) and not replaced

    def _store_start(self, run: LiveRun, at: int, change: Change) -> None:
        """Store and announce a start that the previous scheduler did not store."""
        run.state = run_transitions.State.STARTING
        self._engine.hold(run)
        self._assign_instance(run, instance_transitions.State.STARTING)
        self._engine.started(run.id, at, change)

    def _has_ended(self, run: LiveRun, row: Run, exited: Exited, change: Change) -> None:
        if row.status == "pending" and exited.started_at is not None:
            self._store_start(run, exited.started_at, change)
        else:
            self._was_running(run)
        self._forget_first_start(run)
        self._recall_stop(run, exited)
        self._engine.exited(exited, change)

    @staticmethod
    def _has_instance(run: LiveRun) -> bool:
        """Return whether the service of a run still has its instance."""
        return run.instance < len(run.unit.instances)

    def _recall_stop(self, run: LiveRun, exited: Exited) -> None:
        """Restore the facts about a stop, which decide how the instance continues after the end of its run."""
        if not self._has_instance(run) or run.unit.instances[run.instance].run is not run:
            return
        self._restart_returned_service(run, exited.by)
        target = run.unit.instances[run.instance]
        target.started_at = exited.started_at
        if exited.cause == _UNHEALTHY and target.state is instance_transitions.State.RESTARTING:
            target.state = instance_transitions.State.FAILING

    def _restart_returned_service(self, run: LiveRun, by: str | None) -> None:
        """Restart an instance after its run stops, if the run was stopped only because its service was removed.

        The service is in the configuration again.
        """
        if by == NOT_CONFIGURED and self._has_instance(run) and not run.unit.stopped:
            run.unit.instances[run.instance].state = instance_transitions.State.RESTARTING

    def _must_stop(self, run: LiveRun) -> bool:
        """Return whether the instance of a run is stopping or restarting."""
        instance = run.unit.instances[run.instance] if self._has_instance(run) else None
        return instance is not None and instance.run is run and instance.state in instance_transitions.ENDING

    def _resume(self, run: LiveRun, instance: dict[str, Any], change: Change) -> None:
        target = run.unit.instances[run.instance]
        if instance["cause"] == _UNHEALTHY and target.state is instance_transitions.State.RESTARTING:
            target.state = instance_transitions.State.FAILING
        self._controller.resume(run, target, instance["started_at"], change)

    def _requeue(self, run: LiveRun, row: Run, change: Change) -> None:
        configured = run.unit is self._units.get(run.unit.name)
        if not configured or (row.kind == "service" and not self._has_instance(run)):
            self._log.info(f"{row.task_name} {row.id} will not start: no longer configured")
            self._engine.stop(run, change, by=NOT_CONFIGURED)
        elif isinstance(run.definition, Service):
            # After a killed root, its sockets must be bound first.
            lacks = self._controller.sockets.lacks(run.unit)
            states = instance_transitions.State
            self._assign_instance(run, states.RESTARTING if lacks else states.STARTING)
            if self._must_stop(run):
                self._engine.stop(run, change)
            else:
                self._engine.enqueue(run)
        elif row.due_at is not None and _waits(row, change.now_ms):
            due = Due(row.due_kind or "retry", row.due_at)
            if due.kind == "retry":  # a clock that was set back must not prolong the wait
                longest = longest_delay_ms(run.definition.retry_delay_ms, run.definition.retry_max_delay_ms)
                due = Due("retry", min(row.due_at, change.now_ms + longest))
            self._engine.wait(run, due)
        elif not self._engine.asks_approval(run, change):
            self._engine.enqueue(run)
