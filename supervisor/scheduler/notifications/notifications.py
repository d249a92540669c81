"""Raises notifications as part of the changes that they report.

One transaction stores the change, the notification and its deliveries, so a crash cannot separate them.
:mod:`supervisor.ipc.notification_kinds` lists the kinds.
"""

from collections.abc import Callable, Sequence

from store import deliveries, notifications
from store.database import Database
from store.deliveries import Delivery
from store.notifications import Notification
from store.runs.ids import new_ulid
from store.tasks import update_task
from supervisor.config.files.stamps import has_same_zone
from supervisor.config.model import Config, Task
from supervisor.config.value_types.durations import format_duration
from supervisor.ipc import notification_kinds
from supervisor.ipc.log_line import stamp
from supervisor.ipc.plural import counted
from supervisor.scheduler.control.socket_operation import Arguments, Reply, done, operation, refused, unavailable
from supervisor.scheduler.database.commits import Change, Committer, Events
from supervisor.scheduler.notifications.routes import RoutedEvent, Target, targets
from supervisor.scheduler.notifications.wording import body_of, title_of
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun, RollingRestart, ServiceInstance, Unit
from supervisor.scheduler.runs.retry import RETRIED_REASONS

MOST_WAITING = 1000
"""Maximum number of waiting messages per notifier; above it, the oldest are dropped."""
TOO_MANY = f"more than {MOST_WAITING} messages were waiting"
_MISSED_REASONS = {
    "missed": "had no run: the daemon was not running, the host slept, or the database could not be written",
    "queue_full": "had no run: the queue was full",
    "skipped": "had no run: another run was active or waiting",
}
"""The reason why an instant had no run, by end reason."""
_SILENT_LISTED = 10
_TITLES = {notification_kinds.RUN_TIMEOUT: "timed out", notification_kinds.RUN_CRASHED: "crashed"}


