"""Tasks and services: their definitions for the API, and the scheduler's state."""

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from store.connection import Connection
from store.database import Database
from store.models import InstanceModel, TaskModel
from store.runs.filter import VISIBLE
from store.runs.phases import END_REASONS, FAILURES, FIRST_ACTIVE, PENDING, RUNNING
from store.runs.record import SELECT, Run, from_row
from store.service_uptime import StateChange, record_change


class TaskRecord(NamedTuple):
    """A task or service. Times are in ms since the epoch.

    Attributes:
        kind: "task" or "service".
        definition: JSON text for the API, without secrets.
        configured: Whether it is in the configuration. A removed task keeps its row and its runs.
        paused: Whether the schedule is paused.
        stopped: Whether a user stopped the service.
        last_instant: The newest instant of the schedule that was handled.
        last_run_id: The ended run that was stored last.
        fatal_since: When the service failed permanently, which was reported; its recovery is not yet reported.
        rolling: Progress of a rolling restart (JSON); None if there is none.
        last_restart: Id of the last command that restarted the service, or changed several units.
        last_boot: The host's boot in which a task that runs once per boot last ran.
        failures: Number of consecutive failed runs of a task; a run and its retries count as one.
        failed_attempts: The same, but each retry counts.
        flapping_since: Time since which the service fails repeatedly; its recovery is not yet reported.
        acknowledged: The failure that a person acknowledged (JSON); None if there is none.
        withheld: Who disabled the service or paused the task, when, until when and why (JSON); None if nobody did.
        promises: The state of its promises (:class:`PromiseState`); None if there is none.
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
    failures: int = 0
    failed_attempts: int = 0
    flapping_since: int | None = None
    acknowledged: str | None = None
    withheld: str | None = None
    promises: str | None = None


class Promise(Struct, frozen=True):
    """What a task has to do by a deadline; times are in milliseconds since the epoch."""

    deadline: int
    instant: int
    """The newest instant with this deadline."""
    since: int
    """A success of this instant, or of a later one, keeps the promise; so does a run that was requested since then."""


class PromiseState(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known about the promises of a task; times and durations are in milliseconds."""

    durations: tuple[int, ...] | None = None
    """Durations of the last successes of scheduled runs with default parameters, newest last; None: not read yet."""
    slow: tuple[str, ...] = ()
    """The active runs that were reported as slow."""
    due: tuple[Promise, ...] = ()
    """The promises that are neither kept nor broken, in the order of their deadlines."""
    late: Promise | None = None
    """The last promise that was broken, until its work is done."""
    outcomes: str = ""
    """The outcomes of the last runs that ``failure_rate`` counts, newest last: ``f`` failed, ``s`` succeeded."""
    failing_since: int | None = None
    """When too many of them were reported as failed; None: they were not."""


class StoredInstance(NamedTuple):
    """One instance of a service.

    Attributes:
        state: Name of the state, as the scheduler uses it.
        since: When the instance entered the state, ms since the epoch.
        failures: Number of consecutive quick failures.
        ready: Whether the instance is ready.
        detail: Status text for people; None if there is none.
        next_run: Id of the run that replaces `run_id` once it is ready; None if there is none.
    """

    task_name: str
    instance_index: int
    state: str
    run_id: str | None
    since: int
    failures: int
    ready: bool = False
    detail: str | None = None
    next_run: str | None = None


class UnitStatus(NamedTuple):
    """The state of a configured task or service that the API shows: equal objects are shown alike.

    The last six fields are the id of the last run and its fields that can change. `TaskRecord` has the others too.
    """

    name: str
    kind: str
    definition: str
    paused: bool
    next_run_at: int | None
    rolling: str | None
    flapping_since: int | None
    acknowledged: str | None
    withheld: str | None
    promises: str | None
    run_id: str | None
    run_state: int | None
    exit_code: int | None
    started_at: int | None
    ended_at: int | None
    execution_id: str | None


