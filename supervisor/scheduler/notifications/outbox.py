"""The outbox delivers stored messages, and retries until they succeed or are a day old.

The store keeps each message until it is delivered or dropped. Memory only tells which notifiers are busy or pausing.
Each notifier gets one message at a time, which keeps messages in order. During an outage it makes one attempt every
half minute. If the result of a delivery cannot be stored, the message is delivered again.
"""

import os
import socket
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import asdict

from logring.log_paths import log_path, ring_path
from store import deliveries
from store.database import Database
from store.deliveries import Delivery, DeliveryStatus
from supervisor.config.daemon_tables import Route
from supervisor.config.model import Config
from supervisor.ipc.backoff import backoff
from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult
from supervisor.ipc.notification_kinds import DELIVERY_FAILED, ENDED_WITH
from supervisor.ipc.plural import counted
from supervisor.scheduler.control.control_socket import Answer, Arguments, RequestEntry, done, operation, refused
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifications import TOO_MANY
from supervisor.scheduler.notifications.notifier_client import NotifierClient
from supervisor.scheduler.notifications.routes import repeat_ms
from supervisor.scheduler.notifications.wording import Message, message, trial_message

_DELAYS_MS = (30_000, 120_000, 600_000, 3_600_000)
"""Delay before each further attempt of a message; the last delay repeats."""
_REST_MS = 30_000
"""Minimum pause of a notifier after a failure."""
_MAX_AGE_MS = 86_400_000
_AT_ONCE = 4
_LONGEST_MS = 60_000.0
"""Maximum time between checks while messages wait: they are due by the wall clock, which can be set."""

OnLost = Callable[[str, int, str, Change], None]


class _Test(Arguments):
    name: str
    long: bool = False


