"""Helpers that start, command and end services on a bench."""

from typing import Any

from store.tasks import StoredInstance, TaskRecord, get_task, instances
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.runs.live_units import ServiceInstance, Unit
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.support.waiting import until

Answer = dict[str, Any]
DONE: Answer = {"ok": True, "result": {}}


def taken_up(harness: Bench, name: str = "s") -> Unit:
    """Start a service and return it with all wanted instances running."""
    unit = harness.units[name]
    change = harness.committer.change()
    harness.controller.take_over(unit, change)
    harness.committer.commit(change)
    run_all(harness)
    return unit


def run_all(harness: Bench) -> None:
    """Let the root report all requested starts."""
    harness.store.work_all()
    for run_id in harness.root.take("spawn"):
        harness.started(run_id)
    harness.store.work_all()
    harness.loop.round(0)  # healthy at once
    harness.store.work_all()


def run_of(instance: ServiceInstance) -> str:
    assert instance.run is not None
    return instance.run.id


def states(unit: Unit) -> list[State]:
    return [instance.state for instance in unit.instances]


def ends(harness: Bench, instance: ServiceInstance, *, status: int = 0, cause: str | None = None) -> None:
    """Let the process of an instance end."""
    harness.exited(run_of(instance), status=status, cause=cause)
    harness.store.work_all()


def fails(harness: Bench, instance: ServiceInstance) -> None:
    """Let an instance fail before any healthy_after."""
    instance.healthy = False
    harness.exited(run_of(instance), status=1 << 8, ran_ms=-1)
    harness.store.work_all()


def send(harness: Bench, operation: str, name: str, **arguments: Any) -> list[Answer]:
    """Send a request and return the list for its answer."""
    answers: list[Answer] = []
    commands = UnitOperations(
        harness.core,
        harness.engine.stop,
        harness.controller,
        ScheduledStarts(harness.core, harness.engine),
        harness.units,
    )
    operations_of(commands)[operation]({"task": name, "by": "me", **arguments}, answers.append)
    return answers


def answer_to(harness: Bench, operation: str, name: str = "s", **arguments: Any) -> Answer:
    """Send a request, store all changes and return the answer."""
    answers = send(harness, operation, name, **arguments)
    harness.store.work_all()
    (answer,) = answers
    return answer


def restarted(harness: Bench, command: str = "1", *, rolling: bool = False) -> Answer:
    return answer_to(harness, "service_restart", command=command, rolling=rolling)


def record(harness: Bench, name: str = "s") -> TaskRecord:
    task = get_task(harness.store.database, name)
    assert task is not None
    return task


def stored(harness: Bench, name: str = "s") -> list[StoredInstance]:
    return instances(harness.store.database, name)


def in_time(harness: Bench, state: State, instance: ServiceInstance) -> None:
    """Run timers until the instance is in this state."""

    def there() -> bool:
        harness.loop.round(0)
        harness.store.work_all()
        return instance.state is state

    until(there, f"the state {state}")
