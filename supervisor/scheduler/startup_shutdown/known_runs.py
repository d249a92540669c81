"""What the store and the root know when a scheduler starts, before it closes the gap between the two."""

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
    """What the store and the root knew when this scheduler started."""

    unfinished: list[Run]
    running: dict[str, dict[str, Any]]
    """The root's instances by run id."""
    exits: list[Exited]
    ending: bool
    """The daemon is being shut down."""
    cgroups: str | None = None
    """Directory with the cgroups of runs."""
    left_running: list[dict[str, Any]] = field(default_factory=list)
    """What runs left that have ended, as the root lists it."""
    again: bool = False
    """The database was started again from its copy: what waited to start then has perhaps run, but for `waiting`."""
    waiting: frozenset[str] = frozenset()
    """Runs of which the damaged database told that they had not begun."""
    missing_in_store: frozenset[str] = frozenset()
    """Those of the unfinished runs that the store does not have, since its copy is older; the root has them."""
    begun: frozenset[str] = frozenset()
    """Runs that a root has begun that is dead: they are not begun again, whether or not their start is stored."""

    @property
    def running_names(self) -> set[str]:
        """Names of the tasks and services of which something runs."""
        return {run.task_name for run in self.unfinished if run.id in self.running}

    @property
    def held(self) -> set[str]:
        """Ids of the runs that the root knows."""
        return {*self.running, *(exited.run for exited in self.exits)}

    @property
    def origins(self) -> dict[str, dict[str, Any]]:
        """How the runs that the root knows were when they were started, by run id."""
        ended = {exited.run: exited.origin for exited in self.exits}
        return ended | {run_id: instance.get("origin", {}) for run_id, instance in self.running.items()}

    def replaced(self) -> set[str]:
        """Unfinished runs of instances of which a later run goes on: the store has forgotten their ends."""
        newest = {
            (run.task_name, run.instance_index): run.id
            for run in self.unfinished
            if run.kind == "service" and run.id in self.running
        }
        return {run.id for run in self.unfinished if newest.get((run.task_name, run.instance_index), run.id) != run.id}

    def lost(self, db: Database) -> set[str]:
        """Runs of which a dead root may have left processes that are to be ended.

        Also of a pending one: the root may have died before it could say that it had started it. Whether they are to be
        left says the definition of before, which is still in `db`, whatever the files say now.
        """
        lost = [run for run in self.unfinished if run.id not in self.held]
        to_leave = {name for name in {run.task_name for run in lost} if _leaves(db, name)}
        return {run.id for run in lost if run.task_name not in to_leave}


def _leaves(db: Database, name: str) -> bool:
    task = get_task(db, name)
    return task is not None and json.loads(task.definition).get("leftovers") == "leave"


def read(db: Database, snapshot: Frame, *, again: bool = False, waiting: frozenset[str] = frozenset()) -> KnownRuns:
    """Collect what is known; before the store thread takes the database over.

    `again`: the database was started again from its copy, so the root tells about runs that are younger than that.
    `waiting`: runs that have not begun all the same.
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
        left_running=snapshot.get("left_running", []),  # a root before this version lists nothing
        again=again,
        waiting=waiting,
        missing_in_store=frozenset(run.id for run in younger),
    )


def _younger(db: Database, held: list[dict[str, Any]]) -> list[Run]:
    """Those of the runs that the root holds of which the store has nothing."""
    return [
        running_row(one["origin"], one["started_at"])
        for one in held
        if one["origin"] and get_run(db, one["run"], include_deleted=True) is None
    ]


def insert_missing(db: Database, row: Run) -> None:
    """Store a run that the store has forgotten."""
    try:
        insert_run(db, row)
    except InstantTaken:  # nobody knows any more that it stood for that one
        insert_run(db, row._replace(scheduled_at=None))