_CHANGEABLE = frozenset(TaskRecord._fields) - {"name", "kind", "definition", "configured", "last_run_id"}
_CONFIGURED = TaskModel.configured == True  # noqa: E712 - peewee turns this comparison into SQL
_GONE = {
    "configured": False,
    "paused": False,
    "last_instant": None,
    "next_run_at": None,
    "fatal_since": None,
    "failures": 0,
    "failed_attempts": 0,
    "flapping_since": None,
    "acknowledged": None,
    "withheld": None,
    "promises": None,
}
_UPSERT = """
INSERT INTO tasks (name, kind, definition, configured, paused, stopped) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE
SET kind = excluded.kind, definition = excluded.definition, configured = excluded.configured
"""
_SET_INSTANCE = f"""
INSERT INTO instances ({", ".join(StoredInstance._fields)}) VALUES ({", ".join("?" * len(StoredInstance._fields))})
ON CONFLICT (task_name, instance_index) DO UPDATE
SET {", ".join(f"{name} = excluded.{name}" for name in StoredInstance._fields[2:])}
"""  # noqa: S608 - constants
_LAST_RUN = f"""
(SELECT max(seq) FROM (
    SELECT COALESCE(
        (SELECT seq FROM runs WHERE id = t.last_run_id AND {VISIBLE}),
        (SELECT seq FROM runs INDEXED BY runs_ended WHERE state < {FIRST_ACTIVE} AND task_name = t.name AND {VISIBLE}
         ORDER BY end_number DESC, ended_at DESC LIMIT 1)) AS seq
    UNION ALL SELECT seq FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE} AND task_name = t.name
 ) AS last)
"""  # noqa: S608 - constants
_LAST_RUNS = f"SELECT {SELECT} FROM tasks AS t JOIN runs ON runs.seq = {_LAST_RUN}"  # noqa: S608 - constants
_STANDINGS = f"""
SELECT t.name, t.kind, t.definition, t.paused, t.next_run_at, t.rolling, t.flapping_since, t.acknowledged,
    t.withheld, t.promises, last.id, last.state, last.exit_code, last.started_at, last.ended_at, last.execution_id
FROM tasks AS t LEFT JOIN runs AS last ON last.seq = {_LAST_RUN} WHERE t.configured = 1
"""  # noqa: S608 - constants
_NEWEST_ENDS = f"""
SELECT instance_index, ended_at, state FROM runs INDEXED BY runs_ended
WHERE state < {FIRST_ACTIVE} AND task_name = ? ORDER BY end_number DESC, ended_at DESC LIMIT ?
"""  # noqa: S608 - constants
_FAILED = frozenset(END_REASONS[reason] for reason in FAILURES - {"crashed"})
_Queries = Database | Connection


def upsert_task(db: Database, name: str, kind: str, definition: str) -> None:
    """Store the definition of a configured task or service; its state is kept."""
    # Raw SQL is faster, here and below: a daemon with ten thousand tasks stores them all at startup.
    db.execute(_UPSERT, [name, kind, definition, True, False, False])


def update_task(db: Database, /, name: str, **columns: Any) -> bool:
    """Change columns of a task's state, by their names in `TaskRecord`; return whether the task exists.

    Raises:
        ValueError: no columns, or a column that cannot be changed.
    """
    if not columns or not columns.keys() <= _CHANGEABLE:
        raise ValueError(f"cannot be changed in a task: {', '.join(columns) or 'nothing'}")
    # Raw SQL, because this is part of the end of every run: building a peewee query would take longer than running it.
    changed = ", ".join(f"{column} = ?" for column in columns)
    return db.execute(f"UPDATE tasks SET {changed} WHERE name = ?", [*columns.values(), name]) > 0  # noqa: S608 - known names


def put_back(db: Database, task: TaskRecord) -> None:
    """Store the state of a task or service from another database. The last run is determined by the stored runs."""
    upsert_task(db, task.name, task.kind, task.definition)
    update_task(db, task.name, **{name: getattr(task, name) for name in _CHANGEABLE})


def decode_promises(text: str | None) -> PromiseState:
    """Return the state from its column; one that this version cannot read counts as none."""
    try:
        return PromiseState() if text is None else msgspec.json.decode(text, type=PromiseState)
    except msgspec.ValidationError:
        return PromiseState()


def encode_promises(state: PromiseState) -> str:
    """Return the text for the column."""
    return msgspec.json.encode(state).decode()


