"""Notifications: what people should hear of, stored and announced with the change that it belongs to.

=====================  ========  ========================================================================
kind                   severity  when
=====================  ========  ========================================================================
``run.failed``         error     a run of a task ended in a way that is tried again, and no attempt is left
``service.fatal``      error     a service is given up: an instance of it failed too often in a row
``service.recovered``  info      after that, all instances of it are well again
``service.rolling``    error     a rolling restart of a service ended before it was done
``log.dropping``       warn      the output of a run is counted and not kept
``config.stale``       info      a file of the configuration has changed and was not reloaded
=====================  ========  ========================================================================
"""

from typing import Any

from store import notifications
from store.database import Database
from store.ids import new_ulid
from store.notifications import Notification
from supervisor.config.model import Notify, Task
from supervisor.logline import stamp
from supervisor.scheduler.commit import Change, Told
from supervisor.scheduler.retry import RETRIED_REASONS, tried_again
from supervisor.scheduler.units import LiveRun, Roll, ServiceInstance, Unit
from supervisor.scheduler.verdict import Verdict

RUN_FAILED = "run.failed"
SERVICE_FATAL = "service.fatal"
SERVICE_RECOVERED = "service.recovered"
SERVICE_ROLLING = "service.rolling"
LOG_DROPPING = "log.dropping"
CONFIG_STALE = "config.stale"


class Notices:
    """Raises notifications and marks them."""

    def __init__(self, settings: Notify) -> None:
        self._settings = settings

    def configure(self, settings: Notify) -> None:
        """Go by other settings from now on."""
        self._settings = settings

    def notify(
        self,
        change: Change,
        kind: str,
        severity: str,
        title: str,
        body: str,
        *,
        task_name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        """Tell people of something; a repeat (same kind and task) within ``coalesce_window`` only raises the count.

        Args:
            change: what it is stored with.
            kind: see the module.
            severity: ``info``, ``warn`` or ``error``.
            title: one line.
            body: more, as plain text; of repeats the last.
            task_name: which task or service it is about.
            run_id: which run it is about.
        """
        draft = Notification(
            id=new_ulid(change.now_ms),
            kind=kind,
            severity=severity,
            title=title,
            body=body,
            task_name=task_name,
            run_id=run_id,
            times=1,
            created_at=change.now_ms,
            last_occurred_at=change.now_ms,
        )
        change.tell(lambda db: self._raise(db, draft))

    def run_ended(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        """A run of a task ended, and nobody had asked for it."""
        task = run.definition
        if not isinstance(task, Task) or verdict.reason not in RETRIED_REASONS:
            return
        if run.attempt < task.retry_attempts and tried_again(task.retry_on, verdict.reason, verdict.exit_code):
            return
        attempts = f", as did {run.attempt} before it" if run.attempt else ""
        self.notify(
            change,
            RUN_FAILED,
            "error",
            f"{task.name} failed",
            f"The run {run.id} ended: {verdict.text}{attempts}.",
            task_name=task.name,
            run_id=run.id,
        )

    def service_fatal(self, unit: Unit, instance: ServiceInstance, run_id: str | None, change: Change) -> None:
        """A service is given up, because of this instance."""
        self.notify(
            change,
            SERVICE_FATAL,
            "error",
            f"{unit.name} is given up",
            f"Instance {instance.index} ended {instance.failures} times in a row before it was healthy.",
            task_name=unit.name,
            run_id=run_id,
        )

    def service_recovered(self, unit: Unit, since: int, change: Change) -> None:
        """All instances of a service that was given up are well again."""
        self.notify(
            change,
            SERVICE_RECOVERED,
            "info",
            f"{unit.name} is back",
            f"It had been given up for {(change.now_ms - since) // 1000} s.",
            task_name=unit.name,
        )

    def rolling_failed(self, unit: Unit, instance: ServiceInstance, roll: Roll, change: Change) -> None:
        """An instance did not become ready again, so the restart went no further."""
        self.notify(
            change,
            SERVICE_ROLLING,
            "error",
            f"The rolling restart of {unit.name} failed",
            f"Instance {roll.index} is {instance.state.shown}; {roll.end - roll.index - 1} of {roll.end} instances"
            " were not restarted.",
            task_name=unit.name,
        )

    def log_dropping(self, run: LiveRun, reason: str, change: Change) -> None:
        """The output of a run is not kept."""
        self.notify(
            change,
            LOG_DROPPING,
            "warn",
            f"Output of {run.unit.name} is dropped",
            f"The log of the run {run.id} takes nothing: {reason}.",
            task_name=run.unit.name,
            run_id=run.id,
        )

    def config_stale(self, path: str, change: Change) -> None:
        """The configuration in force is not what its files say."""
        self.notify(
            change,
            CONFIG_STALE,
            "info",
            "The configuration has changed",
            f"{path}, or a file that it includes, is not what it was when it was read. It holds after a reload.",
        )

    def _raise(self, db: Database, draft: Notification) -> Told:
        before = notifications.unread_count(db)
        stored = notifications.notify(
            db, draft, window_ms=self._settings.coalesce_window_ms, keep=self._settings.history_keep
        )
        event = "notification.created" if stored.id == draft.id else "notification.updated"
        return [(event, {"notification": _shown(stored)}), *_count(db, before)]

    @staticmethod
    def mark(change: Change, notification_id: str, *, read: bool) -> None:
        """Mark one as read, or as unread."""

        def marked(db: Database) -> Told:
            before = notifications.unread_count(db)
            if not notifications.mark(db, notification_id, change.now_ms if read else None):
                return []
            stored = notifications.get(db, notification_id)
            if stored is None:
                return []
            return [("notification.updated", {"notification": _shown(stored)}), *_count(db, before)]

        change.tell(marked)

    @staticmethod
    def mark_all(change: Change) -> None:
        """Mark all as read, which is one event however many they are."""

        def marked(db: Database) -> Told:
            before = notifications.unread_count(db)
            notifications.mark_all(db, change.now_ms)
            return _count(db, before)

        change.tell(marked)


def _count(db: Database, before: int) -> Told:
    now = notifications.unread_count(db)
    return [] if now == before else [("notification.unreadCountChanged", {"count": now})]


def _shown(stored: Notification) -> dict[str, Any]:
    """As the API shows it."""
    shown = {
        "id": stored.id,
        "kind": stored.kind,
        "severity": stored.severity,
        "title": stored.title,
        "body": stored.body,
        "taskName": stored.task_name,
        "runId": stored.run_id,
        "count": stored.times,
        "createdAt": stamp(stored.created_at),
        "lastOccurredAt": stamp(stored.last_occurred_at),
        "readAt": None if stored.read_at is None else stamp(stored.read_at),
    }
    return {name: value for name, value in shown.items() if value is not None}
