"""Notifications for people, and incidents for the public.

Repeats within a time window share one notification, which counts them. Incidents are the notes of acknowledgements that
their authors made public, for the status page. They are one JSON value of the daemon, because they are few.
"""

from typing import NamedTuple

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from store.daemon_values import get_meta, set_meta
from store.database import Database
from store.runs.daily_outcomes import DAY_MS

INCIDENT_DAYS = 90
"""Number of days for which an incident is kept after its end."""
MOST_INCIDENTS = 200
"""Maximum number of incidents; the oldest are dropped first."""
_INCIDENTS = "public incidents"


class Notification(NamedTuple):
    """A notification; times in ms since the epoch.

    Attributes:
        id: ULID; newer ones are greater.
        kind: Its subject, such as "run.failed".
        severity: "info", "warn" or "error".
        run_id: The run of the latest occurrence.
        times: Number of occurrences.
        read_at: When a user marked it as read; None if it is unread.
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


def notify(db: Database, draft: Notification, *, window_ms: int, keep: int, stays_read: bool = False) -> Notification:
    """Store an occurrence; return the notification that reports it.

    This is a new notification, or one of the same kind and task that was created less than `window_ms` ago. The latter
    gets the text of the draft and a higher count, and becomes unread again unless `stays_read`.

    Args:
        db: A writer.
        draft: The notification to store if it is new.
        window_ms: Time for which repeats are counted.
        keep: Total number of notifications to keep; older ones are removed.
        stays_read: Whether a repeat of a notification that was read stays read.
    """
    earlier = db.row(
        f"SELECT {_COLUMNS} FROM notifications WHERE kind = ? AND task_name IS NOT DISTINCT FROM ?"  # noqa: S608 - constants
        " AND created_at > ? AND created_at <= ? ORDER BY created_at DESC, id DESC LIMIT 1",
        # Later ones are from a clock that was set back; all occurrences until then would count as their repeats.
        [draft.kind, draft.task_name, draft.created_at - window_ms, draft.created_at],
    )
    if earlier is None:
        db.execute(_INSERT, list(draft))
        # Remove the notifications with the oldest ids, which were created first.
        db.execute(
            "DELETE FROM notifications WHERE id <= (SELECT id FROM notifications ORDER BY id DESC LIMIT 1 OFFSET ?)",
            [keep],
        )
        return draft
    previous = Notification(*earlier)
    raised = draft._replace(
        id=previous.id,
        times=previous.times + 1,
        created_at=previous.created_at,
        read_at=previous.read_at if stays_read else None,
    )
    db.execute(
        "UPDATE notifications SET severity = ?, title = ?, body = ?, run_id = ?, times = ?, last_occurred_at = ?,"
        " read_at = ? WHERE id = ?",
        [
            raised.severity,
            raised.title,
            raised.body,
            raised.run_id,
            raised.times,
            raised.last_occurred_at,
            raised.read_at,
            raised.id,
        ],
    )
    return raised


def page(db: Database, limit: int, before: str | None = None) -> list[Notification]:
    """Return at most `limit` notifications, latest first; with `before`, continue after the notification with that id.

    If that notification has been deleted, return the notifications that were created before it.
    """
    newest = f"SELECT {_COLUMNS} FROM notifications {{}} ORDER BY last_occurred_at DESC, id DESC LIMIT ?"  # noqa: S608 - constants
    if before is None:
        rows = db.rows(newest.format(""), [limit])
    else:
        position = db.row("SELECT last_occurred_at FROM notifications WHERE id = ?", [before])
        behind = "id < ?" if position is None else "(last_occurred_at, id) < (?, ?)"
        rows = db.rows(newest.format(f"WHERE {behind}"), [*(position or ()), before, limit])
    return [Notification(*row) for row in rows]


def get(db: Database, notification_id: str) -> Notification | None:
    """Return the notification with this id; None if there is none."""
    row = db.row(f"SELECT {_COLUMNS} FROM notifications WHERE id = ?", [notification_id])  # noqa: S608 - constants
    return None if row is None else Notification(*row)


def unread_count(db: Database) -> int:
    """Return the number of unread notifications."""
    row = db.row("SELECT count(*) FROM notifications INDEXED BY notifications_unread WHERE read_at IS NULL")
    return int(row[0]) if row else 0


def mark(db: Database, notification_id: str, read_at: int | None) -> bool:
    """Mark a notification as read at a time, or as unread (None); return whether that changed anything."""
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
    """Mark all unread notifications as read; return their number."""
    return db.execute("UPDATE notifications SET read_at = ? WHERE read_at IS NULL", [read_at])


class PublicIncident(Struct, frozen=True, kw_only=True):
    """A failure that the public may read about; times are in milliseconds since the epoch."""

    task_name: str
    text: str
    started_at: int
    """When it was made public, not when the unit failed."""
    ended_at: int | None = None
    """When the unit was healthy again, or the acknowledgement was withdrawn; None: it is open."""


def public_incidents(db: Database) -> list[PublicIncident]:
    """Return all incidents, oldest first."""
    return convert(get_meta(db, _INCIDENTS, []), list[PublicIncident])


def publish_incident(db: Database, task_name: str, text: str, now_ms: int) -> None:
    """Open an incident, or change the text of the open one."""
    incidents = public_incidents(db)
    for index, incident in enumerate(incidents):
        if incident.task_name == task_name and incident.ended_at is None:
            incidents[index] = replace(incident, text=text)
            break
    else:
        incidents.append(PublicIncident(task_name=task_name, text=text, started_at=now_ms))
    _store_incidents(db, incidents, now_ms)


def end_incident(db: Database, task_name: str, now_ms: int) -> None:
    """End the open incident of a unit, if there is one."""
    incidents = public_incidents(db)
    ended = [
        replace(incident, ended_at=now_ms)
        if incident.task_name == task_name and incident.ended_at is None
        else incident
        for incident in incidents
    ]
    if ended != incidents:
        _store_incidents(db, ended, now_ms)


def _store_incidents(db: Database, incidents: list[PublicIncident], now_ms: int) -> None:
    kept = [one for one in incidents if one.ended_at is None or one.ended_at > now_ms - INCIDENT_DAYS * DAY_MS]
    set_meta(db, _INCIDENTS, to_builtins(kept[-MOST_INCIDENTS:]))
