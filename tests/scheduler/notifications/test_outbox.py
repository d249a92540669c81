"""Deliveries: sent one by one, retried until they succeed or expire, and reported without loops."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from store import deliveries, notifications
from store.deliveries import DeliveryStatus
from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult, PingRequest
from supervisor.scheduler.loop.procedures import Wait
from supervisor.scheduler.notifications.notifier_client import NotifierClient
from supervisor.scheduler.notifications.outbox import Outbox
from supervisor.scheduler.runs.live_units import RunRequest
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

FAILED = 1 << 8
TEXT = """
[tasks.t]
run = "false"
[tasks.u]
run = "false"
[tasks.r]
run = "false"
retry_attempts = 1
retry_delay = "0s"
[notifiers.a]
url = "json://a.example.com/secret-a"
[notifiers.b]
url = "json://b.example.com/secret-b"
"""
TO_A = '[[routes]]\nnotify = "a"\n'
TO_BOTH = '[[routes]]\nnotify = ["a", "b"]\n'
NO = DeliveryResult("no route to host")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


class FakePost:
    """A notifier process that only records its requests."""

    def __init__(self) -> None:
        self.open: list[tuple[DeliveryRequest, Callable[[DeliveryResult], None]]] = []

    def sent(self, order: DeliveryRequest | PingRequest) -> Wait:
        assert isinstance(order, DeliveryRequest)
        return lambda waiter: self.open.append((order, waiter.resume))

    def __len__(self) -> int:
        return len(self.open)


class OutboxBench(Bench):
    """A bench with an outbox."""

    def __init__(self, directory: Path, text: str) -> None:
        self.clock = FakeClock()
        super().__init__(directory, text, self.clock)
        self.begin()

    def begin(self, *, first: bool = True) -> None:
        """Start an outbox from the stored state only."""
        self.notifier_client = FakePost()
        client = cast(NotifierClient, self.notifier_client)
        self.outbox = Outbox(self.core, client, on_lost=self.notifications.deliveries_lost)
        self.outbox.start(self.config, first=first)
        self.store.work_all()

    def queued(self, lost: dict[str, int]) -> None:
        self.outbox.queued(lost)

    def fail(self, name: str = "t", status: int = FAILED) -> str:
        run = self.trigger(name)
        self.store.work_all()
        self.started(run.id)
        self.exited(run.id, status=status)
        self.store.work_all()
        return run.id

    def given(self) -> list[str]:
        """Return hosts and titles of the messages that the notifier process has not answered."""
        return sorted(f"{order.url[7]} {order.title}" for order, _ in self.notifier_client.open)

    def answer(self, result: DeliveryResult = DeliveryResult()) -> None:  # noqa: B008 - frozen
        """Answer the first message."""
        self.notifier_client.open.pop(0)[1](result)
        self.store.work_all()

    def later(self, ms: int) -> None:
        self.clock.advance(ms / 1000)
        self.loop.round(0)
        self.store.work_all()

    def standing(self, name: str = "a") -> DeliveryStatus:
        return deliveries.standings(self.store.database)[name]

    def kinds(self) -> list[str]:
        return [notification.kind for notification in notifications.page(self.store.database, 100)]


Make = Callable[[str], OutboxBench]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Make]:
    made: list[OutboxBench] = []

    def make(text: str) -> OutboxBench:
        made.append(OutboxBench(tmp_path, TEXT + text))
        return made[-1]

    yield make
    for made_bench in made:
        made_bench.close()


def test_one_message_at_a_time(desk: Make) -> None:
    """Each notifier gets one message at a time, in order; several notifiers work side by side."""
    harness = desk(TO_BOTH)
    harness.fail("t")
    harness.fail("u")
    assert harness.given() == ["a t failed", "b t failed"]
    harness.answer()
    assert sorted(harness.given()) == ["a u failed", "b t failed"]
    harness.answer()
    harness.answer()
    harness.answer()
    assert (harness.given(), harness.standing().waiting, harness.standing("b").waiting) == ([], 0, 0)


def test_retry_delays(desk: Make) -> None:
    """A delivery is retried after 30 s, 2 min, 10 min and then hourly; a success releases all waiting messages."""
    harness = desk(TO_A)
    harness.fail()
    for wait_ms in (MINUTE_MS // 2, 2 * MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, HOUR_MS):
        harness.answer(NO)
        harness.later(wait_ms - 1000)
        assert harness.given() == []
        harness.later(1000)
        assert harness.given() == ["a t failed"]
    harness.answer(NO)
    harness.fail("u")
    assert harness.given() == []
    harness.later(MINUTE_MS // 2)
    assert harness.given() == ["a u failed"]
    harness.answer()
    assert harness.given() == ["a t failed"]
    harness.answer()
    assert harness.standing()[3:] == ("no route to host", 0, 0)


def test_retry_after(desk: Make) -> None:
    """A receiver that sends Retry-After gets no message for that long."""
    harness = desk(TO_A)
    harness.fail()
    harness.answer(DeliveryResult("429", retry_after_ms=5 * MINUTE_MS))
    harness.fail("u")
    harness.later(5 * MINUTE_MS - 1000)
    assert harness.given() == []
    harness.later(1000)
    assert len(harness.given()) == 1


def test_failure_at_a_former_address(desk: Make) -> None:
    """A message that fails at an address that a reload has replaced meanwhile goes to the new address at once."""
    harness = desk(TO_A)
    harness.fail()
    notifier = replace(harness.config.notifiers["a"], url="json://c.example.com/secret-c")
    harness.outbox.configure(replace(harness.config, notifiers={**harness.config.notifiers, "a": notifier}))
    harness.store.work_all()
    assert harness.given() == ["a t failed"]
    harness.answer(DeliveryResult("429", retry_after_ms=HOUR_MS))
    assert harness.given() == ["c t failed"]
    harness.answer()
    assert harness.standing().waiting == 0


def test_expired_delivery(desk: Make) -> None:
    """A delivery is dropped after a day. Other notifiers report that, and a failure of that report is not reported."""
    harness = desk(TO_BOTH)
    harness.fail()
    harness.notifier_client.open.sort(key=lambda item: item[0].url, reverse=True)
    harness.answer()
    for _ in range(40):
        if harness.notifier_client.open:
            harness.answer(NO)
        harness.later(HOUR_MS)
        if "notify.delivery_failed" in harness.kinds():
            break
    assert harness.given() == ["b Notifier a cannot deliver"]
    assert harness.standing().given_up == 1
    for _ in range(60):
        if harness.notifier_client.open:
            harness.answer(NO)
        harness.later(HOUR_MS)
    assert (harness.given(), harness.standing("b").given_up) == ([], 1)
    assert harness.kinds().count("notify.delivery_failed") == 1


def test_queue_limit(desk: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notifier's queue is bounded.

    The oldest messages are dropped and reported, and reports cause no further ones, even without coalescing.
    """
    monkeypatch.setattr("supervisor.scheduler.notifications.notifications.MOST_WAITING", 3)
    harness = desk(f'[notify]\ncoalesce_window = "0s"\n{TO_BOTH}')
    for _ in range(7):
        harness.fail()
    last = harness.fail()
    for name in "ab":
        # Each failure above the limit drops two messages, one of them for the report about the other notifier.
        assert (harness.standing(name).waiting, harness.standing(name).given_up) == (3, 2 * 5)
        rows = harness.store.database.rows("SELECT run_id FROM deliveries WHERE notifier = ? ORDER BY seq", [name])
        assert (last,) in rows
        assert rows.count((None,)) == 2
    assert harness.kinds().count("notify.delivery_failed") == 2 * 5


