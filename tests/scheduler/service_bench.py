"""Helpers that start, command and end services on a bench."""

from typing import Any

from store.tasks import Instance, TaskRecord, get_task, instances
from supervisor.scheduler.control.operation import operations_of
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.runs.live_units import ServiceInstance, Unit
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.support.waiting import until

Answer = dict[str, Any]
DONE: Answer = {"ok": True, "result": {}}


def taken_up(one: Bench, name: str = "s") -> Unit:
    """Start a service and return it with all wanted instances running."""
    unit = one.units[name]
    change = one.committer.change()
    one.controller.take_over(unit, change)
    one.committer.commit(change)
    run_all(one)
    return unit


def run_all(one: Bench) -> None:
    """Let the root report all requested starts."""
    one.store.work_all()
    for run_id in one.root.take("spawn"):
        one.started(run_id)
    one.store.work_all()
    one.loop.round(0)  # healthy at once
    one.store.work_all()


def run_of(instance: ServiceInstance) -> str:
    assert instance.run is not None
    return instance.run.id


def states(unit: Unit) -> list[State]:
    return [instance.state for instance in unit.instances]


def ends(one: Bench, instance: ServiceInstance, *, status: int = 0, cause: str | None = None) -> None:
    """Let the process of an instance end."""
    one.exited(run_of(instance), status=status, cause=cause)
    one.store.work_all()


def fails(one: Bench, instance: ServiceInstance) -> None:
    """Let an instance fail before any healthy_after."""
    instance.healthy = False
    one.exited(run_of(instance), status=1 << 8, ran_ms=-1)
    one.store.work_all()


def send(one: Bench, operation: str, name: str, **arguments: Any) -> list[Answer]:
    """Send a request and return the list for its answer."""
    answers: list[Answer] = []
    commands = UnitOperations(
        one.core, one.engine.stop, one.controller, ScheduledStarts(one.core, one.engine), one.units
    )
    operations_of(commands)[operation]({"task": name, "by": "me", **arguments}, answers.append)
    return answers


def answer_to(one: Bench, operation: str, name: str = "s", **arguments: Any) -> Answer:
    """Send a request, store all changes and return the answer."""
    answers = send(one, operation, name, **arguments)
    one.store.work_all()
    (answer,) = answers
    return answer


def restarted(one: Bench, command: str = "1", *, rolling: bool = False) -> Answer:
    return answer_to(one, "service_restart", command=command, rolling=rolling)


def record(one: Bench, name: str = "s") -> TaskRecord:
    found = get_task(one.store.database, name)
    assert found is not None
    return found


def stored(one: Bench, name: str = "s") -> list[Instance]:
    return instances(one.store.database, name)


def in_time(one: Bench, state: State, instance: ServiceInstance) -> None:
    """Run timers until the instance is in this state."""

    def there() -> bool:
        one.loop.round(0)
        one.store.work_all()
        return instance.state is state

    until(there, f"the state {state}")
