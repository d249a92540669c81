"""Crash loops as people hear of them: one that a service is given up, one that it is back.

From the first ``service.fatal`` on the service is in an incident, which outlives the scheduler and the daemon. Further
instances that are given up, and further attempts by ``fatal_retry``, belong to it. It ends with ``service.recovered``
when no instance is in trouble any more, and without a word when somebody stops the service.
"""

from store.tasks import update_task
from supervisor.config.model import Service
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.notifications.notifications import Notices
from supervisor.scheduler.runs.live_units import ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.readiness import is_well


class Incidents:
    """Tells of the beginning and the end of each."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    def given_up(
        self, unit: Unit, service: Service, instance: ServiceInstance, run_id: str | None, change: Change
    ) -> None:
        """An instance has become fatal."""
        again = instance.failures > service.restart_attempts + 1
        others = any(one.failures > service.restart_attempts for one in unit.instances if one.index != instance.index)
        if unit.fatal_since is not None and (again or others):
            return
        self._notices.service_fatal(unit, instance, run_id, change)
        if unit.fatal_since is None:
            self._set(unit, change.now_ms, change)

    def look(self, unit: Unit, change: Change) -> None:
        """Something has become better: perhaps all of it is well again."""
        if unit.fatal_since is None or not unit.instances:
            return
        if all(is_well(one) or one.state is State.EXITED for one in unit.instances):
            self._notices.service_recovered(unit, unit.fatal_since, change)
            self._set(unit, None, change)

    def close(self, unit: Unit, change: Change) -> None:
        """Somebody stopped the service."""
        if unit.fatal_since is not None:
            self._set(unit, None, change)

    @staticmethod
    def _set(unit: Unit, since: int | None, change: Change) -> None:
        unit.fatal_since = since
        change.write(lambda db: update_task(db, unit.name, fatal_since=since))
