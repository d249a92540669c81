"""Raises notifications as part of the changes that they report.

One transaction stores the change, the notification and its deliveries, so a crash cannot separate them.
:mod:`supervisor.ipc.notification_kinds` lists the kinds.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from store import deliveries, notifications
from store.database import Database
from store.deliveries import Delivery
from store.notifications import Notification, end_incident, publish_incident
from store.runs.ids import new_ulid
from store.tasks import update_task
from supervisor.config.files.stamps import has_same_zone
from supervisor.config.model import Config, Task
from supervisor.config.value_types.durations import format_duration, format_roughly
from supervisor.host.zones import zone_named
from supervisor.ipc import notification_kinds
from supervisor.ipc.log_line import stamp
from supervisor.ipc.plural import counted
from supervisor.schedule.windows import Windows
from supervisor.scheduler.control.control_socket import Answer, Arguments, RequestEntry, done, operation, refused
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change, Events
from supervisor.scheduler.loop.procedures import Procedure
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
}
"""The reason why an instant had no run, by end reason."""
_SILENT_LISTED = 10
_TITLES = {notification_kinds.RUN_TIMEOUT: "timed out", notification_kinds.RUN_CRASHED: "crashed"}


class Notifications:
    """Raises notifications; each method reports one kind of occurrence."""

    def __init__(
        self,
        config: Config,
        on_queued: Callable[[dict[str, int]], None] = lambda _lost: None,
        windows: Windows | None = None,
    ) -> None:
        """`on_queued` is called after deliveries are stored, with the number of dropped messages by notifier."""
        self._windows = windows or Windows()
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
            change.announce_result(partial(self._raise, draft=draft, day_began_ms=fact.day_began_ms))
        if not self._notifiers:
            return
        held = None if fact.task is None else self._windows.holding(fact.task, change.now_ms)
        reached = targets(fact, self._routes, self._zone, change.now_ms, None if held is None else held[1])
        sent_to = [target for target in reached if target.notifier in self._notifiers]
        if sent_to or fact.kind in notification_kinds.RECOVERIES:
            change.read(self._queue, draft, sent_to, None if held is None else held[0]).then(self._queued)

    def _queued(self, dropped: dict[str, int] | None) -> None:
        if dropped is not None:
            self._on_queued(dropped)

    def _queue(
        self, db: Database, draft: Notification, sent_to: Sequence[Target], held_since: int | None
    ) -> dict[str, int] | None:
        """Store deliveries; return the number of dropped messages by notifier, or None if there was no delivery.

        `held_since`: when the window opened that holds them; None: none does.
        Dropped reports about lost deliveries are not counted: each report would otherwise cause the next one.
        """
        settings, task = self._settings, draft.task_name or ""
        over = notification_kinds.RECOVERIES.get(draft.kind)
        notified = set() if over is None else deliveries.end_of_trouble(db, over, task, draft.created_at, held_since)
        lost: dict[str, int] | None = None
        for target in sent_to:
            if target.only_if_notified and target.notifier not in notified:
                continue
            if over is None and not self._is_news(db, draft, target, held=held_since is not None):
                continue
            deliveries.add(db, _delivery(draft, target), settings.digest_ms)
            lost = {} if lost is None else lost
            dropped = deliveries.overflow(db, target.notifier, MOST_WAITING)
            if dropped:
                if draft.kind != notification_kinds.DELIVERY_FAILED:
                    lost[target.notifier] = dropped
                deliveries.count_lost(db, target.notifier, dropped, TOO_MANY, draft.created_at)
        return lost

    def _is_news(self, db: Database, draft: Notification, target: Target, *, held: bool) -> bool:
        """Record that a notifier is told; return whether that is no repeat."""
        task, now_ms = draft.task_name or "", draft.created_at
        if target.unacked and target.until is not None:
            return deliveries.note_unacked(db, target.notifier, draft.kind, task, now_ms, target.until)
        if held and target.until is not None:
            return deliveries.note_held(db, target.notifier, draft.kind, task, now_ms, target.until)
        window_ms = self._settings.coalesce_window_ms
        return deliveries.note_notification(db, target.notifier, draft.kind, task, now_ms, window_ms)

    def run_ended(self, run: LiveRun, verdict: Verdict, change: Change, *, will_retry: bool) -> None:
        """Report a run that ended without a stop request; `will_retry`: a retry follows.

        Failed runs of services are not reported here, but as crash loops or flapping. The step of a flow is reported
        only by its own keys: its flow reports what failed in it.
        """
        definition = run.definition
        if verdict.succeeded and isinstance(definition, Task):
            end_public_incident(run.unit, change)
        notifies = bool(definition.notify_on_failure or definition.notify_on_success)
        if isinstance(definition, Task) and definition.flow is not None and not notifies:
            return
        if not isinstance(definition, Task):
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
        if verdict.why is not None:
            self._about_run(notification_kinds.RUN_SHORT, run, f"{name} was too quick", body, change)
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
        change.write(update_task, unit.name, **numbers)

    def run_refused(
        self,
        run: LiveRun,
        reason: str,
        change: Change,
        missed_count: int | None = None,
        cause: str | None = None,
        requested_at: int | None = None,
    ) -> None:
        """Report scheduled or requested times that had no run; runs that were refused when requested are not reported.

        A time that an overlap skips is no alarm: the list counts those of a task and a local day as one.
        """
        task, fate = run.unit.task, _MISSED_REASONS.get(reason)
        if task is None or (run.trigger != "cron" and requested_at is None):
            return
        at = run.scheduled_at if requested_at is None else requested_at
        when = "" if at is None else f" {stamp(at)}"
        if reason == "skipped" and cause is None:
            text = f"The scheduled time{when} was skipped: another run was active or waiting."
            kind, day_began_ms = notification_kinds.RUN_SKIPPED, _start_of_day(task.timezone, change.now_ms)
            fact = RoutedEvent(
                kind=kind, severity=notification_kinds.OF_KIND[kind], task=task.name, day_began_ms=day_began_ms
            )
            self._raise_notification(change, fact, f"{task.name} skipped a scheduled time", text, run_id=run.id)
        if fate is None:
            return
        fact = _about(notification_kinds.RUN_MISSED, run.unit, task.notify_on_missed)
        subject = f"{missed_count} scheduled times" if missed_count else f"The scheduled time{when}"
        self._raise_notification(change, fact, f"{run.unit.name} did not run", f"{subject} {fate}.", run_id=run.id)

    def gate_closed(self, run: LiveRun, reasons: str, change: Change) -> None:
        """Report a scheduled run that did not start, because other tasks had not succeeded."""
        unit = run.unit
        fact = _about(notification_kinds.RUN_GATE_CLOSED, unit, unit.definition.notify_on_failure)
        when = "" if run.scheduled_at is None else f" {stamp(run.scheduled_at)}"
        text = f"The scheduled time{when} was skipped. These tasks had not succeeded: {reasons}."
        self._raise_notification(change, fact, f"{unit.name} waited in vain", text)

    def approval_needed(self, run: LiveRun, names: list[str], until: int, change: Change) -> None:
        """Report a run that waits for an approval: of one of `names`, or of any operator if there are none."""
        who = f" by {' or '.join(names)}" if names else ""
        text = f"Run {run.id} waits for approval{who}, until {stamp(until)} at the latest.{_started_by(run)}"
        self._about_run(notification_kinds.RUN_APPROVAL, run, f"{run.unit.name} waits for approval", text, change)

    def run_slow(self, run: LiveRun, limit_ms: int, usual_ms: int | None, change: Change) -> None:
        """Report a run that exceeds ``max_duration_alert``, or by far the usual duration of its task."""
        limit = format_duration(limit_ms)
        if usual_ms is not None:
            limit = f"{format_roughly(limit_ms)}, and its task usually takes {format_roughly(usual_ms)}"
        text = f"Run {run.id}: active for more than {limit}. It continues.{_started_by(run)}"
        self._about_run(notification_kinds.RUN_SLOW, run, f"{run.unit.name} is taking too long", text, change)

    def run_silent(self, run: LiveRun, limit_ms: int, change: Change) -> None:
        """Report a run without output for ``silence_alert``."""
        text = f"Run {run.id}: no output for {format_duration(limit_ms)}. It continues.{_started_by(run)}"
        self._about_run(notification_kinds.RUN_SILENT, run, f"{run.unit.name} is silent", text, change)

    def task_late(self, unit: Unit, deadline: int, text: str, change: Change) -> None:
        """Report that the work of a scheduled time was not done by its deadline; `text` says what the task does."""
        fact = _about(notification_kinds.TASK_LATE, unit, unit.definition.notify_on_failure)
        title = f"{unit.name} is late"
        self._raise_notification(change, fact, title, f"It was to be done by {unit.schedule.local(deadline)}.{text}")

    def task_on_time(self, run: LiveRun, deadline: int, change: Change) -> None:
        """Report that a run did the work that was late."""
        fact = _about(notification_kinds.TASK_ON_TIME, run.unit, run.unit.definition.notify_on_failure)
        late = format_roughly(max(0, change.now_ms - deadline))
        text = f"Run {run.id} succeeded, {late} after {run.unit.schedule.local(deadline)}."
        self._raise_notification(change, fact, f"{run.unit.name} is done", text, run_id=run.id)

    def task_failing(self, run: LiveRun, failures: int, runs: int, since: int | None, change: Change) -> None:
        """Report that too many of a task's last runs failed or, with the time `since` when they did, that few do."""
        text = f"{failures} of the last {counted(runs, 'run')} failed."
        if since is None:
            self._about_run(notification_kinds.TASK_FAILING, run, f"{run.unit.name} fails often", text, change)
        else:
            lasted = format_roughly(change.now_ms - since)
            text = f"{text} It failed too often for {lasted}."
            self._about_run(notification_kinds.TASK_STEADY, run, f"{run.unit.name} is steady again", text, change)

    def _about_run(self, kind: str, run: LiveRun, title: str, text: str, change: Change) -> None:
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
        reason = "" if instance.line is None else f" ({instance.line})"
        text = f"Instance {instance.index} failed{times}{reason}. No more restarts."
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

    def restart_failed(self, unit: Unit, instance: ServiceInstance, run_id: str, reason: str, change: Change) -> None:
        """Report that the next run of an instance did not become ready, so that the present one continues."""
        fact = _about(notification_kinds.SERVICE_RESTART_FAILED, unit, unit.definition.notify_on_failure)
        text = f"The next process of instance {instance.index} did not replace the present one: {reason}."
        self._raise_notification(change, fact, f"{unit.name} was not restarted", text, run_id=run_id)

    def rolling_failed(self, unit: Unit, instance: ServiceInstance, roll: RollingRestart, change: Change) -> None:
        """Report a rolling restart that ended early."""
        fact = _about(notification_kinds.SERVICE_ROLLING, unit)
        text = f"Instance {roll.index} is {instance.state.shown}{roll.rest()}."
        self._raise_notification(change, fact, f"The rolling restart of {unit.name} failed", text)

    def log_refused(self, run_id: str, run: LiveRun | None, fate: str, reason: str, change: Change) -> None:
        """Report that output of a run waits or is dropped (`fate`); None: the run has ended."""
        kind = notification_kinds.LOG_DISK_PRESSURE
        fact = (
            RoutedEvent(kind=kind, severity=notification_kinds.OF_KIND[kind]) if run is None else _about(kind, run.unit)
        )
        title = f"Output {'of an ended run' if run is None else f'of {run.unit.name}'} {fate}"
        text = f"Run {run_id}: its log accepts no output: {reason}."
        self._raise_notification(change, fact, title, text, run_id=run_id)

    def rings_displaced(self, text: str, change: Change) -> None:
        """Report that rings cannot be created in the runtime directory."""
        self._report(change, notification_kinds.LOG_DISK_PRESSURE, "The runtime directory has no room", f"{text}.")

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

    def _raise(self, db: Database, draft: Notification, day_began_ms: int | None) -> Events:
        before, settings, daily = notifications.unread_count(db), self._settings, day_began_ms is not None
        window_ms = settings.coalesce_window_ms if day_began_ms is None else draft.created_at - day_began_ms + 1
        stored = notifications.notify(db, draft, window_ms=window_ms, keep=settings.history_keep, stays_read=daily)
        event = "notification.created" if stored.id == draft.id else "notification.updated"
        return [(event, {"notification": _shown(stored)}), *_count(db, before)]


