"""Handlers for notifications and notifiers: lists, counts, read marks, the stream, deliveries and test messages."""

from msgspec import UNSET, UnsetType

from api.auth.identity import Role
from api.operations.operation import Call, Content, Operation, json_of
from api.operations.parameters import NOTIFICATION_ID, flag, integer, shaped
from api.resources.runs.log_streams import LAST_EVENT_ID, send_events
from api.schemas.daemon_info import (
    Notification,
    NotificationEvent,
    Notifications,
    Notifier,
    Notifiers,
    Tried,
    UnreadCount,
    UnreadCountEvent,
)
from api.schemas.records import Dropped
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.streams.stream_content import EventsStream
from api.worker_context import Context
from store import notifications as store_notifications

EVENTS = {
    "notification.created": NotificationEvent,
    "notification.updated": NotificationEvent,
    "notification.unreadCountChanged": UnreadCountEvent,
}


def _shown(stored: store_notifications.Notification) -> Notification:
    return Notification(
        id=stored.id,
        kind=stored.kind,
        severity=stored.severity,
        title=stored.title,
        body=stored.body,
        task_name=stored.task_name or UNSET,
        run_id=stored.run_id or UNSET,
        count=stored.times,
        created_at=rfc3339(stored.created_at),
        last_occurred_at=rfc3339(stored.last_occurred_at),
        read_at=known_rfc3339(stored.read_at),
    )


@Operation(
    "GET",
    "/api/notifications",
    query=(
        integer("limit", "Maximum number of notifications.", 50, minimum=1, maximum=500),
        shaped("before", "Only notifications older than this id.", NOTIFICATION_ID),
    ),
    answers={200: json_of(Notifications)},
    role=Role.VIEWER,
    tag="notifications",
)
def list_notifications(context: Context, call: Call) -> None:
    """List in-app notifications."""
    limit: int = call.query["limit"]
    rows = context.reads(store_notifications.page, limit + 1, call.query["before"])
    cursor: str | UnsetType = rows[limit - 1].id if len(rows) > limit else UNSET
    call.answer(Notifications(items=[_shown(row) for row in rows[:limit]], next_cursor=cursor))


@Operation(
    "GET", "/api/notifications/unreadCount", answers={200: json_of(UnreadCount)}, role=Role.VIEWER, tag="notifications"
)
def count_unread_notifications(context: Context, call: Call) -> None:
    """Count the unread notifications."""
    call.answer(UnreadCount(count=context.reads(store_notifications.unread_count)))


@Operation("POST", "/api/notifications/{notificationId}/read", refusals=(404,), role=Role.OPERATOR, tag="notifications")
def mark_notification_read(context: Context, call: Call) -> None:
    """Mark one notification read.

    A notification that is already read stays as it is.
    """
    _mark(context, call, read=True)


@Operation(
    "POST", "/api/notifications/{notificationId}/unread", refusals=(404,), role=Role.OPERATOR, tag="notifications"
)
def mark_notification_unread(context: Context, call: Call) -> None:
    """Mark one notification unread.

    A notification that is already unread stays as it is.
    """
    _mark(context, call, read=False)


def _mark(context: Context, call: Call, *, read: bool) -> None:
    notification_id = call.path["notificationId"]
    context.command("notification_mark", call.entry(), id=notification_id, read=read)
    call.no_content()


@Operation("POST", "/api/notifications/read", role=Role.OPERATOR, tag="notifications")
def mark_all_notifications_read(context: Context, call: Call) -> None:
    """Mark every unread notification read."""
    context.command("notifications_read", call.entry())
    call.no_content()


@Operation(
    "GET",
    "/api/notifications/stream",
    headers=(LAST_EVENT_ID,),
    answers={200: Content("text/event-stream", {**EVENTS, "dropped": Dropped})},
    role=Role.VIEWER,
    tag="notifications",
)
def stream_notifications(context: Context, call: Call) -> None:
    """Stream created and updated notifications, with the event ids of /api/events/stream."""
    send_events(call, lambda: EventsStream(context, call, frozenset(EVENTS)))


@Operation("GET", "/api/notifiers", role=Role.VIEWER, answers={200: json_of(Notifiers)}, tag="notifications")
def list_notifiers(context: Context, call: Call) -> None:
    """List the configured notifiers and the state of their deliveries."""
    notifiers = context.command("notifiers")["items"]
    call.answer(
        Notifiers(
            items=[
                Notifier(
                    name=notifier["name"],
                    waiting=notifier["waiting"],
                    given_up=notifier["given_up"],
                    delivered_at=known_rfc3339(notifier["delivered_at"]),
                    failed_at=known_rfc3339(notifier["failed_at"]),
                    error=notifier["error"] or UNSET,
                )
                for notifier in notifiers
            ]
        )
    )


@Operation(
    "POST",
    "/api/notifiers/{notifierName}/test",
    query=(flag("long", "Add 20 lines of 300 characters, which are cut to what the service accepts."),),
    role=Role.ADMIN,
    answers={200: json_of(Tried)},
    refusals=(404,),
    tag="notifications",
)
def test_notifier(context: Context, call: Call) -> None:
    """Send a test message through a notifier and wait for the result."""
    name = call.path["notifierName"]
    error = context.patient_command("notifier_test", name=name, long=bool(call.query["long"]))["error"]
    call.answer(Tried(delivered=error is None, error=error or UNSET))
