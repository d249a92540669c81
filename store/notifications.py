"""Notifications for people. Repeats within a window are one notification that counts them."""

from typing import NamedTuple

from store.database import Database


class Notification(NamedTuple):
    """A notification; times in ms since the epoch.

    Attributes:
        id: ULID; newer ones are greater.
        kind: Its subject, such as "run.failed".
        severity: "info", "warn" or "error".
        run_id: The run that it occurred with last.
        times: How often it occurred.
        read_at: When a user marked it as read; None: unread.
    """

    id: str
    kind: str
    severity: str
    title: str
    body: str
    task_name: str | None
    run_id: str | None
    times: int
    created_at: int
    last_occurred_at: int
    read_at: int | None = None


_COLUMNS = ", ".join(Notification._fields)
_INSERT = f"INSERT INTO notifications ({_COLUMNS}) VALUES ({', '.join('?' * len(Notification._fields))})"  # noqa: S608 - constants


def notify(db: Database, draft: Notification, *, window_ms: int, keep: int) -> Notification:
    """Store that something occurred; returns the notification that tells of it now.

    That is a new notification, or one of the same kind and task created less than `window_ms` before. The latter gets
    the text of the draft, one more count, and is unread again.

    Args:
        db: A writer.
        draft: As a new one would be.
        window_ms: How long repeats are counted.
        keep: How many notifications are kept in all, the newest.
    """
    earlier = db.row(
        f"SELECT {_COLUMNS} FROM notifications WHERE kind = ? AND task_name IS NOT DISTINCT FROM ? AND created_at > ?"  # noqa: S608 - constants
        " ORDER BY created_at DESC, id DESC LIMIT 1",
        [draft.kind, draft.task_name, draft.created_at - window_ms],
    )
    if earlier is None:
        db.execute(_INSERT, list(draft))
        # Not by their number: the oldest ids, which are the first created.
        db.execute(
            "DELETE FROM notifications WHERE id <= (SELECT id FROM notifications ORDER BY id DESC LIMIT 1 OFFSET ?)",
            [keep],
        )
        return draft
    known = Notification(*earlier)
    raised = draft._replace(id=known.id, times=known.times + 1, created_at=known.created_at)
    db.execute(
        "UPDATE notifications SET severity = ?, title = ?, body = ?, run_id = ?, times = ?, last_occurred_at = ?,"
        " read_at = NULL WHERE id = ?",
        [raised.severity, raised.title, raised.body, raised.run_id, raised.times, raised.last_occurred_at, raised.id],
    )
    return raised


def page(db: Database, limit: int, before: str | None = None) -> list[Notification]:
    """Return the latest notifications, newest first; with `before`, only notifications older than that id.

    If that notification has been deleted, return the notifications that were created before it.
    """
    newest = f"SELECT {_COLUMNS} FROM notifications {{}} ORDER BY last_occurred_at DESC, id DESC LIMIT ?"  # noqa: S608 - constants
    if before is None:
        rows = db.rows(newest.format(""), [limit])
    else:
        found = db.row("SELECT last_occurred_at FROM notifications WHERE id = ?", [before])
        behind = "id < ?" if found is None else "(last_occurred_at, id) < (?, ?)"
        rows = db.rows(newest.format(f"WHERE {behind}"), [*(found or ()), before, limit])
    return [Notification(*row) for row in rows]


def get(db: Database, notification_id: str) -> Notification | None:
    """One notification, or None."""
    row = db.row(f"SELECT {_COLUMNS} FROM notifications WHERE id = ?", [notification_id])  # noqa: S608 - constants
    return None if row is None else Notification(*row)


def unread_count(db: Database) -> int:
    """Return the number of unread notifications."""
    row = db.row("SELECT count(*) FROM notifications INDEXED BY notifications_unread WHERE read_at IS NULL")
    return int(row[0]) if row else 0


def mark(db: Database, notification_id: str, read_at: int | None) -> bool:
    """Mark one as read at a time, or as unread; returns whether that changed anything."""
    if read_at is None:
        return (
            db.execute(
                "UPDATE notifications SET read_at = NULL WHERE id = ? AND read_at IS NOT NULL", [notification_id]
            )
            > 0
        )
    return (
        db.execute("UPDATE notifications SET read_at = ? WHERE id = ? AND read_at IS NULL", [read_at, notification_id])
        > 0
    )


def mark_all(db: Database, read_at: int) -> int:
    """Mark all that are unread as read; returns how many."""
    return db.execute("UPDATE notifications SET read_at = ? WHERE read_at IS NULL", [read_at])
