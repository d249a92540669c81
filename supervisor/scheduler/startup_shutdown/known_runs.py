"""The runs known to the store and the root when a scheduler starts."""

import json
from dataclasses import dataclass, field
from typing import Any

from store.database import Database
from store.errors import InstantTaken
from store.runs.writes import Run, get_run, insert_run, unfinished_runs
from store.tasks import get_task
from supervisor.ipc.messages import Exited, Frame
from supervisor.scheduler.runs.run_rows import running_row


@dataclass(frozen=True)
class KnownRuns:
    """Runs known to the store and the root at the start of this scheduler."""

    unfinished: list[Run]
    running: dict[str, dict[str, Any]]
    """Active runs of the root, by run id."""
    exits: list[Exited]
    ending: bool
    """Whether the daemon is shutting down."""
    cgroups: str | None = None
    """Directory of the cgroups of runs."""
    left_running: list[dict[str, Any]] = field(default_factory=list)
    """Leftovers of ended runs, as the root lists them."""
    again: bool = False
    """Whether the database was restored from its copy; pending runs except `waiting` may have run since."""
    waiting: frozenset[str] = frozenset()
    """Pending runs that did not begin, according to the damaged database."""
    missing_in_store: frozenset[str] = frozenset()
    """Unfinished runs that only the root has, because the restored copy is older."""
    first: bool = False
    """Whether this is the first scheduler of its root."""
    begun: frozenset[str] = frozenset()
    """Runs that a dead root began; they never start again, even if their start is not stored."""

    @property
    def running_names(self) -> set[str]:
        """Names of the units with active runs."""
        return {run.task_name for run in self.unfinished if run.id in self.running}

    @property
    def held(self) -> set[str]:
        """Ids of the runs known to the root."""
        return {*self.running, *(exited.run for exited in self.exits)}

    @property
    def origins(self) -> dict[str, dict[str, Any]]:
        """Stored rows and policies of the runs known to the root, by run id."""
        ended = {exited.run: exited.origin for exited in self.exits}
        return ended | {run_id: instance.get("origin", {}) for run_id, instance in self.running.items()}

    def replaced(self) -> set[str]:
        """Return unfinished runs of instances that have a later active run: their ends were lost with the database."""
        newest = {
            (run.task_name, run.instance_index): run.id
            for run in self.unfinished
            if run.kind == "service" and run.id in self.running
        }
        return {run.id for run in self.unfinished if newest.get((run.task_name, run.instance_index), run.id) != run.id}

    def lost(self, db: Database) -> set[str]:
        """Return the runs of which a dead root may have left processes to kill.

        Pending runs are included, because the root may have died before it reported a start. The stored definition in
        `db`, not the present file, decides whether leftovers stay.
        """
        lost = [run for run in self.unfinished if run.id not in self.held]
        to_leave = {name for name in {run.task_name for run in lost} if _leaves(db, name)}
        return {run.id for run in lost if run.task_name not in to_leave}


def _leaves(db: Database, name: str) -> bool:
    task = get_task(db, name)
    return task is not None and json.loads(task.definition).get("leftovers") == "leave"


def read(db: Database, snapshot: Frame, *, again: bool = False, waiting: frozenset[str] = frozenset()) -> KnownRuns:
    """Collect the known runs, before the store thread takes over the database.

    `again`: the database was restored from its copy, so the root knows younger runs.
    `waiting`: pending runs that did not begin.
    """
    running = {instance["run"]: instance for instance in snapshot["instances"]}
    exits = [Exited(**exited) for exited in snapshot["exits"]]
    younger = _younger(db, [*running.values(), *map(vars, exits)]) if again else []
    return KnownRuns(
        unfinished=[*unfinished_runs(db), *younger],
        running=running,
        exits=exits,
        ending=snapshot["ending"],
        cgroups=snapshot["cgroups"],
        left_running=snapshot.get("left_running", []),  # absent in roots before this version
        again=again,
        waiting=waiting,
        missing_in_store=frozenset(run.id for run in younger),
    )


def _younger(db: Database, held: list[dict[str, Any]]) -> list[Run]:
    """Return the runs of the root that the store does not have."""
    return [
        running_row(one["origin"], one["started_at"])
        for one in held
        if one["origin"] and get_run(db, one["run"], include_deleted=True) is None
    ]


def insert_missing(db: Database, row: Run) -> None:
    """Store a run that only the root has."""
    try:
        insert_run(db, row)
    except InstantTaken:  # another run already has this instant
        insert_run(db, row._replace(scheduled_at=None))