def forget_missing(db: Database, names: Collection[str]) -> int:
    """Mark all tasks except `names` as no longer configured, and reset their state; return their number."""
    gone = _CONFIGURED & TaskModel.name.not_in(list(names))
    return db.apply(TaskModel.update(**_GONE).where(gone))


def all_tasks(db: Database, include_forgotten: bool = False) -> list[TaskRecord]:
    """Return all configured tasks and services, sorted by name; with `include_forgotten`, also removed ones."""
    query = TaskModel.select().order_by(TaskModel.name)
    if not include_forgotten:
        query = query.where(_CONFIGURED)
    return [TaskRecord(*row) for row in db.fetch(query.tuples())]


def get_task(db: Database, name: str) -> TaskRecord | None:
    """Return a task or service, which may no longer be configured; None if it never was."""
    rows = db.fetch(TaskModel.select().where(TaskModel.name == name).tuples())
    return TaskRecord(*rows[0]) if rows else None


def standings(db: _Queries, name: str | None = None) -> list[UnitStatus]:
    """Return the state of all configured tasks and services, sorted by name; with `name`, only of that one."""
    if name is not None:
        return [UnitStatus._make(row) for row in db.rows(f"{_STANDINGS} AND t.name = ?", [name])]
    return [UnitStatus._make(row) for row in db.rows(f"{_STANDINGS} ORDER BY t.name")]


def active_counts(db: _Queries) -> dict[str, tuple[int, int]]:
    """Return the numbers of pending and of running runs, for each task that has any."""
    rows = db.rows(
        "SELECT task_name, count(*) FILTER (WHERE state = ?), count(*) FILTER (WHERE state = ?)"  # noqa: S608 - constants
        f" FROM runs INDEXED BY runs_active WHERE state >= {FIRST_ACTIVE} GROUP BY task_name",
        [PENDING, RUNNING],
    )
    return {name: (pending, running) for name, pending, running in rows}


def last_runs(db: _Queries, task_name: str | None = None) -> dict[str, Run]:
    """Return the last run of each task that has runs; with `task_name`, only of that one.

    The last run is the run that was stored last. If that one is deleted, it is the visible run that ended last.
    """
    rows = db.rows(_LAST_RUNS) if task_name is None else db.rows(f"{_LAST_RUNS} WHERE t.name = ?", [task_name])
    return {run.task_name: run for run in map(from_row, rows)}


def ended_since(db: Database, since: int) -> dict[str, bool]:
    """Return, for each task, whether its last ended run succeeded. Only runs that started since a time (ms) count."""
    rows = db.rows(
        "SELECT task_name, state FROM runs INDEXED BY runs_started"  # noqa: S608 - constants
        f" WHERE kind = 'task' AND started_at >= ? AND state < {FIRST_ACTIVE} ORDER BY end_number, ended_at",
        [since],
    )
    return {name: state == END_REASONS["succeeded"] for name, state in rows}


def failed_ends(db: Database, name: str, limit: int) -> list[tuple[int, int]]:
    """Return instance and end (ms) of failures among a service's last `limit` ended runs, in the order of the ends."""
    rows = db.rows(_NEWEST_ENDS, [name, limit])
    return [(instance, ended_at) for instance, ended_at, state in reversed(rows) if state in _FAILED]


def set_instance(db: Database, instance: StoredInstance) -> None:
    """Store the state of an instance, and count the time that it spent in the previous state."""
    change = StateChange(instance.instance_index, instance.since, instance.state, instance.run_id)
    record_change(db, instance.task_name, change)
    db.execute(_SET_INSTANCE, instance)


def instances(db: _Queries, task_name: str | None = None) -> list[StoredInstance]:
    """Return the instances of one service, or of all, sorted by name and index."""
    query = InstanceModel.select().order_by(InstanceModel.task_name, InstanceModel.instance_index)
    if task_name is not None:
        query = query.where(InstanceModel.task_name == task_name)
    return [StoredInstance(*row) for row in db.fetch(query.tuples())]


def drop_instances(db: Database, task_name: str, from_index: int = 0) -> int:
    """Remove a service's instances from an index on; return their number."""
    return db.execute("DELETE FROM instances WHERE task_name = ? AND instance_index >= ?", [task_name, from_index])
