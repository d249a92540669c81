"""Taking up the work: what the store says, what the root says, and closing the gap between the two.

The root is right about what runs, the store about everything else. A run that both know goes on; an exit that the root
still holds is stored; a run that only the store takes for running has crashed; what was still to be started is started.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

from logring.errors import LogError
from logring.paths import log_path
from logring.recover import save_leftover_ring
from store.database import Database
from store.runs import Run, get_run, unfinished_runs
from store.tasks import Instance, all_tasks, instances
from supervisor.config.model import Config, Service, Task
from supervisor.logline import Log
from supervisor.messages import Boot, Exited, Frame
from supervisor.scheduler import runs, services
from supervisor.scheduler.commit import Change
from supervisor.scheduler.engine import Engine
from supervisor.scheduler.keeper import Keeper
from supervisor.scheduler.rootlink import RootLink
from supervisor.scheduler.units import LiveRun, ServiceInstance, Unit

_RING_SUFFIX = ".ring"
_NOT_CONFIGURED = "no longer configured"

_REMOVED = Task(  # noqa: S604 - the field `shell`, no call of one
    name="",
    run=("false",),
    shell="/bin/sh",
    working_dir=None,
    env={},
    secrets={},
    description=None,
    group=None,
    tags=(),
    crons=(),
    timezone="UTC",
    run_on_start=False,
    max_concurrent=1,
    on_overlap="queue",
    queue_max=0,
    timeout_ms=None,
    stop_signal=15,
    grace_ms=0,
    retry_attempts=0,
    retry_delay_ms=0,
    retry_backoff="constant",
    retry_max_delay_ms=0,
    exit_codes=(0,),
    tty=False,
    merge_stderr=False,
    redraw=False,
    log_max_bytes=0,
    log_on_full="drop_old",
    keep_runs=0,
    keep_for_ms=0,
    api_trigger=False,
)
"""Stands for a task or service that left the configuration while a run of it was unfinished."""


@dataclass(frozen=True)
class Known:
    """What the store and the root knew when this scheduler started."""

    unfinished: list[Run]
    running: dict[str, dict[str, Any]]
    """The root's instances by run id."""
    exits: list[Exited]
    ending: bool
    """The daemon is being shut down."""


def read(db: Database, snapshot: Frame) -> Known:
    """Collect what is known; before the store thread takes the database over."""
    return Known(
        unfinished=unfinished_runs(db),
        running={instance["run"]: instance for instance in snapshot["instances"]},
        exits=[Exited(**exited) for exited in snapshot["exits"]],
        ending=snapshot["ending"],
    )


def make_units(db: Database, config: Config, *, first: bool) -> dict[str, Unit]:
    """All configured units, with what the store remembers of them; of states only those of this daemon's lifetime."""
    definitions: list[Task | Service] = [*config.tasks.values(), *config.services.values()]
    units = {definition.name: Unit(definition) for definition in definitions}
    for row in all_tasks(db):
        unit = units.get(row.name)
        if unit is not None:
            unit.last_instant = row.last_instant
    for instance in instances(db):
        unit = units.get(instance.task_name)
        if not first and unit is not None and instance.instance_index < len(unit.instances):
            _remember(unit.instances[instance.instance_index], instance)
    return units


def _remember(instance: ServiceInstance, row: Instance) -> None:
    instance.failures = row.failures
    instance.since = row.since
    state = services.State(row.state)
    if state in (services.State.EXITED, services.State.FATAL):
        instance.state = state


def save_leftover_rings(db: Database, boot: Boot, known: Known, log: Log) -> None:
    """Write out what the rings of a crashed root still hold; only while this root has started nothing."""
    for name in os.listdir(boot.runtime_dir):
        run_id = name.removesuffix(_RING_SUFFIX)
        if run_id == name or run_id in known.running:
            continue
        run = get_run(db, run_id, include_deleted=True)
        if run is None:
            continue
        path = log_path(boot.data_dir, run.task_name, run_id)
        try:
            save_leftover_ring(f"{boot.runtime_dir}/{name}", path)
        except (OSError, LogError) as err:
            log.error(f"{run.task_name} {run_id}: the end of its log cannot be saved: {err}")