def test_scheduler_restart(desk: Make) -> None:
    """A new scheduler resends unanswered messages, and failed ones wait for their time.

    A new daemon tries all at once.
    """
    harness = desk(TO_BOTH)
    harness.fail()
    harness.notifier_client.open.sort(key=lambda item: item[0].url)
    harness.answer(NO)
    harness.begin(first=False)
    assert harness.given() == ["b t failed"]
    harness.begin(first=True)
    assert harness.given() == ["a t failed", "b t failed"]


def test_attempts_and_after(desk: Make) -> None:
    """A route counts either final attempts or all attempts, and both kinds send the recovery."""
    harness = desk(
        '[[routes]]\nnotify = "a"\nmatch = { tasks = "r" }\nafter = 2\nfinal_attempt_only = false\n'
        '[[routes]]\nnotify = "b"\nmatch = { tasks = "r" }\n'
    )
    harness.fail("r")
    assert harness.given() == []
    (again,) = harness.units["r"].waiting.values()
    harness.engine.end_wait(again)
    harness.store.work_all()
    harness.started(again.id)
    harness.exited(again.id, status=FAILED)
    harness.store.work_all()
    assert harness.given() == ["a r failed", "b r failed"]
    harness.answer()
    harness.answer()
    harness.fail("r", 0)
    assert harness.given() == ["a r has recovered", "b r has recovered"]


def test_recovery_needs_a_sent_failure(desk: Make) -> None:
    """A route that sent no failure sends no recovery, and the next failure is sent as new."""
    harness = desk('[[routes]]\nnotify = "a"\nafter = 2\n[[routes]]\nnotify = "b"\nrecovery = false\n')
    harness.fail()
    assert harness.given() == ["b t failed"]
    harness.answer()
    harness.fail("t", 0)
    assert harness.given() == []
    harness.fail()
    assert harness.given() == ["b t failed"]
    assert harness.kinds().count("run.recovered") == 1


def test_repeats_are_not_sent(desk: Make) -> None:
    """Within coalesce_window, a repeated failure is counted but not sent again."""
    harness = desk(TO_A)
    harness.fail()
    harness.answer()
    harness.fail()
    assert harness.given() == []
    harness.clock.advance(HOUR_MS / 1000)
    harness.fail()
    assert harness.given() == ["a t failed"]


def test_notifiers_of_a_task(desk: Make) -> None:
    """A task's own notifiers get failure, success and recovery without any route."""
    harness = desk('[tasks.own]\nrun = "false"\nnotify_on_failure = "a"\nnotify_on_success = "b"\n')
    harness.fail("own")
    assert harness.given() == ["a own failed"]
    harness.answer()
    harness.fail("own", 0)
    assert harness.given() == ["a own has recovered", "b own succeeded"]


