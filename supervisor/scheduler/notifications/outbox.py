"""Delivering what is stored to be delivered: again and again, until it is there or too old.

The store has every message from the moment at which it was decided until it is delivered or given up; here is only
which notifiers are busy and which rest. One message at a time goes to each notifier, so their order stays, and an
outage costs one attempt every half minute. A message whose result could not be stored is delivered again.
"""

import os
import socket
from collections.abc import Callable, Sequence

from logring.paths import log_path, ring_path
from store import deliveries
from store.deliveries import Delivery, Standing
from supervisor.config.model import Config
from supervisor.config.notification_kinds import DELIVERY_FAILED
from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.notifications.notifications import TOO_MANY
from supervisor.scheduler.notifications.notifier_client import NotifierClient
from supervisor.scheduler.notifications.wording import Message, message, trial_message

_DELAYS_MS = (30_000, 120_000, 600_000, 3_600_000)
"""Before each further attempt; the last one before all that follow."""
_REST_MS = 30_000
"""After a failure, whatever else waits for the same notifier."""
_MAX_AGE_MS = 86_400_000
_AT_ONCE = 4
_LONGEST_MS = 60_000.0
"""From one look to the next while something waits: clocks can be set."""

OnLost = Callable[[str, int, str, Change], None]


class Outbox:
    """All notifiers of the configuration.

    Args:
        post: carries the messages.
    """

    def __init__(
        self, loop: Loop, boot: Boot, committer: Committer, notifier_client: NotifierClient, config: Config, log: Log
    ) -> None:
        self._loop = loop
        self._boot = boot
        self._committer = committer
        self._notifier_client = notifier_client
        self._log = log
        self._site = config.http.external_url
        self._zone = config.daemon.timezone
        self._urls = {name: one.url for name, one in config.notifiers.items()}
        self._host = socket.gethostname()
        self._busy: set[str] = set()
        self._resting: dict[str, float] = {}
        """Until when, on the monotonic clock."""
        self._timer: Timer | None = None
        self._looking = False
        self._again = False
        self.on_lost: OnLost = lambda _notifier, _number, _why, _change: None
        """Called with messages that are given up: of which notifier, how many, why, and what to make it part of."""

    def begin(self, *, first: bool) -> None:
        """Go on with what is stored. `first`: what was tried in vain under another daemon is tried at once."""
        change = self._change()
        if first:
            change.write(lambda db: deliveries.hurry(db, change.now_ms))
        self._forget_others(change)
        self._committer.commit(change)
        self.look()

    def configure(self, config: Config) -> None:
        """Go by another configuration; those whose URL is another one do not rest any more."""
        self._site = config.http.external_url
        self._zone = config.daemon.timezone
        urls = {name: one.url for name, one in config.notifiers.items()}
        changed = [name for name, url in urls.items() if self._urls.get(name) != url]
        change = self._change()
        for name in changed:
            self._resting.pop(name, None)
            change.write(lambda db, name=name: deliveries.hurry(db, change.now_ms, name))  # type: ignore[misc]
        if self._urls.keys() - urls.keys():
            self._forget_others(change)
        self._urls = urls
        self._committer.commit(change)
        self.look()

    def _forget_others(self, change: Change) -> None:
        names, dropped = set(self._urls), [0]
        change.write(lambda db: dropped.append(deliveries.forget_others(db, names)))

        def tell() -> None:
            if dropped[-1]:
                self._log.warning(f"{dropped[-1]} notifications for notifiers that are gone are dropped")

        change.then(tell)

    def _change(self) -> Change:
        return Change(self._loop.now_ms())

    def queued(self, lost: dict[str, int]) -> None:
        """Something was stored; `lost`: how many messages made room for it, by notifier."""
        if lost:
            change = self._change()
            for name, number in lost.items():
                self._log.error(f"the notifier {name}: {number} notifications are given up, {TOO_MANY}")
                self.on_lost(name, number, TOO_MANY, change)
            self._committer.commit(change)
        self.look()

    # One look after the other: what is due, and when to look again.

    def look(self) -> None:
        """Send what is due; call it when something was stored."""
        if self._looking:
            self._again = True
            return
        now_s = self._loop.now_s()
        self._resting = {name: until for name, until in self._resting.items() if until > now_s}
        without = self._busy | self._resting.keys()
        if without >= self._urls.keys():  # a result, or the end of a rest, comes here again
            self._wait(None)
            return
        self._looking, self._again = True, False
        room = max(0, _AT_ONCE - len(self._busy))
        found: list[tuple[list[list[Delivery]], int | None]] = []
        change = self._change()

        def read() -> None:
            self._looking = False
            sendable, next_due = found[-1]
            for one in sendable:
                self._send(one)
            self._wait(next_due)
            if self._again:
                self.look()

        change.write(
            lambda db: found.append(
                (deliveries.due(db, change.now_ms, without, room), deliveries.next_due(db, without))
            )
        )
        change.then(read)
        self._committer.commit(change)

    def _wait(self, next_due: int | None) -> None:
        """Look again when the next message is due, or a notifier has rested."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waits = [(until - self._loop.now_s()) * 1000 for until in self._resting.values()]
        if next_due is not None:
            left = next_due - self._loop.now_ms()
            # What is due and was not taken waits for a place, whose result looks again.
            waits += [left] if left > 0 else []
        if waits:
            # The clock may be set meanwhile.
            self._timer = self._loop.after(min(_LONGEST_MS, max(1.0, min(waits))), self.look)

    # One message, or several together.

    def _send(self, together: Sequence[Delivery]) -> None:
        name = together[0].notifier
        url = self._urls.get(name)
        if url is None:  # the configuration has changed a moment ago
            return
        self._busy.add(name)
        said = message(together, site=self._site, host=self._host, zone=self._zone)
        run_id, task = together[0].run_id, together[0].task_name
        single = len(together) == 1 and not together[0].held
        paths: tuple[str | None, str | None] = (None, None)
        if single and run_id is not None and task is not None:
            paths = self._paths(task, run_id)
        request = _request(f"{name}/{together[0].seq}", url, said, *paths)
        self._notifier_client.send(request, lambda result: self._was_sent(together, result))

    def _paths(self, task: str, run_id: str) -> tuple[str, str]:
        return ring_path(self._boot.runtime_dir, run_id), log_path(self._boot.data_dir, task, run_id)

    def _was_sent(self, together: Sequence[Delivery], result: DeliveryResult) -> None:
        name = together[0].notifier
        change = self._change()
        now_ms = change.now_ms
        if result.error is None:
            self._resting.pop(name, None)
            change.write(lambda db: deliveries.delivered(db, name, [one.seq for one in together], now_ms))
            change.write(lambda db: deliveries.hurry(db, now_ms, name))
        else:
            self._has_failed(name, together, result, change)

        def stored() -> None:
            self._busy.discard(name)
            self.look()

        change.then(stored)
        self._committer.commit(change)

    def _has_failed(self, name: str, together: Sequence[Delivery], result: DeliveryResult, change: Change) -> None:
        now_ms, why = change.now_ms, result.error or ""
        asked_ms = result.retry_after_ms or 0
        self._resting[name] = self._loop.now_s() + max(_REST_MS, asked_ms) / 1000
        due, lost = {}, []
        for one in together:
            delay_ms = max(_DELAYS_MS[min(one.attempts, len(_DELAYS_MS) - 1)], asked_ms)
            if now_ms + delay_ms > one.created_at + _MAX_AGE_MS and one.attempts:
                lost.append(one.seq)
            else:
                due[one.seq] = now_ms + delay_ms
        self._log.warning(f"the notifier {name} cannot deliver: {why}")
        if due:
            change.write(lambda db: deliveries.failed(db, name, due, why, now_ms))
        if lost:
            self._log.error(f"the notifier {name}: {len(lost)} notifications are given up after a day")
            change.write(lambda db: deliveries.give_up(db, name, lost, why, now_ms))
            if any(one.kind != DELIVERY_FAILED for one in together if one.seq in lost):
                self.on_lost(name, len(lost), why, change)

    # What people ask.

    def names(self) -> list[str]:
        """All notifiers."""
        return sorted(self._urls)

    def standings(self, change: Change, then: Callable[[dict[str, Standing]], None]) -> None:
        """Call `then` with how deliveries have gone, when the change is stored."""
        found: list[dict[str, Standing]] = []
        change.write(lambda db: found.append(deliveries.standings(db)))
        change.then(lambda: then(found[-1]))

    def send_test(self, name: str, then: Callable[[DeliveryResult], None]) -> bool:
        """Send a message by a notifier, at once and only once; False: there is none of that name."""
        url = self._urls.get(name)
        if url is None:
            return False
        self._notifier_client.send(
            _request(f"{name}/test/{os.urandom(8).hex()}", url, trial_message(name, self._host)), then
        )
        return True


def _request(key: str, url: str, said: Message, ring: str | None = None, file: str | None = None) -> DeliveryRequest:
    return DeliveryRequest(
        key=key, url=url, title=said.title, body=said.body, footer=said.footer, type=said.type, ring=ring, file=file
    )
