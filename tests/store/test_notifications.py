from store import notifications
from store.database import Database
from store.notifications import (
    INCIDENT_DAYS,
    MOST_INCIDENTS,
    Notification,
    end_incident,
    public_incidents,
    publish_incident,
)
from store.runs.daily_outcomes import DAY_MS
from store.runs.ids import new_ulid
from tests.store.making import T0

HOUR_MS = 3_600_000


def draft(at: int = T0, kind: str = "run.failed", task: str | None = "a", body: str = "body") -> Notification:
    return Notification(new_ulid(at), kind, "error", "title", body, task, "R", 1, at, at)


def add(db: Database, notification: Notification, keep: int = 100) -> Notification:
    return notifications.notify(db, notification, window_ms=HOUR_MS, keep=keep)


def test_repeats(writer: Database, reader: Database) -> None:
    """A repeat of kind and task within the window is counted in one notification; a later one is new."""
    first = add(writer, draft())
    second = add(writer, draft(T0 + HOUR_MS - 1, body="other"))
    assert second == first._replace(times=2, body="other", last_occurred_at=T0 + HOUR_MS - 1)
    third = add(writer, draft(T0 + HOUR_MS))
    assert (third.times, third.id != first.id) == (1, True)
    assert notifications.page(reader, 10) == [third, second]
    assert notifications.get(reader, first.id) == second


def test_repeats_after_the_clock_was_set_back(writer: Database) -> None:
    """An occurrence after the clock was set back is no repeat of a notification with a later time."""
    later = add(writer, draft(T0 + 48 * HOUR_MS))
    first = add(writer, draft(T0))
    assert (first.times, first.id != later.id) == (1, True)
    assert add(writer, draft(T0 + 1)).id == first.id


def test_repeat_moves_to_the_top(writer: Database, reader: Database) -> None:
    """A repeat moves a notification to the top, and each page continues after the previous one."""
    for number, kind in enumerate(("a", "b", "c", "a", "d", "b")):
        add(writer, draft(T0 + number, kind=kind))
    whole = notifications.page(reader, 10)
    assert [notification.kind for notification in whole] == ["b", "d", "a", "c"]
    assert [notification.last_occurred_at - T0 for notification in whole] == [5, 4, 3, 2]
    first = notifications.page(reader, 2)
    assert first + notifications.page(reader, 10, before=first[-1].id) == whole


def test_distinct_notifications(writer: Database, reader: Database) -> None:
    """Another kind, another task or no task makes a separate notification."""
    for new_draft in (draft(), draft(kind="other"), draft(task="b"), draft(task=None)):
        assert add(writer, new_draft).times == 1
    assert add(writer, draft(task=None)).times == 2
    assert len(notifications.page(reader, 10)) == 4


def test_mark_read_and_unread(writer: Database, reader: Database) -> None:
    """Marking as read or unread says whether anything changed; a repeated notification is unread again."""
    first, other = add(writer, draft()), add(writer, draft(kind="other"))
    assert notifications.unread_count(reader) == 2
    assert notifications.mark(writer, first.id, T0 + 5)
    assert not notifications.mark(writer, first.id, T0 + 6)
    assert notifications.get(reader, first.id) == first._replace(read_at=T0 + 5)
    assert notifications.unread_count(reader) == 1
    assert notifications.mark(writer, first.id, None)
    assert not notifications.mark(writer, first.id, None)
    assert not notifications.mark(writer, "unknown", T0)
    assert notifications.mark_all(writer, T0 + 7) == 2
    assert notifications.mark_all(writer, T0 + 8) == 0
    assert notifications.unread_count(reader) == 0
    assert add(writer, draft(T0 + 9)).read_at is None
    assert notifications.unread_count(reader) == 1
    assert notifications.get(reader, other.id) == other._replace(read_at=T0 + 7)


def test_pages(writer: Database, reader: Database) -> None:
    """Notifications are listed newest first and from any id, even that of a removed one."""
    made = [add(writer, draft(T0 + number, kind=f"k{number}")) for number in range(7)]
    newest = made[::-1]
    first = notifications.page(reader, 3)
    assert first == newest[:3]
    assert notifications.page(reader, 3, first[-1].id) == newest[3:6]
    writer.execute("DELETE FROM notifications WHERE id = ?", [newest[3].id])
    assert notifications.page(reader, 10, newest[3].id) == newest[4:]


def test_order_by_last_occurrence(writer: Database, reader: Database) -> None:
    """Notifications are ordered by their last occurrence across pages."""
    old, middle, new = (add(writer, draft(T0 + number, kind=f"k{number}")) for number in range(3))
    again = add(writer, draft(T0 + 9, kind="k0"))
    assert again.id == old.id
    assert notifications.page(reader, 2) == [again, new]
    assert notifications.page(reader, 2, new.id) == [middle]
    assert notifications.page(reader, 3, again.id) == [new, middle]


def test_limit_of_notifications(writer: Database, reader: Database) -> None:
    """A limited number of notifications is kept, the newest ones."""
    made = [add(writer, draft(T0 + number, kind=f"k{number}"), keep=5) for number in range(12)]
    assert notifications.page(reader, 100) == made[:-6:-1]


def test_one_open_incident_for_each_unit(writer: Database) -> None:
    """Another note changes the open incident; after its end, a note opens the next one."""
    publish_incident(writer, "web", "slow", T0)
    publish_incident(writer, "api", "down", T0 + 1)
    publish_incident(writer, "web", "slower", T0 + 2)
    end_incident(writer, "web", T0 + 3)
    end_incident(writer, "web", T0 + 4)
    publish_incident(writer, "web", "again", T0 + 5)
    assert [(one.task_name, one.text, one.started_at, one.ended_at) for one in public_incidents(writer)] == [
        ("web", "slower", T0, T0 + 3),
        ("api", "down", T0 + 1, None),
        ("web", "again", T0 + 5, None),
    ]


def test_old_incidents_are_dropped(writer: Database) -> None:
    """Ended incidents are kept for 90 days, and of all only the newest."""
    publish_incident(writer, "web", "old", T0)
    end_incident(writer, "web", T0)
    publish_incident(writer, "api", "open", T0)
    publish_incident(writer, "job", "new", T0 + INCIDENT_DAYS * DAY_MS)
    assert [one.text for one in public_incidents(writer)] == ["open", "new"]
    for number in range(MOST_INCIDENTS):
        publish_incident(writer, f"unit-{number}", "many", T0 + INCIDENT_DAYS * DAY_MS)
    assert {one.text for one in public_incidents(writer)} == {"many"}
    assert len(public_incidents(writer)) == MOST_INCIDENTS
