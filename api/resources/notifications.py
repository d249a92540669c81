"""Handlers for notifications and notifiers: lists, counts, marks, the stream, deliveries and test messages."""

from msgspec import UNSET, UnsetType

from api.auth.authentication import asked
from api.auth.identity import Role
from api.operations.operation import Call, Content, Operation, json_of
from api.operations.parameters import NOTIFICATION_ID, integer, shaped
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
from api.schemas.known_times import known_rfc3339
from api.schemas.records import Dropped
from api.schemas.wire_times import rfc3339
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


def list_notifications(context: Context, call: Call) -> None:
    """List a page of notifications, newest first."""
    limit: int = call.query["limit"]
    found = context.reads(store_notifications.page, limit + 1, call.query["before"])
    cursor: str | UnsetType = found[limit - 1].id if len(found) > limit else UNSET
    call.answer(Notifications(items=[_shown(one) for one in found[:limit]], next_cursor=cursor))


def count_unread(context: Context, call: Call) -> None:
    """Count the unread notifications."""
    call.answer(UnreadCount(count=context.reads(store_notifications.unread_count)))


def mark_read(context: Context, call: Call) -> None:
    """Mark a notification as read; without effect if it already is."""
    _mark(context, call, read=True)


def mark_unread(context: Context, call: Call) -> None:
    """Mark a notification as unread; without effect if it already is."""
    _mark(context, call, read=False)


def _mark(context: Context, call: Call, *, read: bool) -> None:
    notification_id = call.path["notificationId"]
    asked(lambda: context.control.call("notification_mark", id=notification_id, read=read))
    call.no_content()


def mark_all_read(context: Context, call: Call) -> None:
    """Mark all notifications as read."""
    asked(lambda: context.control.call("notifications_read"))
    call.no_content()


def stream_notifications(context: Context, call: Call) -> None:
    """Stream events about notifications from now on, or after Last-Event-ID."""
    send_events(call, lambda: EventsStream(context, call, frozenset(EVENTS)))


def list_notifiers(context: Context, call: Call) -> None:
    """List the configured notifiers, without their URLs."""
    found = asked(lambda: context.control.call("notifiers"))["items"]
    call.answer(
        Notifiers(
            items=[
                Notifier(
                    name=one["name"],
                    waiting=one["waiting"],
                    given_up=one["given_up"],
                    delivered_at=known_rfc3339(one["delivered_at"]),
                    failed_at=known_rfc3339(one["failed_at"]),
                    error=one["error"] or UNSET,
                )
                for one in found
            ]
        )
    )


def test_notifier(context: Context, call: Call) -> None:
    """Send a test message and wait for the result of its delivery."""
    name = call.path["notifierName"]
    error = asked(lambda: context.control.call_patiently("notifier_test", name=name))["error"]
    call.answer(Tried(delivered=error is None, error=error or UNSET))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/notifications",
        id="listNotifications",
        summary="List in-app notifications.",
        handler=list_notifications,
        query=(
            integer("limit", "Maximum number of notifications.", 50, minimum=1, maximum=500),
            shaped("before", "Only notifications older than this id.", NOTIFICATION_ID),
        ),
        answers={200: json_of(Notifications)},
        refusals=(422,),
        role=Role.VIEWER,
        tag="notifications",
    ),
    Operation(
        method="GET",
        path="/api/notifications/unreadCount",
        id="countUnreadNotifications",
        summary="Count the unread notifications.",
        handler=count_unread,
        answers={200: json_of(UnreadCount)},
        role=Role.VIEWER,
        tag="notifications",
    ),
    Operation(
        method="POST",
        path="/api/notifications/{notificationId}/read",
        id="markNotificationRead",
        summary="Mark one notification read.",
        handler=mark_read,
        answers={204: None},
        refusals=(404, 422, 503),
        role=Role.OPERATOR,
        tag="notifications",
    ),
    Operation(
        method="POST",
        path="/api/notifications/{notificationId}/unread",
        id="markNotificationUnread",
        summary="Mark one notification unread.",
        handler=mark_unread,
        answers={204: None},
        refusals=(404, 422, 503),
        role=Role.OPERATOR,
        tag="notifications",
    ),
    Operation(
        method="POST",
        path="/api/notifications/read",
        id="markAllNotificationsRead",
        summary="Mark every unread notification read.",
        handler=mark_all_read,
        answers={204: None},
        refusals=(503,),
        role=Role.OPERATOR,
        tag="notifications",
    ),
    Operation(
        method="GET",
        path="/api/notifications/stream",
        id="streamNotifications",
        summary="Stream created and updated notifications, with the event ids of /api/events/stream.",
        handler=stream_notifications,
        headers=(LAST_EVENT_ID,),
        answers={200: Content("text/event-stream", {**EVENTS, "dropped": Dropped})},
        refusals=(422,),
        role=Role.VIEWER,
        tag="notifications",
    ),
    Operation(
        method="GET",
        path="/api/notifiers",
        id="listNotifiers",
        role=Role.VIEWER,
        summary="List the configured notifiers and the state of their deliveries.",
        handler=list_notifiers,
        answers={200: json_of(Notifiers)},
        refusals=(503,),
        tag="notifications",
    ),
    Operation(
        method="POST",
        path="/api/notifiers/{notifierName}/test",
        id="testNotifier",
        role=Role.ADMIN,
        summary="Send a test message through a notifier and wait for the result.",
        handler=test_notifier,
        answers={200: json_of(Tried)},
        refusals=(404, 422, 503),
        tag="notifications",
    ),
)
