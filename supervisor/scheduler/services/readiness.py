"""When an instance of a service does its work: the one place that says so."""

from supervisor.scheduler.runs.live_units import ServiceInstance
from supervisor.scheduler.services.instance_transitions import State


def is_ready(instance: ServiceInstance) -> bool:
    """Whether its present incarnation was found ready; where nothing looks for that, has run for ``healthy_after``."""
    return instance.state is State.RUNNING and (instance.probed or instance.healthy)


def is_well(instance: ServiceInstance) -> bool:
    """Whether its present incarnation has also gone on for ``healthy_after``."""
    return instance.state is State.RUNNING and instance.healthy
