"""The outbox delivers stored messages, and retries until they succeed or are a day old.

The store keeps each message until it is delivered or dropped. Memory only tells which notifiers are busy or pausing.
Each notifier gets one message at a time, which keeps messages in order. During an outage it makes one attempt every
half minute. If the result of a delivery cannot be stored, the message is delivered again.
"""

import os
import socket
from collections.abc import Callable, Sequence
from functools import partial

from logring.log_paths import log_path, ring_path
from store import deliveries
from store.deliveries import Delivery, DeliveryStatus
from supervisor.config.model import Config
from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.ipc.notification_kinds import DELIVERY_FAILED
from supervisor.ipc.plural import counted
from supervisor.scheduler.control.socket_operation import Arguments, Reply, done, operation, refused, unavailable
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.notifications.notifications import TOO_MANY
from supervisor.scheduler.notifications.notifier_client import NotifierClient
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


class _Name(Arguments):
    name: str


class Outbox:
    """Delivers messages through the notifiers of the configuration.

    Args:
        notifier_client: sends messages.
        on_lost: called when messages are dropped, with notifier, number, reason, and the change to add to.
    """

    def __init__(
        self,
        loop: Loop,
        boot: DaemonSettings,
        committer: Committer,
        notifier_client: NotifierClient,
        log: Log,
        *,
        on_lost: OnLost,
    ) -> None:
        self._loop = loop
        self._boot = boot
        self._committer = committer
        self._notifier_client = notifier_client
        self._on_lost = on_lost
        self._log = log
        self._site: str | None = None
        self._zone = ""
        self._urls: dict[str, str] = {}
        self._host = socket.gethostname()
        self._busy: set[str] = set()
        self._resting: dict[str, float] = {}
        """When the pause of a notifier ends, on the monotonic clock."""
        self._timer: Timer | None = None
        self._looking = False
        self._again = False

    def start(self, config: Config, *, first: bool) -> None:
        """Resume deliveries; `first`: also retry failed messages of an earlier daemon at once."""
        self._site = config.http.external_url
        self._zone = config.daemon.timezone
        self._urls = {name: notifier.url for name, notifier in config.notifiers.items()}
        with self._committer.changing() as change:
            if first:
                change.write(lambda db: deliveries.make_due(db, change.now_ms))
            self._forget_others(change)
        self.send_due()

    def configure(self, config: Config) -> None:
        """Apply a new configuration; the messages of notifiers with a new URL are tried at once."""
        self._site = config.http.external_url
        self._zone = config.daemon.timezone
        urls = {name: notifier.url for name, notifier in config.notifiers.items()}
        changed = [name for name, url in urls.items() if self._urls.get(name) != url]
        with self._committer.changing() as change:
            for name in changed:
                self._resting.pop(name, None)
                change.write(partial(deliveries.make_due, now_ms=change.now_ms, notifier=name))
            if self._urls.keys() - urls.keys():
                self._forget_others(change)
            self._urls = urls
        self.send_due()

    def _forget_others(self, change: Change) -> None:
        names = set(self._urls)

        def stored(dropped: int) -> None:
            if dropped:
                self._log.warning(f"dropped {counted(dropped, 'notification')} for removed notifiers")

        change.read(lambda db: deliveries.forget_others(db, names)).then(stored)

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
        if self._looking:
            self._again = True
            return
        now_s = self._loop.now_s()
        self._resting = {name: until for name, until in self._resting.items() if until > now_s}
        without = self._busy | self._resting.keys()
        if without >= self._urls.keys():  # the next result, or the end of a pause, checks again
            self._wait(None)
            return
        self._looking, self._again = True, False
        room = max(0, _AT_ONCE - len(self._busy))

        def send(result: tuple[list[list[Delivery]], int | None]) -> None:
            self._looking = False
            sendable, next_due = result
            for delivery in sendable:
                self._send(delivery)
            self._wait(next_due)
            if self._again:
                self.send_due()

        with self._committer.changing() as change:
            due = change.read(
                lambda db: (deliveries.due_messages(db, change.now_ms, without, room), deliveries.next_due(db, without))
            )
            due.then(send)

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

    def _send(self, together: Sequence[Delivery]) -> None:
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
            paths = self._paths(task, run_id)
        request = _request(f"{name}/{together[0].seq}", url, text, *paths)
        self._notifier_client.send(request, lambda result: self._was_sent(url, together, result))

    def _paths(self, task: str, run_id: str) -> tuple[str, str]:
        return ring_path(self._boot.runtime_dir, run_id), log_path(self._boot.data_dir, task, run_id)

    def _was_sent(self, url: str, together: Sequence[Delivery], result: DeliveryResult) -> None:
        name = together[0].notifier

        def stored() -> None:
            self._busy.discard(name)
            self.send_due()

        with self._committer.changing() as change:
            now_ms = change.now_ms
            if result.error is None:
                self._resting.pop(name, None)
                change.write(lambda db: deliveries.delivered(db, name, [delivery.seq for delivery in together], now_ms))
                change.write(lambda db: deliveries.make_due(db, now_ms, name))
            elif self._urls.get(name) == url:
                self._has_failed(name, together, result, change)
            # Otherwise the address has changed meanwhile: the messages are still due, and go to the new one.
            change.then(stored)

    def _has_failed(self, name: str, together: Sequence[Delivery], result: DeliveryResult, change: Change) -> None:
        now_ms, reason = change.now_ms, result.error or ""
        retry_after_ms = result.retry_after_ms or 0
        self._resting[name] = self._loop.now_s() + max(_REST_MS, retry_after_ms) / 1000
        due, lost = {}, []
        for delivery in together:
            delay_ms = max(_DELAYS_MS[min(delivery.attempts, len(_DELAYS_MS) - 1)], retry_after_ms)
            if now_ms + delay_ms > delivery.created_at + _MAX_AGE_MS and delivery.attempts:
                lost.append(delivery.seq)
            else:
                due[delivery.seq] = now_ms + delay_ms
        self._log.warning(f"the notifier {name} cannot deliver: {reason}")
        if due:
            change.write(lambda db: deliveries.failed(db, name, due, reason, now_ms))
        if lost:
            dropped = counted(len(lost), "notification")
            self._log.error(f"the notifier {name}: dropped {dropped} after a day of failures")
            change.write(lambda db: deliveries.give_up(db, name, lost, reason, now_ms))
            if any(delivery.kind != DELIVERY_FAILED for delivery in together if delivery.seq in lost):
                self._on_lost(name, len(lost), reason, change)

    # Requests of users.

    @operation(Arguments)
    def notifiers(self, _request: Arguments, reply: Reply) -> None:
        """Answer with the delivery status of each notifier, without its URL, which may contain secrets."""
        names = sorted(self._urls)

        def answer(statuses: dict[str, DeliveryStatus]) -> None:
            nothing = DeliveryStatus("", None, None, None, 0, 0)
            reply(done(items=[statuses.get(name, nothing)._replace(name=name)._asdict() for name in names]))

        with self._committer.changing(unavailable(reply)) as change:
            change.read(deliveries.standings).then(answer)

    @operation(_Name)
    def notifier_test(self, request: _Name, reply: Reply) -> None:
        """Send a test message through a notifier once, and answer with the result."""
        url = self._urls.get(request.name)
        if url is None:
            reply(refused(404, f'No notifier named "{request.name}"'))
            return
        key = f"{request.name}/test/{os.urandom(8).hex()}"
        self._notifier_client.send(
            _request(key, url, trial_message(request.name, self._host)), lambda result: reply(done(error=result.error))
        )


def _request(key: str, url: str, text: Message, ring: str | None = None, file: str | None = None) -> DeliveryRequest:
    return DeliveryRequest(
        key=key, url=url, title=text.title, body=text.body, footer=text.footer, type=text.type, ring=ring, file=file
    )