class _Mark(Arguments):
    id: str
    read: bool


class NotificationOperations:
    """Operations that mark notifications as read or unread."""

    def __init__(self, core: Core) -> None:
        self._committer = core.committer

    @operation(_Mark)
    def notification_mark(self, request: _Mark, entry: RequestEntry) -> Procedure[Answer]:
        """Mark a notification as read or unread."""
        change = self._committer.change()
        pending = change.read(notifications.get, request.id)
        entry.record(change, lambda: None if pending.result is None else "")
        change.announce_result(partial(_marked, request, change.now_ms))
        yield self._committer.stored_or_refused(change)
        return refused(404, f"no such notification: {request.id}") if pending.result is None else done()

    @operation(Arguments)
    def notifications_read(self, _request: Arguments, entry: RequestEntry) -> Procedure[Answer]:
        """Mark all notifications as read; one event announces it."""
        change = self._committer.change()
        entry.record(change)
        change.announce_result(partial(_all_marked, change.now_ms))
        yield self._committer.stored_or_refused(change)
        return done()


def _marked(request: _Mark, now_ms: int, db: Database) -> Events:
    before = notifications.unread_count(db)
    if not notifications.mark(db, request.id, now_ms if request.read else None):
        return []
    stored = notifications.get(db, request.id)
    if stored is None:
        return []
    return [("notification.updated", {"notification": _shown(stored)}), *_count(db, before)]


def _all_marked(now_ms: int, db: Database) -> Events:
    before = notifications.unread_count(db)
    notifications.mark_all(db, now_ms)
    return _count(db, before)


def _start_of_day(zone: str, now_ms: int) -> int:
    """Return when the present day began in a time zone, in milliseconds since the epoch."""
    local = datetime.fromtimestamp(now_ms / 1000, zone_named(zone))
    return int(local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).timestamp()) * 1000


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
        held=target.until is not None and not target.unacked,
        attempts=0,
    )


def publish_note(unit: Unit, text: str, change: Change) -> None:
    """Show `text` on the status page until the unit is healthy again."""
    unit.has_public_incident = True
    change.write(publish_incident, unit.name, text, change.now_ms)


def end_public_incident(unit: Unit, change: Change) -> None:
    """End the open incident of a unit, if there is one."""
    if unit.has_public_incident:
        unit.has_public_incident = False
        change.write(end_incident, unit.name, change.now_ms)
