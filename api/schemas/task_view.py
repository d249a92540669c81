"""The API's representation of a task or service."""

import functools
import re
import time
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from api.schemas import records as schemas
from api.schemas import run_view
from api.schemas.wire_times import known_rfc3339, rfc3339
from store import tasks as store_tasks
from store.connection import Connection
from store.database import Database
from store.runs.run_durations import expectation
from store.runs.writes import Run
from store.tasks import StoredInstance, UnitStatus, decode_promises

_Attributed = TypeVar("_Attributed", schemas.Acknowledged, schemas.Withholding)
_SHOWN_APART = frozenset({"name", "kind", "description", "group", "tags", "cron", "timezone", "steps", "flow", "step"})
_PROBES = frozenset({"ready", "live"})
_URGENCY = ("fatal", "backoff", "stopping", "starting", "running", "exited", "stopped")


@functools.cache  # bounded by the number of configuration keys
def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match.group(1).upper(), name)


class TaskViewInput(NamedTuple):
    """Everything that the representation depends on, except for immutable facts about the last run."""

    standing: UnitStatus
    active: tuple[int, int]
    """Numbers of pending and of running runs."""
    instances: tuple[StoredInstance, ...]
    acknowledged: str | None
    """The stored acknowledgement; None if there is none or it no longer holds."""


def bases(db: Database | Connection, name: str | None = None) -> list[TaskViewInput]:
    """Return the basis of each configured task and service, sorted by name; with `name`, only of that one."""
    active = store_tasks.active_counts(db)
    now_ms = time.time_ns() // 1_000_000
    instances: dict[str, list[StoredInstance]] = {}
    for instance in store_tasks.instances(db, name):
        instances.setdefault(instance.task_name, []).append(instance)
    return [
        TaskViewInput(
            standing,
            active.get(standing.name, (0, 0)),
            tuple(instances.get(standing.name, ())),
            standing.acknowledged if _holds(standing, now_ms) else None,
        )
        for standing in store_tasks.standings(db, name)
    ]


def _holds(standing: UnitStatus, now_ms: int) -> bool:
    """Return whether an acknowledgement holds: until its end or, without one, until a new run or a new flapping."""
    if standing.acknowledged is None:
        return False
    stored = msgspec.json.decode(standing.acknowledged)
    if stored["until"] is not None:
        return bool(now_ms < stored["until"])
    flapping = standing.flapping_since is not None and standing.flapping_since == stored["flapping_since"]
    return flapping or bool(standing.run_id == stored["run"])


def find_unit(db: Database, name: str) -> schemas.Task | None:
    """Return a configured task or service; None if there is none of that name."""
    with db.snapshot() as view:
        inputs = bases(view, name)
        return shown(inputs[0], store_tasks.last_runs(view, name).get(name)) if inputs else None


def shown(basis: TaskViewInput, last_run: Run | None) -> schemas.Task:
    """Build the representation of a task or service."""
    standing = basis.standing
    definition: dict[str, Any] = msgspec.json.decode(standing.definition)
    service = standing.kind == "service"
    pending, running = basis.active
    promises = decode_promises(standing.promises)
    expected = expectation(definition.get("expected_duration_ms"), promises.durations)
    return schemas.Task(
        name=standing.name,
        kind=standing.kind,
        description=definition.get("description") or UNSET,
        group=definition.get("group") or UNSET,
        tags=list(definition.get("tags") or ()),
        cron=list(definition.get("cron") or ()),
        timezone=definition.get("timezone") or UNSET,
        done_by=rfc3339(promises.due[0].deadline) if promises.due else UNSET,
        failing_since=known_rfc3339(promises.failing_since),
        late_since=UNSET if promises.late is None else rfc3339(promises.late.deadline),
        usual_ms=UNSET if expected is None else expected.usual_ms,
        slow_after_ms=UNSET if expected is None else expected.slow_ms,
        next_run_at=known_rfc3339(standing.next_run_at),
        last_run=UNSET if last_run is None else run_view.camel(last_run),
        active=schemas.Active(running=running, pending=pending),
        state=_worst(basis.instances) if service else UNSET,
        flapping=standing.flapping_since is not None if service else UNSET,
        instances=[_instance(instance) for instance in basis.instances] if service else UNSET,
        rolling=_rolling(standing.rolling),
        paused=bool(standing.paused),
        withheld=attributed(schemas.Withholding, _decoded(standing.withheld)),
        acknowledged=attributed(schemas.Acknowledged, _decoded(basis.acknowledged)),
        steps=[flow_step(step) for step in definition["steps"]] if "steps" in definition else UNSET,
        flow=definition.get("flow", UNSET),
        step=definition.get("step", UNSET),
        definition=definition_keys({key: value for key, value in definition.items() if key not in _SHOWN_APART}),
    )


def flow_step(step: dict[str, Any]) -> schemas.StepDefinition:
    """Return a step of a stored definition or graph."""
    return schemas.StepDefinition(
        **{name: value for name, value in step.items() if name in schemas.StepDefinition.__struct_fields__}
    )


def definition_keys(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a stored definition with the names of the API."""
    return {_camel(key): _inside(key, value) for key, value in definition.items()}


def _decoded(text: str | None) -> dict[str, Any] | None:
    return None if text is None else msgspec.json.decode(text)


def attributed(kind: type[_Attributed], stored: dict[str, Any] | None) -> _Attributed | UnsetType:
    """Return a stored act of a person for the API."""
    if stored is None:
        return UNSET
    return kind(
        by=stored["by"],
        at=rfc3339(stored["at"]),
        until=known_rfc3339(stored["until"]),
        note=stored["note"] or UNSET,
    )


def _inside(key: str, value: Any) -> Any:
    """Convert a value of the definition.

    The keys of probes are ours and become camelCase. Other tables have keys such as names of variables, which stay.
    """
    return {_camel(name): inner for name, inner in value.items()} if key in _PROBES else value


def _worst(instances: tuple[StoredInstance, ...]) -> str:
    """Return a service's state: the state of the instance that most needs attention."""
    return min((instance.state for instance in instances), key=_URGENCY.index, default="stopped")


def _rolling(stored: str | None) -> schemas.Rolling | UnsetType:
    if stored is None:
        return UNSET
    done, total = msgspec.json.decode(stored, type=tuple[int, int])
    return schemas.Rolling(done=done, total=total)


def _instance(instance: StoredInstance) -> schemas.Instance:
    return schemas.Instance(
        index=instance.instance_index,
        state=instance.state,
        run_id=instance.run_id or UNSET,
        since=known_rfc3339(instance.since),
        failures=instance.failures,
        ready=instance.ready,
        detail=instance.detail or UNSET,
    )
