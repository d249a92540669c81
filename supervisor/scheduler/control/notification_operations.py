"""Operations on notifications, notifiers and schedules."""

from typing import Any

from store import notifications
from store.deliveries import Standing
from supervisor.ipc.delivery_request import DeliveryResult
from supervisor.schedule.instants import upcoming
from supervisor.scheduler.control.control_socket import Operation, Reply, done, refused, unavailable
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.notifications.outbox import Outbox
from supervisor.scheduler.runs.live_units import Unit

Arguments = dict[str, Any]


class NotificationOperations:
    """Marks notifications and shows schedules."""

    def __init__(self, committer: Committer, units: dict[str, Unit], notices: Notifications) -> None:
        self._committer = committer
        self._units = units
        self._notifications = notices

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {
            "notification_mark": self.mark,
            "notifications_read": self.mark_all,
            "schedule": self.schedule,
        }

    def mark(self, arguments: Arguments, reply: Reply) -> None:
        """Mark a notification as read or unread."""
        notification_id: str = arguments["id"]
        change = self._committer.change(unavailable(reply))
        found = change.read(lambda db: notifications.get(db, notification_id))
        self._notifications.mark(change, notification_id, read=bool(arguments["read"]))
        unknown = refused(404, f"no such notification: {notification_id}")
        found.then(lambda notification: reply(unknown if notification is None else done()))
        self._committer.commit(change)

    def mark_all(self, _arguments: Arguments, reply: Reply) -> None:
        """Mark all notifications as read."""
        change = self._committer.change(unavailable(reply))
        self._notifications.mark_all(change)
        change.then(lambda: reply(done()))
        self._committer.commit(change)

    def schedule(self, arguments: Arguments, reply: Reply) -> None:
        """Answer with the next instants of a task and their daylight saving notes."""
        name: str = arguments["task"]
        unit = self._units.get(name)
        if unit is None:
            reply(refused(404, f'no task named "{name}"'))
        elif unit.task is None:
            reply(refused(409, f"{name} is a service and has no schedule"))
        else:
            now_ms = self._committer.change().now_ms
            found = upcoming(unit.schedule, unit.last_instant, now_ms, arguments["count"])
            reply(done(items=[list(instant) for instant in found]))


class NotifierOperations:
    """Shows and tests notifiers."""

    def __init__(self, committer: Committer, outbox: Outbox) -> None:
        self._committer = committer
        self._outbox = outbox

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"notifiers": self.show, "notifier_test": self.send_test}

    def show(self, _arguments: Arguments, reply: Reply) -> None:
        """Answer with the delivery status of each notifier, without its URL."""
        change = self._committer.change(unavailable(reply))
        names = self._outbox.names()

        def answer(found: dict[str, Standing]) -> None:
            nothing = Standing("", None, None, None, 0, 0)
            reply(done(items=[found.get(name, nothing)._replace(name=name)._asdict() for name in names]))

        self._outbox.standings(change, answer)
        self._committer.commit(change)

    def send_test(self, arguments: Arguments, reply: Reply) -> None:
        """Send a test message through a notifier, and answer with the result."""
        name: str = arguments["name"]

        def answer(result: DeliveryResult) -> None:
            reply(done(error=result.error))

        if not self._outbox.send_test(name, answer):
            reply(refused(404, f'No notifier named "{name}"'))
