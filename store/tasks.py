"""Tasks and services: definitions for the API, and what the scheduler has to remember of each."""

from collections.abc import Collection
from typing import Any, NamedTuple

from store.database import Database
from store.models import InstanceModel, TaskModel
from store.phases import END_REASONS, FIRST_ACTIVE, PENDING, RUNNING
from store.run_filter import VISIBLE
from store.run_record import SELECT, Run, from_row


class TaskRecord(NamedTuple):
    """A task or service. Times: ms since the epoch.

    Attributes:
        kind: "task" or "service".
        definition: JSON text for the API, without secrets.
        configured: Whether the configuration has it; a task that was removed keeps its row and its runs.
        paused: Its schedule rests.
        stopped: A service that was stopped by somebody.
        last_instant: The newest instant of its schedule that was accounted for.
        fatal_since: People were told then that a service is given up, and not yet that it is back.
        rolling: A rolling restart that is under way, in the words of the scheduler.
        last_restart: Id of the command that restarted a service last.
        last_boot: The boot of the host for which a task that runs once per boot ran last.
    """

    name: str
    kind: str
    definition: str
    configured: bool
    paused: bool
    stopped: bool
    last_instant: int | None
    next_run_at: int | None
    last_run_id: str | None
    fatal_since: int | None = None
    rolling: str | None = None
    last_restart: str | None = None
    last_boot: str | None = None


class Instance(NamedTuple):
    """One instance of a service.

    Attributes:
        state: In the words of the scheduler.
        since: When it came into that state, ms since the epoch.
        failures: Quick failures in a row.
        ready: It does its work.
        detail: How it stands, in words for people.
    """

    task_name: str
    instance_index: int
    state: str
    run_id: str | None
    since: int
    failures: int
    ready: bool = False
    detail: str | None = None


_CHANGEABLE = frozenset(
    {
        "paused",
        "stopped",
        "last_instant",
        "next_run_at",
        "last_run_id",
        "fatal_since",
        "rolling",
        "last_restart",
        "last_boot",
    }
)
_CONFIGURED = TaskModel.configured == True  # noqa: E712 - of a column, this makes SQL
_LAST_RUNS = f"""
SELECT {SELECT} FROM tasks AS t JOIN runs ON runs.id = COALESCE(
    (SELECT id FROM runs WHERE id = t.last_run_id AND {VISIBLE}),
    (SELECT id FROM runs INDEXED BY runs_task WHERE task_name = t.name AND {VISIBLE}
     ORDER BY created_at DESC, id DESC LIMIT 1))
"""  # noqa: S608 - constants


def upsert_task(db: Database, name: str, kind: str, definition: str) -> None:
    """Store a configured task or service; what is remembered of it stays."""
    query = TaskModel.insert(
        name=name, kind=kind, definition=definition, configured=True, paused=False, stopped=False
    ).on_conflict(
        conflict_target=[TaskModel.name],
        update={TaskModel.kind: kind, TaskModel.definition: definition, TaskModel.configured: True},
    )
    db.apply(query)


def update_task(db: Database, name: str, **columns: Any) -> bool:
    """Change what is remembered, by the names in `TaskRecord`; returns whether it exists.

    Raises:
        ValueError: Another column, or none.
    """
    if not columns or not columns.keys() <= _CHANGEABLE:
        raise ValueError(f"cannot be changed in a task: {', '.join(columns) or 'nothing'}")
    # Raw SQL: this is part of the end of every run, and building the query would take longer than running it.
    changed = ", ".join(f"{column} = ?" for column in columns)
    return db.execute(f"UPDATE tasks SET {changed} WHERE name = ?", [*columns.values(), name]) > 0  # noqa: S608 - known names


def forget_missing(db: Database, names: Collection[str]) -> int:
    """Mark every task but these as not configured any more; returns how many were. What comes back is new."""
    gone = _CONFIGURED & TaskModel.name.not_in(list(names))
    return db.apply(TaskModel.update(configured=False, paused=False, next_run_at=None, fatal_since=None).where(gone))


def all_tasks(db: Database, include_forgotten: bool = False) -> list[TaskRecord]:
    """All configured tasks and services by name, those that were removed too if asked for."""
    query = TaskModel.select().order_by(TaskModel.name)
    if not include_forgotten:
        query = query.where(_CONFIGURED)
    return [TaskRecord(*row) for row in db.fetch(query.tuples())]


def get_task(db: Database, name: str) -> TaskRecord | None:
    """One task or service, configured or not any more; None when it was never configured."""
    rows = db.fetch(TaskModel.select().where(TaskModel.name == name).tuples())
    return TaskRecord(*rows[0]) if rows else None


def active_counts(db: Database) -> dict[str, tuple[int, int]]:
    """Pending and running runs of each task that has any."""
    rows = db.rows(
        "SELECT task_name, count(*) FILTER (WHERE state = ?), count(*) FILTER (WHERE state = ?)"  # noqa: S608 - constants
        " FROM runs INDEXED BY runs_state"
        f" WHERE state IN (?, ?) AND {VISIBLE} GROUP BY task_name",
        [PENDING, RUNNING, PENDING, RUNNING],
    )
    return {name: (pending, running) for name, pending, running in rows}


def last_runs(db: Database, task_name: str | None = None) -> dict[str, Run]:
    """The last run of each task that has one, or of one task.

    That is the one in `last_run_id`; when it was deleted, or never noted, the newest visible one.
    """
    rows = db.rows(_LAST_RUNS) if task_name is None else db.rows(f"{_LAST_RUNS} WHERE t.name = ?", [task_name])
    return {run.task_name: run for run in map(from_row, rows)}


def ended_since(db: Database, since: int) -> dict[str, bool]:
    """Whether the run of each task that ended last succeeded; of tasks of which any was started since then (ms)."""
    rows = db.rows(
        "SELECT task_name, state FROM runs WHERE kind = 'task' AND started_at >= ? AND state < ? ORDER BY ended_at, id",
        [since, FIRST_ACTIVE],
    )
    return {name: state == END_REASONS["succeeded"] for name, state in rows}


def set_instance(db: Database, instance: Instance) -> None:
    """Store the state of an instance."""
    query = InstanceModel.insert(**instance._asdict()).on_conflict(
        conflict_target=[InstanceModel.task_name, InstanceModel.instance_index],
        preserve=[
            InstanceModel.state,
            InstanceModel.run_id,
            InstanceModel.since,
            InstanceModel.failures,
            InstanceModel.ready,
            InstanceModel.detail,
        ],
    )
    db.apply(query)


def instances(db: Database, task_name: str | None = None) -> list[Instance]:
    """The instances of one service, or of all, by name and index."""
    query = InstanceModel.select().order_by(InstanceModel.task_name, InstanceModel.instance_index)
    if task_name is not None:
        query = query.where(InstanceModel.task_name == task_name)
    return [Instance(*row) for row in db.fetch(query.tuples())]


def drop_instances(db: Database, task_name: str, from_index: int = 0) -> int:
    """Remove a service's instances from an index on; returns how many there were."""
    those = (InstanceModel.task_name == task_name) & (InstanceModel.instance_index >= from_index)
    return db.apply(InstanceModel.delete().where(those))