class Startup:
    """Brings memory, store and root into line, once."""

    def __init__(self, engine: Engine, keeper: Keeper, root: RootLink, units: dict[str, Unit], log: Log) -> None:
        self._engine = engine
        self._keeper = keeper
        self._root = root
        self._units = units
        self._log = log

    def settle(self, known: Known, change: Change) -> None:
        """Adopt, end and restart; afterwards every unfinished run is in one of the states of the run table."""
        ended = {exited.run: exited for exited in known.exits}
        for row in known.unfinished:
            run = self._adopted(row)
            instance = known.running.get(row.id)
            if instance is not None:
                self._goes_on(run, row, instance, change)
            elif row.id in ended:
                self._was_running(run)
                self._engine.exited(ended[row.id], change)
            elif row.status == "running":
                self._was_running(run)
                self._log.warning(f"{row.task_name} {row.id} crashed: nobody saw its end")
                self._engine.lost(run, change)
            else:
                self._still_pending(run, row, change)
        stored = {row.id for row in known.unfinished}
        for run_id in known.running.keys() - stored:
            self._log.warning(f"stopping {run_id}: the database does not know it")
            self._root.send({"op": "stop", "run": run_id, "cause": "stop", "by": "unknown run", "force": False})
        stale = [run_id for run_id in ended if run_id not in stored]
        if stale:
            self._root.send({"op": "ack", "runs": stale})
        for unit in self._units.values():
            self._engine.promote(unit, change)
            for place in unit.instances:
                self._keeper.report(unit, place, change)

    def _adopted(self, row: Run) -> LiveRun:
        unit = self._units.get(row.task_name)
        definition = unit.definition if unit is not None else None
        if unit is None or definition is None or definition.kind != row.kind:
            definition = replace(_REMOVED, name=row.task_name)
            unit = Unit(definition)
        run = LiveRun(
            unit,
            definition,
            row.id,
            trigger=row.triggered_by,
            created_at=row.created_at,
            instance=row.instance_index,
            attempt=row.retry_attempt,
            retry_of=row.retry_of_run_id,
            scheduled_at=row.scheduled_at,
        )
        self._engine.adopt(run)
        return run

    def _was_running(self, run: LiveRun) -> None:
        run.state = runs.State.RUNNING
        run.unit.active[run.id] = run
        self._place(run, services.State.RUNNING)

    def _place(self, run: LiveRun, state: services.State) -> None:
        """Give a service's run back to its instance."""
        if self._has_place(run):
            instance = run.unit.instances[run.instance]
            instance.run = run
            instance.state = state
            instance.started_once = True

    def _goes_on(self, run: LiveRun, row: Run, instance: dict[str, Any], change: Change) -> None:
        if row.status == "pending":
            run.state = runs.State.STARTING
            run.unit.active[run.id] = run
            self._place(run, services.State.STARTING)
            self._engine.started(run.id, instance["started_at"], change)
        else:
            self._was_running(run)
            if self._has_place(run):
                self._watch_health(run, instance["started_at"], change)
        if instance["cause"] is not None:
            run.state = runs.State.STOPPING
        elif row.kind == "service" and not self._has_place(run):
            self._engine.stop(run, change, by=_NOT_CONFIGURED)

    @staticmethod
    def _has_place(run: LiveRun) -> bool:
        """True for the run of a service that has such an instance."""
        return run.instance < len(run.unit.instances)

    def _watch_health(self, run: LiveRun, started_at: int, change: Change) -> None:
        service = run.unit.service
        if service is not None:
            healthy_at = started_at + service.healthy_after_ms
            self._keeper.watch_health(run.unit, run.unit.instances[run.instance], max(0, healthy_at - change.now_ms))

    def _still_pending(self, run: LiveRun, row: Run, change: Change) -> None:
        configured = run.unit is self._units.get(run.unit.name)
        if not configured or (row.kind == "service" and not self._has_place(run)):
            self._log.info(f"{row.task_name} {row.id} will not start: it is no longer configured")
            self._engine.stop(run, change, by=_NOT_CONFIGURED)
        elif isinstance(run.definition, Service):
            self._place(run, services.State.STARTING)
            self._engine.decide(run, change)
        elif row.due_at is not None and row.due_at > change.now_ms:
            # The clock may have been set back meanwhile.
            self._engine.wait_for_retry(run, min(row.due_at - change.now_ms, run.definition.retry_max_delay_ms))
        else:
            run.unit.queue.append(run)
