"""Notifications: their causes and contents."""

from collections.abc import Callable
from typing import Any

from store import events, notifications
from store.notifications import Notification
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.notifications.notifications import NotificationOperations
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of

Make = Callable[[str], Bench]
FAILED = 3 << 8
RETRIED = '[tasks.t]\nrun = "false"\nretry_attempts = 1\nretry_delay = "1ms"\n'


def notified(harness: Bench) -> list[Notification]:
    harness.store.work_all()
    return notifications.page(harness.store.database, 100)


def announced(harness: Bench) -> list[tuple[str, dict[str, Any]]]:
    """Return the events about notifications."""
    events_found = events.since(harness.store.database, 0)
    return [(event.kind, event.body) for event in events_found if event.kind.startswith("notification")]


def fail(harness: Bench, status: int = FAILED, cause: str | None = None, by: str | None = None) -> str:
    run = harness.trigger("t", by)
    harness.store.work_all()
    harness.started(run.id)
    harness.exited(run.id, status=status, cause=cause)
    return run.id


def test_failed_run(bench: Make) -> None:
    """A failure without retries is reported at once; successes and stops are not."""
    harness = bench('[tasks.t]\nrun = "false"\n')
    fail(harness, 0)
    fail(harness, cause="stop")
    fail(harness, cause="shutdown")
    assert notified(harness) == []
    run_id = fail(harness)
    (notification,) = notified(harness)
    assert (notification.kind, notification.severity, notification.task_name, notification.run_id) == (
        "run.failed",
        "error",
        "t",
        run_id,
    )
    assert "exit code 3" in notification.body
    assert [kind for kind, _ in announced(harness)] == ["notification.created", "notification.unreadCountChanged"]
    assert announced(harness)[0][1]["notification"]["id"] == notification.id
    assert announced(harness)[1][1] == {"count": 1}


def test_user_who_started_the_run(bench: Make) -> None:
    """Notifications about a run, its retries and its recovery name the user who started it."""
    harness = bench(
        f'[[routes]]\nmatch = {{ kinds = ["run.succeeded"] }}\nnotify = "n"\n[notifiers.n]\nurl = "json://localhost"\n{RETRIED}'
    )
    fail(harness, by="user alice")
    (again,) = harness.units["t"].waiting.values()
    harness.engine.end_wait(again)
    harness.store.work_all()
    harness.started(again.id)
    harness.exited(again.id, status=FAILED)
    fail(harness, 0, by="token ci")
    bodies = {notification.kind: notification.body for notification in notified(harness)}
    assert set(bodies) == {"run.failed", "run.recovered", "run.succeeded"}
    assert bodies["run.failed"].endswith("(after 1 failed attempt). Started by user alice.")
    assert "succeeded. Started by token ci." in bodies["run.recovered"]
    assert bodies["run.succeeded"].endswith("succeeded. Started by token ci.")
    fail(harness, 0)
    assert "Started by" not in notified(harness)[0].body


def test_timeout(bench: Make) -> None:
    """A timeout is reported as a failure."""
    harness = bench('[tasks.t]\nrun = "false"\ntimeout = "1s"\n')
    fail(harness, cause="timeout")
    (notification,) = notified(harness)
    assert "timed out" in notification.body


def test_only_the_last_attempt(bench: Make) -> None:
    """Only the last failed attempt sends a notification."""
    harness = bench(RETRIED)
    fail(harness)
    assert notified(harness) == []
    (again,) = harness.units["t"].waiting.values()
    harness.engine.end_wait(again)
    harness.store.work_all()
    harness.started(again.id)
    harness.exited(again.id, status=FAILED)
    (notification,) = notified(harness)
    assert notification.run_id == again.id
    assert "(after 1 failed attempt)" in notification.body


def test_repeats(bench: Make) -> None:
    """A repeated failure updates the count of the first notification and does not change the unread count."""
    harness = bench('[tasks.t]\nrun = "false"\n')
    fail(harness)
    last = fail(harness)
    (notification,) = notified(harness)
    assert (notification.times, notification.run_id) == (2, last)
    assert [kind for kind, _ in announced(harness)][2:] == ["notification.updated"]
    assert announced(harness)[2][1]["notification"]["count"] == 2