class Notifications:
    """Raises notifications; each method reports one kind of occurrence."""

    def __init__(self, config: Config, on_queued: Callable[[dict[str, int]], None] = lambda _lost: None) -> None:
        """`on_queued` is called after deliveries are stored, with the number of dropped messages by notifier."""
        self.configure(config)
        self._on_queued = on_queued

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._settings = config.notify
        self._routes = config.routes
        self._notifiers = frozenset(config.notifiers)
        self._zone = config.daemon.timezone
        self._reports_success = any(notification_kinds.RUN_SUCCEEDED in route.match.kinds for route in config.routes)

    def _report(self, change: Change, kind: str, title: str, body: str) -> None:
        """Raise a notification about the daemon, with the severity of its kind."""
        self._raise_notification(change, RoutedEvent(kind=kind, severity=notification_kinds.OF_KIND[kind]), title, body)

    def _raise_notification(
        self,
        change: Change,
        fact: RoutedEvent,
        title: str,
        body: str,
        *,
        run_id: str | None = None,
        listed: bool = True,
    ) -> None:
        """Raise a notification.

        A repeat (same kind and task) within ``coalesce_window`` replaces the body and increments the count.

        Args:
            change: the change to add to.
            fact: the occurrence, which decides about deliveries.
            title: the title, one line.
            body: the body as plain text.
            run_id: the run that it is about, if any.
            listed: whether it also appears in the list of notifications.
        """
        draft = Notification(
            id=new_ulid(change.now_ms),
            kind=fact.kind,
            severity=fact.severity,
            title=title,
            body=body,
            task_name=fact.task,
            run_id=run_id,
            times=1,
            created_at=change.now_ms,
            last_occurred_at=change.now_ms,
        )
        if listed:
            change.announce_result(lambda db: self._raise(db, draft))
        if not self._notifiers:
            return
        reached = targets(fact, self._routes, self._zone, change.now_ms)
        sent_to = [target for target in reached if target.notifier in self._notifiers]
        if sent_to or fact.kind in notification_kinds.RECOVERIES:

            def stored(dropped: dict[str, int] | None) -> None:
                if dropped is not None:
                    self._on_queued(dropped)

            change.read(lambda db: self._queue(db, draft, sent_to)).then(stored)

    def _queue(self, db: Database, draft: Notification, sent_to: Sequence[Target]) -> dict[str, int] | None:
        """Store deliveries; return the number of dropped messages by notifier, or None if there was no delivery.

        Dropped reports about lost deliveries are not counted: each report would otherwise cause the next one.
        """
        settings, task = self._settings, draft.task_name or ""
        over = notification_kinds.RECOVERIES.get(draft.kind)
        notified = set() if over is None else deliveries.end_of_trouble(db, over, task)
        lost: dict[str, int] | None = None
        for target in sent_to:
            if target.only_if_notified and target.notifier not in notified:
                continue
            if over is None and not deliveries.note_notification(
                db, target.notifier, draft.kind, task, draft.created_at, settings.coalesce_window_ms
            ):
                continue
            deliveries.add(db, _delivery(draft, target), settings.digest_ms)
            lost = {} if lost is None else lost
            dropped = deliveries.overflow(db, target.notifier, MOST_WAITING)
            if dropped:
                if draft.kind != notification_kinds.DELIVERY_FAILED:
                    lost[target.notifier] = dropped
                deliveries.count_lost(db, target.notifier, dropped, TOO_MANY, draft.created_at)
        return lost

    def run_ended(self, run: LiveRun, verdict: Verdict, change: Change, *, will_retry: bool) -> None:
        """Report a run that ended without a stop request; `will_retry`: a retry follows.

        Failed runs of services are not reported here, but as crash loops or flapping.
        """
        if not isinstance(run.definition, Task):
            if verdict.succeeded:
                self._tell_success(run, verdict, change)
        elif verdict.succeeded:
            self._succeeded(run, verdict, change)
        elif verdict.reason in RETRIED_REASONS:
            self._failed(run, verdict, change, again=will_retry)

    def _failed(self, run: LiveRun, verdict: Verdict, change: Change, *, again: bool) -> None:
        unit = run.unit
        unit.failed_attempts += 1
        unit.failures += not again
        self._count(unit, change)
        kind = notification_kinds.OF_REASON.get(verdict.reason, notification_kinds.RUN_FAILED)
        fact = RoutedEvent(
            kind=kind,
            severity=notification_kinds.OF_KIND[kind],
            task=unit.name,
            final=not again,
            failures=unit.failures + again,
            attempts=unit.failed_attempts,
            named=unit.definition.notify_on_failure,
        )
        attempts = f" (after {counted(run.attempt, 'failed attempt')})" if run.attempt else ""
        more = " A retry follows." if again else ""
        body = f"Run {run.id}: {verdict.text}{attempts}.{more}{_started_by(run)}"
        self._raise_notification(
            change, fact, f"{unit.name} {_TITLES.get(kind, 'failed')}", body, run_id=run.id, listed=not again
        )

    def _succeeded(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        unit = run.unit
        name, body = unit.name, f"Run {run.id}: {verdict.text}.{_started_by(run)}"
        if unit.failed_attempts:
            failures, unit.failures, unit.failed_attempts = unit.failures, 0, 0
            self._count(unit, change)
            fact = _about(notification_kinds.RUN_RECOVERED, unit, unit.definition.notify_on_failure)
            before = f"{counted(failures, 'run')} failed before it"
            text = f"{body} {before}." if failures else body
            self._raise_notification(change, fact, f"{name} has recovered", text, run_id=run.id, listed=failures > 0)
        self._tell_success(run, verdict, change)

    def _tell_success(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        named = run.unit.definition.notify_on_success
        if named or self._reports_success:
            fact = _about(notification_kinds.RUN_SUCCEEDED, run.unit, named)
            body = f"Run {run.id}: {verdict.text}.{_started_by(run)}"
            self._raise_notification(change, fact, f"{run.unit.name} succeeded", body, run_id=run.id)

    @staticmethod
    def _count(unit: Unit, change: Change) -> None:
        numbers = {"failures": unit.failures, "failed_attempts": unit.failed_attempts}
        change.write(lambda db: update_task(db, unit.name, **numbers))

    def run_refused(self, run: LiveRun, reason: str, change: Change, missed_count: int | None = None) -> None:
        """Report scheduled instants that had no run; refused runs with other triggers are not reported."""
        fate = _MISSED_REASONS.get(reason)
        if fate is None or run.trigger != "cron":
            return
        named = run.unit.task.notify_on_missed if run.unit.task is not None else ()
        fact = _about(notification_kinds.RUN_MISSED, run.unit, named)
        when = "" if run.scheduled_at is None else f" {stamp(run.scheduled_at)}"
        subject = f"{missed_count} scheduled times" if missed_count else f"The scheduled time{when}"
        self._raise_notification(change, fact, f"{run.unit.name} did not run", f"{subject} {fate}.", run_id=run.id)

    def run_slow(self, run: LiveRun, limit_ms: int, change: Change) -> None:
        """Report a run that exceeds ``max_duration_alert``."""
        text = (
            f"Run {run.id} has been active for more than {format_duration(limit_ms)}. It continues.{_started_by(run)}"
        )
        self._about_live(notification_kinds.RUN_SLOW, run, f"{run.unit.name} is taking too long", text, change)

    def run_silent(self, run: LiveRun, limit_ms: int, change: Change) -> None:
        """Report a run without output for ``silence_alert``."""
        text = f"Run {run.id} has printed nothing for {format_duration(limit_ms)}. It continues.{_started_by(run)}"
        self._about_live(notification_kinds.RUN_SILENT, run, f"{run.unit.name} is silent", text, change)

    def _about_live(self, kind: str, run: LiveRun, title: str, text: str, change: Change) -> None:
        fact = _about(kind, run.unit, run.unit.definition.notify_on_failure)
        self._raise_notification(change, fact, title, text, run_id=run.id)

    def daemon_restarted(self, change: Change, *, orderly: bool) -> None:
        """Report that the daemon restarted; `orderly`: after a shutdown, not after a crash."""
        how = (
            "It was shut down before." if orderly else "It was not shut down before: it crashed, or the host went down."
        )
        fact = RoutedEvent(kind=notification_kinds.DAEMON_RESTARTED, severity="info" if orderly else "warn")
        self._raise_notification(change, fact, "The daemon was restarted", how)

    def deliveries_lost(self, notifier: str, number: int, reason: str, change: Change) -> None:
        """Report messages that a notifier could not deliver, through the other notifiers."""
        fact = RoutedEvent(kind=notification_kinds.DELIVERY_FAILED, severity="error", without=notifier)
        text = f"{counted(number, 'message')} could not be delivered by {notifier}: {reason}."
        self._raise_notification(change, fact, f"Notifier {notifier} cannot deliver", text)

    def service_fatal(self, unit: Unit, instance: ServiceInstance, run_id: str | None, change: Change) -> None:
        """Report that an instance became fatal."""
        times = f" {instance.failures} times in a row" if instance.failures > 1 else ""
        text = f"Instance {instance.index} failed{times}. No more restarts."
        fact = _about(notification_kinds.SERVICE_FATAL, unit, unit.definition.notify_on_failure)
        self._raise_notification(change, fact, f"{unit.name} is down", text, run_id=run_id)

    def service_recovered(self, unit: Unit, since: int, change: Change) -> None:
        """Report that all instances of a service are healthy again."""
        fact = _about(notification_kinds.SERVICE_RECOVERED, unit, unit.definition.notify_on_failure)
        text = f"It was down for {format_duration((change.now_ms - since) // 1000 * 1000)}."
        self._raise_notification(change, fact, f"{unit.name} is back", text)

    def service_flapping(self, unit: Unit, instance: ServiceInstance, run_id: str, change: Change) -> None:
        """Report that an instance keeps failing, too rarely to become fatal."""
        service = unit.service
        if service is None:
            return
        fact = _about(notification_kinds.SERVICE_FLAPPING, unit, service.notify_on_failure)
        number, window = len(instance.failed_ends), format_duration(service.flap_window_ms)
        text = f"Instance {instance.index} failed {number} times within {window}. It is restarted each time."
        self._raise_notification(change, fact, f"{unit.name} is flapping", text, run_id=run_id)

    def service_stable(self, unit: Unit, since: int, change: Change) -> None:
        """Report that a flapping service has not failed for ``flap_window``."""
        service = unit.service
        if service is None:
            return
        fact = _about(notification_kinds.SERVICE_STABLE, unit, service.notify_on_failure)
        lasted = format_duration((change.now_ms - since) // 1000 * 1000)
        text = f"No failure for {format_duration(service.flap_window_ms)}. It was flapping for {lasted}."
        self._raise_notification(change, fact, f"{unit.name} is stable again", text)

    def rolling_failed(self, unit: Unit, instance: ServiceInstance, roll: RollingRestart, change: Change) -> None:
        """Report a rolling restart that ended early."""
        fact = _about(notification_kinds.SERVICE_ROLLING, unit)
        text = f"Instance {roll.index} is {instance.state.shown}{roll.rest()}."
        self._raise_notification(change, fact, f"The rolling restart of {unit.name} failed", text)

    def log_dropping(self, run: LiveRun, reason: str, change: Change) -> None:
        """Report that output of a run is dropped."""
        fact = _about(notification_kinds.LOG_DISK_PRESSURE, run.unit)
        text = f"The log of run {run.id} accepts no output: {reason}."
        self._raise_notification(change, fact, f"Output of {run.unit.name} is dropped", text, run_id=run.id)

    def config_stale(self, config: Config, change: Change) -> None:
        """Report that the files of the configuration, or the host's time zone, changed since the last reload."""
        title = "The configuration has changed"
        text = f"{config.path}, or a file that it includes, was edited. Reload to apply the change."
        if not has_same_zone(config):
            title = "The time zone of the host has changed"
            text = f"It is no longer {config.host_zone}. Commands use the new one now; schedules use it after a reload."
        self._report(change, notification_kinds.CONFIG_STALE, title, text)

    def database_failing(self, reason: str, change: Change) -> None:
        """Report that the database cannot be written."""
        self._report(change, notification_kinds.DATABASE_FAILING, "The database cannot be written", reason)

    def database_restored(self, text: str, change: Change, title: str) -> None:
        """Report that the database or its files were restored."""
        self._report(change, notification_kinds.DATABASE_RESTORED, title, text)

    def disk_full(self, reason: str, change: Change) -> None:
        """Report that the disk has no room for the reserve of the database."""
        self._report(change, notification_kinds.DISK_FULL, "The disk is full", reason)

    def disk_recovered(self, directory: str, change: Change) -> None:
        """Report that the disk has room for the reserve again."""
        text = f"The disk of {directory} has room for the reserve of the database again."
        self._report(change, notification_kinds.DISK_RECOVERED, "The disk has room again", text)

    def memory(self, change: Change, *, short: bool) -> None:
        """Report that the supervisor is out of memory, or has memory again."""
        if short:
            text = "The daemon is out of memory. Active runs continue; new runs wait."
            self._report(change, notification_kinds.MEMORY_SHORT, "Out of memory", text)
        else:
            text = "The daemon has memory again. Waiting runs start."
            self._report(change, notification_kinds.MEMORY_RECOVERED, "Memory is available again", text)

    def tasks_silent(self, silent: Sequence[tuple[str, int]], change: Change) -> None:
        """Report tasks, as (name, next start in ms), that wait until a clock that was set back catches up."""
        listed = "".join(f"\n{name} runs again at {stamp(at)}." for name, at in silent[:_SILENT_LISTED])
        more = len(silent) - _SILENT_LISTED
        more_line = f"\n{counted(more, 'more task')}: ringward status." if more > 0 else ""
        text = f"No scheduled time runs twice, so {counted(len(silent), 'task')} will not run until then:"
        self._report(
            change,
            notification_kinds.CLOCK_SET_BACK,
            "The clock was set back, and tasks are waiting for it",
            text + listed + more_line,
        )

    def clock_doubted(self, step_ms: int, until_ms: int, change: Change) -> None:
        """Report a step of the clock by more than a day; removals ignore it until `until_ms`."""
        where = "forward" if step_ms > 0 else "back"
        text = (
            f"It was set {where} by {abs(step_ms) // 86_400_000} days. Nothing is removed by age before"
            f" {stamp(until_ms)}. If the clock is right, run: ringward trust-clock."
        )
        self._report(change, notification_kinds.CLOCK_DOUBTED, "The clock was set by more than a day", text)

    def starts_wait(self, waiting: int, reason: str | None, change: Change) -> None:
        """Report that `waiting` runs cannot start because of a shortage, `reason`; None: none waits any more."""
        if reason is not None:
            text = f"{counted(waiting, 'run')} cannot start and wait: {reason}. Active runs continue."
            self._report(change, notification_kinds.STARTS_WAITING, "Runs cannot start", text)
        else:
            text = "All waiting runs have started."
            self._report(change, notification_kinds.STARTS_RECOVERED, "Runs start again", text)

    def export_failing(self, name: str, reason: str, behind: int, change: Change) -> None:
        """Report that an export has failed for ``alert_after``; `behind`: number of waiting lines."""
        waiting = f" {counted(behind, 'line')} waiting." if behind else ""
        self._report(change, notification_kinds.EXPORT_FAILING, f"Export {name} is failing", f"{reason}.{waiting}")

    def export_recovered(self, name: str, since: int, change: Change) -> None:
        """Report that an export delivers again, after it had failed since `since` (ms since the epoch)."""
        lasted = format_duration((change.now_ms - since) // 1000 * 1000)
        text = f"It failed for {lasted}. It now delivers all lines that are still in the logs."
        self._report(change, notification_kinds.EXPORT_RECOVERED, f"Export {name} works again", text)

    def _raise(self, db: Database, draft: Notification) -> Events:
        before = notifications.unread_count(db)
        stored = notifications.notify(
            db, draft, window_ms=self._settings.coalesce_window_ms, keep=self._settings.history_keep
        )
        event = "notification.created" if stored.id == draft.id else "notification.updated"
        return [(event, {"notification": _shown(stored)}), *_count(db, before)]


class _Mark(Arguments):
    id: str
    read: bool


class NotificationOperations:
    """Operations that mark notifications as read or unread."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    @operation(_Mark)
    def notification_mark(self, request: _Mark, reply: Reply) -> None:
        """Mark a notification as read or unread."""
        change = self._committer.change(unavailable(reply))
        pending = change.read(lambda db: notifications.get(db, request.id))

        def marked(db: Database) -> Events:
            before = notifications.unread_count(db)
            if not notifications.mark(db, request.id, change.now_ms if request.read else None):
                return []
            stored = notifications.get(db, request.id)
            if stored is None:
                return []
            return [("notification.updated", {"notification": _shown(stored)}), *_count(db, before)]

        change.announce_result(marked)
        unknown = refused(404, f"no such notification: {request.id}")
        pending.then(lambda notification: reply(unknown if notification is None else done()))
        self._committer.commit(change)

    @operation(Arguments)
    def notifications_read(self, _request: Arguments, reply: Reply) -> None:
        """Mark all notifications as read; one event announces it."""
        change = self._committer.change(unavailable(reply))

        def marked(db: Database) -> Events:
            before = notifications.unread_count(db)
            notifications.mark_all(db, change.now_ms)
            return _count(db, before)

        change.announce_result(marked)
        change.then(lambda: reply(done()))
        self._committer.commit(change)


def _about(kind: str, unit: Unit, named: tuple[str, ...] = ()) -> RoutedEvent:
    """Return an occurrence of a unit, with the severity of its kind, for the notifiers that the unit names."""
    return RoutedEvent(kind=kind, severity=notification_kinds.OF_KIND[kind], task=unit.name, named=named)


def _started_by(run: LiveRun) -> str:
    """Return a sentence that names the user who started a run, with a blank before it; empty for any other run."""
    return f" Started by {run.by}." if run.by else ""


def _count(db: Database, before: int) -> Events:
    now = notifications.unread_count(db)
    return [] if now == before else [("notification.unreadCountChanged", {"count": now})]


def _shown(stored: Notification) -> dict[str, object]:
    """Return a notification as the API shows it."""
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


def _delivery(draft: Notification, target: Target) -> Delivery:
    """Return the delivery of a notification through one notifier."""
    return Delivery(
        seq=0,
        notifier=target.notifier,
        kind=draft.kind,
        severity=draft.severity,
        title=title_of(draft.title),
        body=body_of(draft.body),
        task_name=draft.task_name,
        run_id=draft.run_id,
        created_at=draft.created_at,
        due_at=draft.created_at if target.until is None else target.until,
        held=target.until is not None,
        attempts=0,
    )