class Outbox:
    """Delivers messages through the notifiers of the configuration.

    Args:
        notifier_client: sends messages.
        on_lost: called when messages are dropped, with notifier, number, reason, and the change to add to.
    """

    def __init__(
        self,
        core: Core,
        notifier_client: NotifierClient,
        *,
        on_lost: OnLost,
    ) -> None:
        self._loop = core.loop
        self._settings = core.daemon.settings
        self._committer = core.committer
        self._procedures = core.procedures
        self._log = core.log
        self._notifier_client = notifier_client
        self._on_lost = on_lost
        self._site: str | None = None
        self._zone = ""
        self._routes: tuple[Route, ...] = ()
        self._urls: dict[str, str] = {}
        self._host = socket.gethostname()
        self._busy: set[str] = set()
        self._resting: dict[str, float] = {}
        """When the pause of a notifier ends, on the monotonic clock."""
        self._working: set[str] = set()
        """Notifiers that have delivered a message, and since then have failed only because of single messages."""
        self._timer: Timer | None = None
        self._looking = False
        self._again = False

    def start(self, config: Config, *, first: bool) -> None:
        """Resume deliveries; `first`: also retry failed messages of an earlier daemon at once."""
        self._site = config.http.external_url
        self._zone = config.daemon.timezone
        self._routes = config.routes
        self._urls = {name: notifier.url for name, notifier in config.notifiers.items()}
        with self._committer.changing() as change:
            if first:
                change.write(deliveries.make_due, change.now_ms)
            self._forget_others(change)
        self.send_due()

    def configure(self, config: Config) -> None:
        """Apply a new configuration; the messages of notifiers with a new URL are tried at once."""
        self._site = config.http.external_url
        self._zone = config.daemon.timezone
        self._routes = config.routes
        urls = {name: notifier.url for name, notifier in config.notifiers.items()}
        changed = [name for name, url in urls.items() if self._urls.get(name) != url]
        with self._committer.changing() as change:
            for name in changed:
                self._resting.pop(name, None)
                change.write(deliveries.make_due, now_ms=change.now_ms, notifier=name)
            if self._urls.keys() - urls.keys():
                self._forget_others(change)
            self._urls = urls
        self.send_due()

    def _forget_others(self, change: Change) -> None:
        names = set(self._urls)
        change.read(deliveries.forget_others, names).then(self._forgotten)

    def _forgotten(self, dropped: int) -> None:
        if dropped:
            self._log.warning(f"dropped {counted(dropped, 'notification')} for removed notifiers")

    def queued(self, lost: dict[str, int]) -> None:
        """Deliver new messages; `lost`: number of messages by notifier that were dropped because too many waited."""
        if lost:
            with self._committer.changing() as change:
                for name, number in lost.items():
                    self._log.error(f"the notifier {name}: dropped {counted(number, 'notification')}, {TOO_MANY}")
                    self._on_lost(name, number, TOO_MANY, change)
        self.send_due()

    # One check at a time: send due messages, and set the timer for the next check.

    def send_due(self) -> None:
        """Send due messages; must be called after a message is stored."""
        self._again = True
        if not self._looking:
            self._procedures.start(self._look())

    def _look(self) -> Procedure[None]:
        self._looking = True
        while self._again:
            self._again = False
            now_s = self._loop.now_s()
            self._resting = {name: until for name, until in self._resting.items() if until > now_s}
            without = self._busy | self._resting.keys()
            if without >= self._urls.keys():  # the next result, or the end of a pause, checks again
                self._wait(None)
                continue
            change = self._committer.change()
            due = change.read(_due, now_ms=change.now_ms, without=without, room=_AT_ONCE - len(self._busy))
            yield self._committer.stored(change)
            sendable, next_due = due.result
            for together in sendable:
                self._procedures.start(self._deliver(together))
            self._wait(next_due)
        self._looking = False

    def _wait(self, next_due: int | None) -> None:
        """Set the timer for the next due message or the end of a pause."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waits = [(until - self._loop.now_s()) * 1000 for until in self._resting.values()]
        if next_due is not None:
            delay_ms = next_due - self._loop.now_ms()
            # A message that is due but was not sent waits for a delivery to finish, which checks again.
            waits += [delay_ms] if delay_ms > 0 else []
        if waits:
            self._timer = self._loop.after(min(_LONGEST_MS, max(1.0, min(waits))), self.send_due)

    # One message, or several together.

    def _deliver(self, together: Sequence[Delivery]) -> Procedure[None]:
        """Send a message, or several together, and store the result."""
        name = together[0].notifier
        url = self._urls.get(name)
        if url is None:  # a reload removed the notifier
            return
        self._busy.add(name)
        text = message(together, site=self._site, host=self._host, zone=self._zone)
        run_id, task = together[0].run_id, together[0].task_name
        single = len(together) == 1 and not together[0].held
        paths: tuple[str | None, str | None] = (None, None)
        if single and run_id is not None and task is not None:
            paths = ring_path(self._settings.runtime_dir, run_id), log_path(self._settings.data_dir, task, run_id)
        request = _request(f"{name}/{together[0].seq}", url, text, *paths)
        result: DeliveryResult = yield self._notifier_client.sent(request)
        change = self._committer.change()
        now_ms = change.now_ms
        if result.error is None:
            # The rest of a list is still due, and follows at once.
            for delivery in together[: result.items or None]:
                if (again_ms := repeat_ms(delivery, self._routes)) is not None:
                    kinds = ENDED_WITH[delivery.kind]
                    change.write(deliveries.remind, delivery, kinds, now_ms, now_ms + again_ms)
            sent = [delivery.seq for delivery in together[: result.items or None]]
            change.write(deliveries.delivered, name, sent, now_ms)
            if name not in self._working:
                change.write(deliveries.make_due, now_ms, name)
            self._working.add(name)
        elif self._urls.get(name) == url:
            self._has_failed(name, together, result, change)
        # Otherwise the address has changed meanwhile: the messages are still due, and go to the new one.
        yield self._committer.stored(change)
        self._busy.discard(name)
        self.send_due()

    def _has_failed(self, name: str, together: Sequence[Delivery], result: DeliveryResult, change: Change) -> None:
        now_ms, reason = change.now_ms, result.error or ""
        retry_after_ms = result.retry_after_ms or 0
        if not result.refused:
            self._working.discard(name)
            self._resting[name] = self._loop.now_s() + max(_REST_MS, retry_after_ms) / 1000
        due, lost = {}, []
        for delivery in together:
            delay_ms = max(backoff(_DELAYS_MS, delivery.attempts), retry_after_ms)
            if now_ms + delay_ms > delivery.created_at + _MAX_AGE_MS and delivery.attempts:
                lost.append(delivery.seq)
            else:
                due[delivery.seq] = now_ms + int(delay_ms)
        self._log.warning(f"the notifier {name} cannot deliver: {reason}")
        if due:
            change.write(deliveries.failed, name, due, reason, now_ms)
        if lost:
            dropped = counted(len(lost), "notification")
            self._log.error(f"the notifier {name}: dropped {dropped} after a day of failures")
            change.write(deliveries.give_up, name, lost, reason, now_ms)
            if any(delivery.kind != DELIVERY_FAILED for delivery in together if delivery.seq in lost):
                self._on_lost(name, len(lost), reason, change)

    # Requests of users.

    @operation(Arguments)
    def notifiers(self, _request: Arguments, _entry: RequestEntry) -> Procedure[Answer]:
        """Answer with the delivery status of each notifier, without its URL, which may contain secrets."""
        change = self._committer.change()
        standings = change.read(deliveries.standings)
        yield self._committer.stored_or_refused(change)
        nothing = DeliveryStatus("", None, None, None, 0, 0)
        statuses = [standings.result.get(name, nothing)._replace(name=name) for name in sorted(self._urls)]
        return done(items=[status._asdict() for status in statuses])

    @operation(_Test)
    def notifier_test(self, request: _Test, _entry: RequestEntry) -> Procedure[Answer]:
        """Send a test message through a notifier once, and answer with the result."""
        url = self._urls.get(request.name)
        if url is None:
            return refused(404, f'No notifier named "{request.name}"')
        key = f"{request.name}/test/{os.urandom(8).hex()}"
        text = trial_message(request.name, self._host, long=request.long)
        result: DeliveryResult = yield self._notifier_client.sent(_request(key, url, text))
        return done(error=result.error)


def _due(db: Database, *, now_ms: int, without: Collection[str], room: int) -> tuple[list[list[Delivery]], int | None]:
    """Return up to `room` messages that are due, and when the next one is, both except for some notifiers."""
    return deliveries.due_messages(db, now_ms, without, max(0, room)), deliveries.next_due(db, without)


def _request(key: str, url: str, text: Message, ring: str | None = None, file: str | None = None) -> DeliveryRequest:
    return DeliveryRequest(key=key, url=url, ring=ring, file=file, **asdict(text))
