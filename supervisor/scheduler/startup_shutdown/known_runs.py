"""The runs that the store and the root know when a scheduler starts."""

from typing import Any

from msgspec import Struct, field

from store.database import Database
from store.errors import InstantTaken
from store.runs.writes import Approval, Run, get_run, insert_run, open_approvals, unfinished_runs
from supervisor.ipc.messages import Exited, Message
from supervisor.scheduler.runs.run_rows import running_row
from supervisor.startup.orphans import without_kept


class KnownRuns(Struct, frozen=True):
    """The runs that the store and the root knew when this scheduler started."""

    unfinished: list[Run]
    running: dict[str, dict[str, Any]]
    """The active runs in the root's snapshot, by run id."""
    exits: list[Exited]
    ending: bool
    """Whether the daemon is shutting down."""
    cgroups: str | None = None
    """Directory of the runs' cgroups; None if there is none."""
    left_running: list[dict[str, Any]] = field(default_factory=list)
    """Leftovers of ended runs, as the root lists them."""
    sockets: list[list[str]] = field(default_factory=list)
    """Service, name and identity of each listening socket that the root holds."""
    again: bool = False
    """Whether the database was restored from its copy: pending runs except `waiting` may have started since then."""
    waiting: frozenset[str] = frozenset()
    """Pending runs that had not started, according to the damaged database."""
    missing_in_store: frozenset[str] = frozenset()
    """Unfinished runs that only the root knows, because they are newer than the restored copy."""
    approvals: dict[str, Approval] = field(default_factory=dict)
    """The approvals that unfinished runs still need, by run id."""
    first: bool = False
    """Whether this is the first scheduler of its root."""
    recent_starts: frozenset[str] = frozenset()
    """Runs that an earlier root started before it died; they must not start again, even if no start is stored."""

    @property
    def running_names(self) -> set[str]:
        """Names of the units that have active runs."""
        return {run.task_name for run in self.unfinished if run.id in self.running}

    @property
    def ids_at_root(self) -> set[str]:
        """Ids of the runs that the root knows, active or ended."""
        return {*self.running, *(exited.run for exited in self.exits)}

    @property
    def run_rows(self) -> dict[str, dict[str, Any]]:
        """Rows and policies of the runs that the root knows, by run id (:func:`.run_rows.run_row_of`)."""
        ended = {exited.run: exited.origin for exited in self.exits}
        return ended | {run_id: instance.get("origin", {}) for run_id, instance in self.running.items()}

    def replaced(self) -> set[str]:
        """Return the unfinished runs that are not active any more, but whose instance has a later active run.

        They ended, but their ends were lost with the damaged database.
        """
        active, replaced = set(), set()
        for run in reversed(self.unfinished):
            place = run.kind, run.task_name, run.instance_index
            if run.kind == "service" and run.id in self.running:
                active.add(place)
            elif place in active:
                replaced.add(run.id)
        return replaced

    def lost(self, db: Database) -> set[str]:
        """Return the runs that may have orphans to kill, because the root does not know them.

        Pending runs are included: a root may have died before it reported a start.
        """
        return without_kept(db, [run for run in self.unfinished if run.id not in self.ids_at_root])


def read(db: Database, snapshot: Message, *, again: bool = False, waiting: frozenset[str] = frozenset()) -> KnownRuns:
    """Return the known runs; `db` must not yet belong to the store thread.

    Args:
        db: the database.
        snapshot: the root's answer to ``snapshot``.
        again: whether the database was restored from its copy, so that the root may know newer runs.
        waiting: pending runs that certainly did not start.
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
        sockets=snapshot.get("sockets", []),
        again=again,
        waiting=waiting,
        missing_in_store=frozenset(run.id for run in younger),
        approvals=open_approvals(db),
    )


def _younger(db: Database, reported: list[dict[str, Any]]) -> list[Run]:
    """Return rows for the runs that the root knows, but not the store."""
    return [
        running_row(row["origin"], row["started_at"])
        for row in reported
        if row["origin"] and get_run(db, row["run"], include_deleted=True) is None
    ]


def insert_missing(db: Database, row: Run) -> None:
    """Store a run that only the root knew."""
    try:
        insert_run(db, row)
    except InstantTaken:  # another run has this instant, which is unique for a task
        insert_run(db, row._replace(scheduled_at=None))