def test_missed_instant(desk: Make) -> None:
    """A missed instant is reported with its reason; a refused trigger by a client is not."""
    harness = desk('[tasks.own]\nrun = "false"\nqueue_max = 0\nnotify_on_missed = "a"\n')
    harness.trigger("own")
    harness.trigger("own")
    harness.store.work_all()
    assert harness.kinds() == []
    unit = harness.units["own"]
    assert unit.task is not None
    change = harness.committer.change()
    harness.engine.create_task_run(unit, unit.task, change, RunRequest(trigger="cron", scheduled_at=harness.clock.wall))
    harness.committer.commit(change)
    harness.store.work_all()
    assert harness.given() == ["a own did not run"]
    (notification,) = notifications.page(harness.store.database, 10)
    assert (notification.kind, notification.severity) == ("run.missed", "warn")
    assert "the queue was full" in notification.body


SKIPS = '[daemon]\ntimezone = "Asia/Tokyo"\n[tasks.own]\nrun = "true"\non_overlap = "skip"\nnotify_on_missed = "a"\n'


def skip(harness: OutboxBench) -> None:
    """Let a scheduled time of the task pass while a run is active."""
    unit = harness.units["own"]
    assert unit.task is not None
    change = harness.committer.change()
    harness.engine.create_task_run(unit, unit.task, change, RunRequest(trigger="cron", scheduled_at=harness.clock.wall))
    harness.committer.commit(change)
    harness.store.work_all()


def test_skipped_instants_are_one_event_a_day(desk: Make) -> None:
    """Skipped times of a task and a local day are one event of the list, no alarm, and need not be read again."""
    harness = desk(SKIPS + '[[routes]]\nnotify = "b"\n')
    harness.trigger("own")
    harness.store.work_all()
    skip(harness)
    (event,) = notifications.page(harness.store.database, 10)
    notifications.mark(harness.store.database, event.id, harness.clock.wall)
    harness.later(2 * HOUR_MS)  # 23:00 in Tokyo
    skip(harness)
    (event,) = notifications.page(harness.store.database, 10)
    assert (event.kind, event.severity, event.times) == ("run.skipped", "info", 2)
    assert event.read_at is not None
    assert "another run was active or waiting" in event.body
    harness.later(2 * HOUR_MS)  # the next day there
    skip(harness)
    assert [notification.times for notification in notifications.page(harness.store.database, 10)] == [1, 2]
    assert harness.given() == []


def test_route_for_skipped_instants(desk: Make) -> None:
    """A route that names run.skipped gets each skipped time, as far as ``coalesce_window`` allows."""
    harness = desk(
        SKIPS + '[notify]\ncoalesce_window = "0s"\n[[routes]]\nmatch = { kinds = ["run.skipped"] }\nnotify = "b"\n'
    )
    harness.trigger("own")
    harness.store.work_all()
    for _ in range(2):
        skip(harness)
        assert harness.given() == ["b own skipped a scheduled time"]
        harness.answer()
        harness.later(1000)


def test_quiet_hours(desk: Make) -> None:
    """Notifications during quiet hours are sent as one message at their end."""
    harness = desk('[daemon]\ntimezone = "UTC"\n[[routes]]\nnotify = "a"\nquiet = "11:00-13:00"\n')
    harness.fail("t")
    harness.fail("u")
    harness.later(HOUR_MS - 1000)
    assert harness.given() == []
    harness.later(1000)
    ((request, _),) = harness.notifier_client.open
    assert request.title == "2 notifications"
    assert [item.split()[2] for item in request.items] == ["t", "u"]


def test_list_in_several_messages(desk: Make) -> None:
    """Of a list that is too long for one message, the rest follows at once, and nothing is sent twice."""
    harness = desk(
        '[tasks.v]\nrun = "false"\n[daemon]\ntimezone = "UTC"\n[[routes]]\nnotify = "a"\nquiet = "11:00-13:00"\n'
    )
    for name in ("t", "u", "v"):
        harness.fail(name)
    harness.later(HOUR_MS)
    for sent, names in ((2, ["t", "u", "v"]), (1, ["v"])):
        ((request, _),) = harness.notifier_client.open
        assert [item.split()[2] for item in request.items] == names
        harness.answer(DeliveryResult(items=sent))
    assert (harness.given(), harness.standing().waiting) == ([], 0)


def test_refused_message_delays_no_other(desk: Make) -> None:
    """A message that its service refuses waits alone: others are sent at once, and do not make it due."""
    refused = DeliveryResult("message is too long", refused=True)
    harness = desk(f'[tasks.v]\nrun = "false"\n{TO_A}')
    harness.fail("t")
    harness.fail("u")
    harness.answer()
    assert harness.given() == ["a u failed"]
    harness.answer(refused)
    harness.fail("v")
    assert harness.given() == ["a v failed"]
    harness.answer()
    assert (harness.given(), harness.standing().waiting) == ([], 1)
    harness.later(MINUTE_MS // 2)
    assert harness.given() == ["a u failed"]
