"""Notifications: the list, the count, marking, and the stream."""

from typing import Any

import pytest

from store import notifications
from store.notifications import Notification
from store.runs.ids import new_ulid
from tests.api.support.client import Stream
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import now_ms

PATH = "/api/notifications"


def make(daemon: Daemon, kind: str = "run.failed", task: str | None = "job", **fields: Any) -> Notification:
    now = now_ms()
    draft = Notification(new_ulid(), kind, "error", "title", "body", task, None, 1, now, now, **fields)
    with daemon.lock:
        return notifications.notify(daemon.db, draft, window_ms=0, keep=1000)


def ids(daemon: Daemon, query: str = "") -> list[str]:
    return [item["id"] for item in daemon.get(PATH + query).json["items"]]


def test_notification(daemon: Daemon) -> None:
    """A notification has exactly the fields with values."""
    made = make(daemon)
    notification = daemon.get(f"{PATH}?limit=1").json["items"][0]
    assert notification == {
        "id": made.id,
        "kind": "run.failed",
        "severity": "error",
        "title": "title",
        "body": "body",
        "taskName": "job",
        "count": 1,
        "createdAt": notification["createdAt"],
        "lastOccurredAt": notification["createdAt"],
    }
    plain = make(daemon, task=None)
    assert "taskName" not in daemon.get(f"{PATH}?limit=1").json["items"][0]
    with daemon.lock:
        notifications.mark(daemon.db, plain.id, 1000)
    assert daemon.get(f"{PATH}?limit=1").json["items"][0]["readAt"] == "1970-01-01T00:00:01.000Z"


def test_pages(own: Daemon) -> None:
    """Pages are newest first, with 50 entries by default; the cursor leads through all of them and is then absent."""
    made = [make(own).id for _ in range(60)][::-1]
    assert ids(own) == made[:50]
    assert ids(own, "?limit=500") == made
    seen: list[str] = []
    query = "?limit=20"
    for _ in range(3):
        page = own.get(PATH + query).json
        seen += [item["id"] for item in page["items"]]
        query = f"?limit=20&before={page.get('nextCursor')}"
    assert seen == made
    assert "nextCursor" not in page


@pytest.mark.parametrize("query", ["?limit=0", "?limit=501", "?before=x", "?after=1"])
def test_invalid_parameters(daemon: Daemon, query: str) -> None:
    """An invalid parameter gets 422 that names it."""
    answer = daemon.get(PATH + query)
    assert answer.status == 422
    assert answer.json["errors"][0]["location"] == f"query.{query[1:].partition('=')[0]}"


def test_unread_count(own: Daemon) -> None:
    """The count includes only unread notifications."""
    assert own.get(f"{PATH}/unreadCount").json["count"] == 0
    made = [make(own) for _ in range(3)]
    with own.lock:
        notifications.mark(own.db, made[0].id, 1)
    assert own.get(f"{PATH}/unreadCount").json["count"] == 2


def test_marking(daemon: Daemon) -> None:
    """The scheduler marks notifications, and has done so when the answer arrives."""
    made = make(daemon)
    for verb, read in (("read", True), ("unread", False)):
        assert daemon.ask("POST", f"{PATH}/{made.id}/{verb}").status == 204
        assert daemon.scheduler.calls[-1] == ("notification_mark", {"id": made.id, "read": read})
    assert daemon.ask("POST", f"{PATH}/read").status == 204
    assert daemon.scheduler.calls[-1][0] == "notifications_read"


def test_unknown_notification(daemon: Daemon) -> None:
    """An unknown notification gets 404, and an invalid id 422."""

    def unknown(_arguments: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(404, "there is no such notification")

    daemon.scheduler.operations["notification_mark"] = unknown
    assert daemon.ask("POST", f"{PATH}/{new_ulid()}/read").status == 404
    answer = daemon.ask("POST", f"{PATH}/nothing/unread")
    assert (answer.status, answer.json["errors"][0]["location"]) == (422, "path.notificationId")


def test_without_a_scheduler(own: Daemon) -> None:
    """Without a scheduler, the list works, but marking does not."""
    made = make(own)
    own.scheduler.stop()
    try:
        assert ids(own) == [made.id]
        assert own.ask("POST", f"{PATH}/read").status == 503
    finally:
        own.scheduler.start()


def opened(daemon: Daemon, last: int | None = None) -> Stream:
    stream = daemon.stream(f"{PATH}/stream", {} if last is None else {"Last-Event-ID": str(last)})
    assert stream.response.readline() == b"retry: 1000\n"
    return stream


def announce(daemon: Daemon, made: Notification, kind: str = "notification.created") -> None:
    daemon.announce(
        kind,
        notification={
            "id": made.id,
            "kind": made.kind,
            "severity": "error",
            "title": "t",
            "body": "b",
            "count": 1,
            "createdAt": "2026-11-21T00:00:00.000Z",
            "lastOccurredAt": "2026-11-21T00:00:00.000Z",
        },
    )


def test_stream(daemon: Daemon) -> None:
    """The stream has only events about notifications, and can be resumed like the stream of all events."""
    made = make(daemon)
    stream = opened(daemon)
    announce(daemon, made)
    daemon.announce("run.created", runId="R")
    announce(daemon, made, "notification.updated")
    daemon.announce("notification.unreadCountChanged", count=4)
    accepted = stream.take(3)
    stream.close()
    assert [event.name for event in accepted] == [
        "notification.created",
        "notification.updated",
        "notification.unreadCountChanged",
    ]
    assert accepted[0].data["notification"]["id"] == made.id
    assert accepted[2].data["count"] == 4
    assert accepted[0].id is not None
    again = opened(daemon, accepted[0].id)
    assert [event.id for event in again.take(2)] == [event.id for event in accepted[1:]]
    again.close()
