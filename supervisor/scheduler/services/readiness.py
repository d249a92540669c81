"""Whether an instance of a service is ready and healthy. Pure."""

from supervisor.scheduler.runs.live_units import ServiceInstance
from supervisor.scheduler.services.instance_transitions import State


def is_ready(instance: ServiceInstance) -> bool:
    """Return whether the current run passed its readiness check; a service without one must be healthy."""
    return instance.state is State.RUNNING and (instance.probed or instance.healthy)


def is_well(instance: ServiceInstance) -> bool:
    """Return whether the current run has been ready for ``healthy_after``."""
    return instance.state is State.RUNNING and instance.healthy
