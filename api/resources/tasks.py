"""Tasks and services as they are configured, and what they are doing."""

import functools
import re
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from api import runs_view, schemas
from api.conditional import CONDITION
from api.context import Context
from api.errors import ApiError
from api.identity import Role
from api.operation import Call, Operation, json_of
from api.times import rfc3339
from store import tasks as store_tasks
from store.database import Database
from store.runs import Run
from store.tasks import Instance, TaskRecord

_SHOWN_APART = frozenset({"name", "kind", "description", "group", "tags", "cron", "timezone"})
_URGENCY = ("fatal", "backoff", "stopping", "starting", "running", "exited", "stopped")


@functools.cache  # there are as many names as keys of the configuration
def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match.group(1).upper(), name)


def _time(at_ms: int | None) -> str | UnsetType:
    return UNSET if at_ms is None else rfc3339(at_ms)


class _View(NamedTuple):
    """Everything that is shown of one or of all tasks."""

    records: list[TaskRecord]
    active: dict[str, tuple[int, int]]
    last_runs: dict[str, Run]
    instances: dict[str, list[Instance]]


def _view(db: Database, name: str | None = None) -> _View:
    if name is None:
        records = store_tasks.all_tasks(db)
    else:
        record = store_tasks.get_task(db, name)
        records = [record] if record is not None and record.configured else []
    instances: dict[str, list[Instance]] = {}
    for instance in store_tasks.instances(db, name):
        instances.setdefault(instance.task_name, []).append(instance)
    return _View(records, store_tasks.active_counts(db), store_tasks.last_runs(db, name), instances)


def _task(view: _View, record: TaskRecord) -> schemas.Task:
    definition: dict[str, Any] = msgspec.json.decode(record.definition)
    service = record.kind == "service"
    last_run = view.last_runs.get(record.name)
    pending, running = view.active.get(record.name, (0, 0))
    instances = view.instances.get(record.name, [])
    return schemas.Task(
        name=record.name,
        kind=record.kind,
        description=definition.get("description") or UNSET,
        group=definition.get("group") or UNSET,
        tags=list(definition.get("tags") or ()),
        cron=list(definition.get("cron") or ()),
        timezone=definition.get("timezone") or UNSET,
        next_run_at=_time(record.next_run_at),
        last_run=UNSET if last_run is None else runs_view.camel(last_run),
        active=schemas.Active(running=running, pending=pending),
        state=_worst(instances) if service else UNSET,
        instances=[_instance(instance) for instance in instances] if service else UNSET,
        rolling=_rolling(record.rolling),
        paused=record.paused,
        definition={_camel(key): value for key, value in definition.items() if key not in _SHOWN_APART},
    )


def _worst(instances: list[Instance]) -> str:
    """A service's state: that of the instance which most needs attention."""
    return min((instance.state for instance in instances), key=_URGENCY.index, default="stopped")


def _rolling(stored: str | None) -> schemas.Rolling | UnsetType:
    if stored is None:
        return UNSET
    done, total = msgspec.json.decode(stored, type=tuple[int, int])
    return schemas.Rolling(done=done, total=total)


def _instance(instance: Instance) -> schemas.Instance:
    return schemas.Instance(
        index=instance.instance_index,
        state=instance.state,
        run_id=instance.run_id or UNSET,
        since=_time(instance.since),
        failures=instance.failures,
        ready=instance.ready,
        detail=instance.detail or UNSET,
    )


def list_tasks(context: Context, call: Call) -> None:
    """All configured tasks and services."""
    view = context.reads(_view)
    sees = call.identity.sees if call.identity is not None else lambda _name: True
    call.answer(schemas.Tasks(items=[_task(view, record) for record in view.records if sees(record.name)]))
    call.tagged()


def get_task(context: Context, call: Call) -> None:
    """One of them."""
    name = call.path["taskName"]
    view = context.reads(_view, name)
    if not view.records:
        raise ApiError(404, f"There is no task {name}")
    call.answer(_task(view, view.records[0]))
    call.tagged()


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/tasks",
        id="listTasks",
        role=Role.VIEWER,
        scoped=True,
        summary="List all tasks and services.",
        handler=list_tasks,
        headers=(CONDITION,),
        answers={200: json_of(schemas.Tasks), 304: None},
        tag="tasks",
    ),
    Operation(
        method="GET",
        path="/api/tasks/{taskName}",
        id="getTask",
        role=Role.VIEWER,
        summary="Get one task or service.",
        handler=get_task,
        headers=(CONDITION,),
        answers={200: json_of(schemas.Task), 304: None},
        refusals=(404, 422),
        tag="tasks",
    ),
)
