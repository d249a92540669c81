"""Messages that are repeated, or sent at all, only if nobody acknowledges the problem; on a clock that tests set."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store import deliveries
from supervisor.ipc.delivery_request import DeliveryResult
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.notifications.routes import RoutedEvent, Target, targets
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from tests.scheduler.control.operations import operations_of
from tests.scheduler.notifications.test_outbox import FAILED, HOUR_MS, MINUTE_MS, TEXT, OutboxBench

REPEAT = '[[routes]]\nnotify = "a"\nrepeat = "4h"\n'
SECOND = '[[routes]]\nnotify = "a"\n[[routes]]\nnotify = "b"\nunacked_for = "30m"\n'
REMINDER = "a Reminder: t failed"


class Watched(OutboxBench):
    """An outbox, with acknowledgements."""

    def acknowledge(self, *, for_ms: int | None = None, name: str = "t", operation: str = "acknowledge") -> None:
        starts = ScheduledStarts(self.core, self.engine)
        commands = UnitOperations(self.core, self.engine.stop, self.controller, starts, self.units)
        more = {"run": None, "for_ms": for_ms, "note": None} if operation == "acknowledge" else {}
        operations_of(commands)[operation]({"task": name, "by": "anna", **more}, lambda _answer: None)
        self.store.work_all()

    def pass_ms(self, ms: int) -> None:
        """Let time pass in steps in which the outbox checks for due messages."""
        for _ in range(ms // MINUTE_MS):
            self.later(MINUTE_MS)

    def next_daemon(self) -> None:
        self.store.jobs.clear()
        self.take_up(first=True)
        self.begin()

    def succeed(self, name: str = "t") -> None:
        self.fail(name, 0)

    def waiting(self) -> int:
        return len(self.store.database.rows("SELECT seq FROM deliveries"))


Make = Callable[[str], Watched]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Make]:
    made: list[Watched] = []

    def make(text: str) -> Watched:
        made.append(Watched(tmp_path, TEXT + text))
        return made[-1]

    yield make
    for made_bench in made:
        made_bench.close()


def test_repeated_message(desk: Make) -> None:
    """A message is sent again and again while the problem lasts, also by the next daemon, and not after its end."""
    harness = desk(REPEAT)
    harness.fail()
    harness.answer()
    for _ in range(3):
        harness.pass_ms(2 * HOUR_MS)
        harness.next_daemon()
        harness.pass_ms(2 * HOUR_MS - MINUTE_MS)
        assert harness.given() == []
        harness.pass_ms(2 * MINUTE_MS)
        assert harness.given() == [REMINDER]
        harness.answer()
    harness.succeed()
    assert harness.given() == ["a t has recovered"]
    harness.answer()
    assert harness.waiting() == 0


def test_time_without_a_daemon(desk: Make) -> None:
    """Messages that would have been repeated while the daemon was down are one message."""
    harness = desk(REPEAT)
    harness.fail()
    harness.answer()
    harness.clock.advance_ms(20 * HOUR_MS)
    harness.next_daemon()
    assert harness.given() == [REMINDER]
    harness.answer()
    harness.pass_ms(HOUR_MS)
    assert harness.given() == []


@pytest.mark.parametrize("delivered", [False, True])
def test_acknowledged_problem_is_not_repeated(desk: Make, *, delivered: bool) -> None:
    """An acknowledgement ends the repetition, even if the message was still under way; the next failure starts anew."""
    harness = desk(REPEAT)
    harness.fail()
    if delivered:
        harness.answer()
    harness.later(1000)
    harness.acknowledge()
    if not delivered:
        harness.answer()
    assert harness.waiting() == 0
    harness.pass_ms(5 * HOUR_MS)
    assert harness.given() == []
    harness.fail()
    harness.answer()
    harness.pass_ms(4 * HOUR_MS + MINUTE_MS)
    assert harness.given() == [REMINDER]


def test_one_repetition_for_problems_that_end_together(desk: Make) -> None:
    """Different failures of a task are repeated once, and only those with an end."""
    harness = desk(REPEAT)
    for cause in (None, "timeout"):
        run = harness.trigger("t")
        harness.store.work_all()
        harness.started(run.id)
        harness.exited(run.id, status=FAILED, cause=cause)
        harness.store.work_all()
    with harness.committer.changing() as change:
        harness.notifications.run_slow(run, 1000, None, change)
    harness.store.work_all()
    for _ in range(3):
        harness.answer()
    assert harness.waiting() == 1


def test_second_level(desk: Make) -> None:
    """The second notifier is told after its time, if the problem lasts; then it hears of the recovery too."""
    harness = desk(SECOND)
    harness.fail()
    harness.answer()
    harness.pass_ms(10 * MINUTE_MS)
    harness.fail()
    harness.next_daemon()
    harness.pass_ms(19 * MINUTE_MS)
    assert (harness.given(), harness.standing("a").waiting) == ([], 0)
    harness.pass_ms(2 * MINUTE_MS)
    assert harness.given() == ["b t failed"]
    harness.answer()
    harness.succeed()
    assert harness.given() == ["a t has recovered", "b t has recovered"]


@pytest.mark.parametrize("end", ["acknowledge", "recover"])
def test_second_level_is_not_needed(desk: Make, end: str) -> None:
    """An acknowledgement or a recovery within the time cancels the message, and what would follow from it."""
    harness = desk(SECOND)
    harness.fail()
    harness.answer()
    if end == "acknowledge":
        harness.acknowledge()
    else:
        harness.succeed()
        harness.answer()
    assert harness.waiting() == 0
    harness.pass_ms(HOUR_MS)
    harness.succeed()
    assert harness.given() == (["a t has recovered"] if end == "acknowledge" else [])


def test_acknowledged_for_a_time(desk: Make) -> None:
    """While an acknowledgement holds for a time, another failure does not reach the second notifier."""
    harness = desk(SECOND)
    harness.fail()
    harness.answer()
    harness.acknowledge(for_ms=3 * HOUR_MS)
    harness.pass_ms(2 * HOUR_MS)
    harness.fail()
    harness.answer()
    assert harness.waiting() == 0
    harness.acknowledge(operation="unacknowledge")
    harness.pass_ms(2 * HOUR_MS)
    harness.fail()
    harness.answer()
    assert harness.waiting() == 1


def test_second_level_repeats(desk: Make) -> None:
    """A route can wait for an acknowledgement, and then repeat its message."""
    harness = desk('[[routes]]\nnotify = "b"\nunacked_for = "30m"\nrepeat = "1h"\n')
    harness.fail()
    assert harness.given() == []
    harness.pass_ms(31 * MINUTE_MS)
    assert harness.given() == ["b t failed"]
    harness.answer()
    harness.pass_ms(61 * MINUTE_MS)
    assert harness.given() == ["b Reminder: t failed"]
    harness.acknowledge()
    harness.answer()
    assert harness.waiting() == 0


def test_digest(desk: Make) -> None:
    """A digest does not take messages that wait for an acknowledgement."""
    harness = desk('[notify]\ndigest = "5m"\n' + SECOND)
    harness.fail()
    harness.pass_ms(6 * MINUTE_MS)
    assert harness.given() == ["a 1 notification"]
    harness.answer()
    harness.pass_ms(25 * MINUTE_MS)
    assert harness.given() == ["b t failed"]


def test_failing_delivery_of_a_repetition(desk: Make) -> None:
    """A repeated message that cannot be delivered is tried again like any other one, and goes on afterwards."""
    harness = desk(REPEAT)
    harness.fail()
    harness.answer()
    harness.pass_ms(4 * HOUR_MS + MINUTE_MS)
    harness.answer(DeliveryResult("no route to host"))
    harness.pass_ms(MINUTE_MS)
    assert harness.given() == [REMINDER]
    harness.answer()
    assert harness.waiting() == 1


def test_removed_task(desk: Make) -> None:
    """Messages about a task that is no longer configured are not repeated."""
    harness = desk(REPEAT)
    harness.fail()
    harness.answer()
    harness.store.database.execute("UPDATE tasks SET configured = 0 WHERE name = 't'")
    harness.next_daemon()
    assert harness.waiting() == 0


def test_prompt_route_wins(desk: Make) -> None:
    """If another route leads to the notifier without waiting, it is told at once."""
    harness = desk('[[routes]]\nnotify = "a"\nunacked_for = "30m"\n[[routes]]\nnotify = "a"\n')
    harness.fail()
    assert harness.given() == ["a t failed"]
    now = harness.clock.wall
    fact = RoutedEvent(kind="run.recovered", severity="info", task="t")
    assert targets(fact, harness.config.routes[:1], "UTC", now) == [Target("a", only_if_notified=True)]


def test_quiet_hours_of_the_second_level(desk: Make) -> None:
    """A message that would be sent in quiet hours waits for their end, and can still be cancelled."""
    harness = desk('[[routes]]\nnotify = "b"\nunacked_for = "30m"\nquiet = "12:00-14:00"\n')
    assert harness.clock.wall % (24 * HOUR_MS) == 12 * HOUR_MS
    harness.fail()
    harness.pass_ms(HOUR_MS)
    assert harness.given() == []
    assert deliveries.next_due(harness.store.database, ()) == harness.clock.wall + HOUR_MS
    harness.acknowledge()
    assert harness.waiting() == 0
