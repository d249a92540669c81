"""Incidents of services: crash loops and flapping.

A crash loop begins with the first ``service.fatal``. It continues across restarts of the scheduler and the daemon, and
includes further fatal instances and the attempts of ``fatal_retry``. It ends with ``service.recovered`` when all
instances are healthy again, or without a notification when a user stops the service.

A service is flapping if an instance fails repeatedly, but too rarely to become fatal: more than ``flap_restarts`` times
within ``flap_window``. It is stable again after a window without a failure. A stop ends flapping without a
notification. So does a crash loop, which has its own.
"""

import math
from collections.abc import Sequence

from store.tasks import update_task
from supervisor.config.model import Service
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.notifications.notifications import Notifications, end_public_incident
from supervisor.scheduler.runs.live_units import ServiceInstance, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.readiness import is_well


class CrashLoops:
    """Reports the beginning and the end of crash loops."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications

    def given_up(
        self, unit: Unit, service: Service, instance: ServiceInstance, run_id: str | None, change: Change
    ) -> None:
        """Report an instance that became fatal, unless the open incident already covers it."""
        again = instance.failures > service.restart_attempts + 1
        others = any(
            other.failures > service.restart_attempts for other in unit.instances if other.index != instance.index
        )
        if unit.fatal_since is not None and (again or others):
            return
        self._notifications.service_fatal(unit, instance, run_id, change)
        if unit.fatal_since is None:
            self._set(unit, change.now_ms, change)

    def check_recovery(self, unit: Unit, change: Change) -> None:
        """End the incident with a notification if all instances are healthy or have exited for good.

        This also ends the unit's incident on the public status page, unless the service is flapping.
        """
        if not unit.instances or not all(is_well(one) or one.state is State.EXITED for one in unit.instances):
            return
        if unit.fatal_since is not None:
            self._notifications.service_recovered(unit, unit.fatal_since, change)
            self._set(unit, None, change)
        if unit.flapping_since is None:
            end_public_incident(unit, change)

    def close(self, unit: Unit, change: Change) -> None:
        """End the incident without a notification, because the service was stopped."""
        if unit.fatal_since is not None:
            self._set(unit, None, change)

    @staticmethod
    def _set(unit: Unit, since: int | None, change: Change) -> None:
        unit.fatal_since = since
        change.write(update_task, unit.name, fatal_since=since)


def newest_failures(ends: Sequence[int], service: Service, now_ms: int) -> list[int]:
    """Return the failures within ``flap_window``, oldest first; only as many as :func:`is_flapping` needs. Pure."""
    recent = [at for at in ends if now_ms - service.flap_window_ms < at <= now_ms]
    return recent[-_needed(service) :]


def is_flapping(ends: Sequence[int], service: Service) -> bool:
    """Return whether `ends`, the result of :func:`newest_failures`, exceed ``flap_restarts``. Pure."""
    return len(ends) >= _needed(service)


def _needed(service: Service) -> int:
    """Return the number of failures that count as flapping."""
    return int(service.flap_restarts) + 1


class Flapping:
    """Reports the beginning and the end of flapping."""

    def __init__(
        self,
        loop: Loop,
        notifications: Notifications,
        committer: Committer,
    ) -> None:
        self._loop = loop
        self._notifications = notifications
        self._committer = committer
        self._timers: dict[str, Timer] = {}

    def failed(self, unit: Unit, instance: ServiceInstance, run_id: str, at: int, change: Change) -> None:
        """Count an unrequested failure of an instance at `at` (ms since the epoch)."""
        service = unit.service
        if service is None or service.flap_restarts == math.inf:
            return
        instance.failed_ends = newest_failures([*instance.failed_ends, at], service, change.now_ms)
        if unit.flapping_since is None and unit.fatal_since is None and is_flapping(instance.failed_ends, service):
            self._set(unit, change.now_ms, change)
            self._notifications.service_flapping(unit, instance, run_id, change)
        self.wait(unit)

    def wait(self, unit: Unit) -> None:
        """Restart the timer after which a flapping service counts as stable."""
        self._cancel(unit)
        if unit.flapping_since is not None and unit.service is not None:
            self._timers[unit.name] = self._loop.after(unit.service.flap_window_ms, self._is_stable, unit)

    def close(self, unit: Unit, change: Change) -> None:
        """End the incident without a notification, and forget the failures."""
        self._cancel(unit)
        for instance in unit.instances:
            instance.failed_ends = []
        if unit.flapping_since is not None:
            self._set(unit, None, change)

    def _is_stable(self, unit: Unit) -> None:
        del self._timers[unit.name]
        with self._committer.changing() as change:
            if unit.flapping_since is not None:
                self._notifications.service_stable(unit, unit.flapping_since, change)
                end_public_incident(unit, change)
            self.close(unit, change)

    def _cancel(self, unit: Unit) -> None:
        timer = self._timers.pop(unit.name, None)
        if timer is not None:
            timer.cancel()

    @staticmethod
    def _set(unit: Unit, since: int | None, change: Change) -> None:
        unit.flapping_since = since
        change.write(update_task, unit.name, flapping_since=since)
        change.announce("service.flapping", {"taskName": unit.name, "flapping": since is not None})