def test_no_coalescing(bench: Make) -> None:
    """With coalesce_window = 0 each failure has its own notification, and history_keep bounds their number."""
    harness = bench('[notify]\ncoalesce_window = "0s"\nhistory_keep = 3\n[tasks.t]\nrun = "false"\n')
    ids = [fail(harness) for _ in range(5)]
    assert [notification.run_id for notification in notified(harness)] == ids[:1:-1]


def test_fatal_service(bench: Make) -> None:
    """A service is reported once, when it becomes fatal, and not again when a new scheduler finds it fatal."""
    harness = bench('[services.s]\nrun = "false"\nrestart_attempts = 0\n')
    change = harness.committer.change()
    harness.controller.start(harness.units["s"], change)
    harness.committer.commit(change)
    harness.store.work_all()
    (run,) = harness.units["s"].active.values()
    harness.started(run.id)
    harness.exited(run.id, status=FAILED)
    (notification,) = notified(harness)
    assert (notification.kind, notification.severity, notification.task_name, notification.run_id) == (
        "service.fatal",
        "error",
        "s",
        run.id,
    )
    change = harness.committer.change()
    harness.controller.report(harness.units["s"], harness.units["s"].instances[0], change)
    harness.committer.commit(change)
    assert notified(harness) == [notification]


def answer_to(harness: Bench, op: str, **arguments: Any) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    units = UnitOperations(
        harness.core,
        harness.engine.stop,
        harness.controller,
        ScheduledStarts(harness.core, harness.engine),
        harness.units,
    )
    operations_of(NotificationOperations(harness.core), units)[op](arguments, answers.append)
    harness.store.work_all()
    (answer,) = answers
    return answer


def test_mark_as_read(bench: Make) -> None:
    """Marking as read or unread is stored, and announced only if it changes something; an unknown id gets 404."""
    harness = bench('[tasks.t]\nrun = "false"\n')
    fail(harness)
    (notification,) = notified(harness)
    before = len(announced(harness))
    assert answer_to(harness, "notification_mark", id=notification.id, read=True)["ok"]
    assert answer_to(harness, "notification_mark", id=notification.id, read=True)["ok"]
    (marked,) = notified(harness)
    assert marked.read_at is not None
    (updated, counted) = announced(harness)[before:]
    assert (updated[0], "readAt" in updated[1]["notification"]) == ("notification.updated", True)
    assert counted == ("notification.unreadCountChanged", {"count": 0})
    assert answer_to(harness, "notification_mark", id=notification.id, read=False)["ok"]
    assert notified(harness)[0].read_at is None
    assert answer_to(harness, "notifications_read")["ok"]
    assert notifications.unread_count(harness.store.database) == 0
    assert announced(harness)[-1] == ("notification.unreadCountChanged", {"count": 0})
    assert answer_to(harness, "notification_mark", id="0" * 26, read=True)["status"] == 404


def test_schedule_operation(bench: Make) -> None:
    """The schedule operation lists the next instants of a task, and refuses services and unknown names."""
    harness = bench(
        '[tasks.t]\nrun = "true"\ncron = "0 3 * * *"\n[tasks.n]\nrun = "true"\n[services.s]\nrun = "true"\n'
    )
    answer = answer_to(harness, "schedule", task="t", count=3)
    items = answer["result"]["items"]
    assert len(items) == 3
    assert all("T03:00:00" in local for _, local, _, _ in items)
    assert items[0][0] < items[1][0] < items[2][0]
    assert answer_to(harness, "schedule", task="n", count=3)["result"] == {
        "items": [],
        "calendars": [],
        "params": [],
        "runs": [],
        "windows": [],
        "deadlines": [],
    }
    assert answer_to(harness, "schedule", task="s", count=3)["status"] == 409
    assert answer_to(harness, "schedule", task="x", count=3)["status"] == 404
