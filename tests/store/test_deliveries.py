"""Messages that wait for their notifier."""

from dataclasses import dataclass, field
from random import Random

from store import deliveries
from store.database import Database
from store.deliveries import Delivery
from store.tasks import forget_missing, update_task, upsert_task
from tests.store.making import T0

HOUR_MS = 3_600_000


def draft(at: int = T0, notifier: str = "n", *, until: int | None = None, kind: str = "run.failed") -> Delivery:
    due_at = at if until is None else until
    return Delivery(0, notifier, kind, "error", f"at {at}", "body", "t", "R", at, due_at, until is not None, 0)


def add(db: Database, *drafts: Delivery, digest_ms: int = 0) -> None:
    for message in drafts:
        deliveries.add(db, message, digest_ms)


def titles(messages: list[list[Delivery]]) -> list[list[str]]:
    return [[delivery.title for delivery in together] for together in messages]


def due(db: Database, now_ms: int, *without: str, most: int = 10) -> list[list[str]]:
    return titles(deliveries.due_messages(db, now_ms, without, most))


def test_due_messages(writer: Database) -> None:
    """One message of each notifier is due, the longest waiting first, exactly as stored."""
    add(writer, draft(T0 + 1, "b"), draft(T0 + 2, "a"), draft(T0 + 3, "b"), draft(T0 + 9, "c"))
    assert due(writer, T0) == []
    assert due(writer, T0 + 5) == [[f"at {T0 + 1}"], [f"at {T0 + 2}"]]
    assert due(writer, T0 + 5, "b") == [[f"at {T0 + 2}"]]
    assert due(writer, T0 + 9, most=1) == [[f"at {T0 + 1}"]]
    assert deliveries.next_due(writer, ("a", "b")) == T0 + 9
    assert deliveries.next_due(writer, ("a", "b", "c")) is None
    ((first,), _) = deliveries.due_messages(writer, T0 + 5, (), 10)
    assert first == draft(T0 + 1, "b")._replace(seq=first.seq)


def test_quiet_hours(writer: Database) -> None:
    """Held messages are due together when quiet hours end; others are due before."""
    end = T0 + HOUR_MS
    add(writer, draft(T0, until=end), draft(T0 + 1, until=end), draft(T0 + 2))
    assert due(writer, T0 + 2) == [[f"at {T0 + 2}"]]
    assert deliveries.next_due(writer, ()) == T0 + 2
    ((delivery,),) = deliveries.due_messages(writer, T0 + 2, (), 10)
    deliveries.delivered(writer, "n", [delivery.seq], T0 + 3)
    assert due(writer, end - 1) == []
    assert due(writer, end) == [[f"at {T0}", f"at {T0 + 1}"]]


def test_clock_set_back(writer: Database) -> None:
    """Messages that wait for a time more than a day ahead are due if they were stored by a clock that was ahead."""
    ahead = T0 + 48 * HOUR_MS
    add(writer, draft(ahead, until=ahead + HOUR_MS), draft(T0, "digest", until=ahead), draft(T0, until=T0 + HOUR_MS))
    assert due(writer, T0) == [[f"at {ahead}"]]
    assert due(writer, T0 + 30 * HOUR_MS) == [[f"at {T0}"]]


def test_digest(writer: Database) -> None:
    """The first message of a notifier waits, later messages join it, and the next begins another batch."""
    add(writer, draft(T0), draft(T0 + 50), draft(T0 + 60, "other"), digest_ms=100)
    assert due(writer, T0 + 99) == []
    assert due(writer, T0 + 100) == [[f"at {T0}", f"at {T0 + 50}"]]
    add(writer, draft(T0 + 120), digest_ms=100)
    assert deliveries.next_due(writer, ("other",)) == T0 + 100
    (together,) = deliveries.due_messages(writer, T0 + 130, ("other",), 10)
    deliveries.delivered(writer, "n", [delivery.seq for delivery in together], T0 + 130)
    assert due(writer, T0 + 219, "other") == []
    assert due(writer, T0 + 220, "other") == [[f"at {T0 + 120}"]]


def test_failed_messages(writer: Database, reader: Database) -> None:
    """A failed message waits while others continue, until it is hurried; the notifier's status has the outcome."""
    add(writer, draft(T0), draft(T0 + 1))
    ((delivery,),) = deliveries.due_messages(writer, T0 + 1, (), 10)
    deliveries.failed(writer, "n", {delivery.seq: T0 + HOUR_MS}, "no route", T0 + 2)
    assert due(writer, T0 + 3) == [[f"at {T0 + 1}"]]
    standing = deliveries.standings(reader)["n"]
    assert (standing.delivered_at, standing.failed_at, standing.error, standing.waiting) == (
        None,
        T0 + 2,
        "no route",
        2,
    )
    deliveries.make_due(writer, T0 + 4, "other")
    assert due(writer, T0 + 4) == [[f"at {T0 + 1}"]]
    ((other,),) = deliveries.due_messages(writer, T0 + 4, (), 10)
    deliveries.delivered(writer, "n", [other.seq], T0 + 4)
    deliveries.make_due(writer, T0 + 5)
    ((again,),) = deliveries.due_messages(writer, T0 + 5, (), 10)
    assert again == delivery._replace(attempts=1, due_at=T0 + 5)
    deliveries.give_up(writer, "n", [again.seq], "gone", T0 + 6)
    assert deliveries.standings(reader)["n"] == ("n", T0 + 4, T0 + 6, "gone", 1, 0)


def test_limit_of_waiting_messages(writer: Database, reader: Database) -> None:
    """Each notifier keeps a limited number of waiting messages, the newest ones."""
    add(writer, *(draft(T0 + number) for number in range(5)), draft(T0, "other"))
    assert deliveries.overflow(writer, "n", 5) == 0
    assert deliveries.overflow(writer, "n", 2) == 3
    assert due(writer, T0 + 9) == [[f"at {T0}"], [f"at {T0 + 3}"]]
    deliveries.count_lost(writer, "n", 3, "too many", T0)
    standing = deliveries.standings(reader)
    assert (standing["n"].given_up, standing["n"].waiting, standing["other"].waiting) == (3, 2, 1)


def test_throttling_and_recovery(writer: Database) -> None:
    """A notifier reports a kind and task once in a window; each notifier that reported it sends one recovery."""
    tell = deliveries.note_notification
    assert tell(writer, "n", "run.failed", "t", T0, HOUR_MS)
    assert not tell(writer, "n", "run.failed", "t", T0 + HOUR_MS - 1, HOUR_MS)
    assert tell(writer, "n", "run.timeout", "t", T0, HOUR_MS)
    assert tell(writer, "n", "run.failed", "other", T0, HOUR_MS)
    assert tell(writer, "m", "run.failed", "t", T0, HOUR_MS)
    assert tell(writer, "m", "run.failed", "t", T0, 0)
    assert tell(writer, "n", "run.failed", "t", T0 + HOUR_MS, HOUR_MS)
    assert tell(writer, "n", "run.failed", "t", T0, HOUR_MS), "the clock was set back"
    assert deliveries.end_of_trouble(writer, ("run.failed", "run.timeout"), "t", T0) == {"n", "m"}
    assert deliveries.end_of_trouble(writer, ("run.failed", "run.timeout"), "t", T0) == set()
    assert tell(writer, "n", "run.failed", "t", T0 + 1, HOUR_MS)
    assert not tell(writer, "n", "run.failed", "other", T0 + 1, HOUR_MS)


def test_removed_notifiers_and_tasks(writer: Database, reader: Database) -> None:
    """Notifiers and tasks that left the configuration are forgotten."""
    upsert_task(writer, "t", "task", "{}")
    upsert_task(writer, "gone", "task", "{}")
    forget_missing(writer, ["t"])
    add(writer, draft(), draft(notifier="x"))
    for task in ("t", "gone", None):
        assert deliveries.note_notification(writer, "n", "k", task, T0, HOUR_MS)
    assert deliveries.note_notification(writer, "y", "k", "t", T0, HOUR_MS)
    assert deliveries.forget_others(writer, ["n"]) == 1
    assert set(deliveries.standings(reader)) == {"n"}
    assert not deliveries.note_notification(writer, "n", "k", "t", T0, HOUR_MS)
    assert not deliveries.note_notification(writer, "n", "k", None, T0, HOUR_MS)
    assert deliveries.note_notification(writer, "n", "k", "gone", T0, HOUR_MS)
    assert deliveries.note_notification(writer, "y", "k", "t", T0, HOUR_MS)


@dataclass
class Model:
    """The outbox as a list, without a database."""

    rows: list[Delivery] = field(default_factory=list)

    def due(self, now_ms: int, without: str) -> list[list[int]]:
        deliveries_ready = []
        for name in {row.notifier for row in self.rows} - {without}:
            ready = sorted(
                (row for row in self.rows if row.notifier == name and row.due_at <= now_ms),
                key=lambda delivery: (delivery.due_at, delivery.seq),
            )
            if ready:
                together = (
                    sorted(delivery.seq for delivery in ready if delivery.held) if ready[0].held else [ready[0].seq]
                )
                deliveries_ready.append((ready[0].due_at, name, together))
        return [together for _, _, together in sorted(deliveries_ready)]


def test_due_messages_match_a_model(writer: Database) -> None:
    """After any additions, failures and deliveries, the due messages match a plain list."""
    random = Random(1)
    model = Model()
    for step in range(150):
        now = T0 + step
        name = random.choice("abc")
        until = random.choice([None, None, now + random.randrange(20)])
        add(writer, draft(now, name, until=until))
        row = writer.row("SELECT max(seq) FROM deliveries")
        assert row is not None
        model.rows.append(draft(now, name, until=until)._replace(seq=row[0]))
        without = random.choice("abc")
        messages_due = deliveries.due_messages(writer, now, (without,), 10)
        assert [[delivery.seq for delivery in together] for together in messages_due] == model.due(now, without)
        for together in messages_due:
            numbers = {delivery.seq for delivery in together}
            if random.random() < 0.4:
                later = now + random.randrange(30)
                deliveries.failed(writer, together[0].notifier, dict.fromkeys(numbers, later), "why", now)
                model.rows = [
                    row._replace(attempts=row.attempts + 1, due_at=later) if row.seq in numbers else row
                    for row in model.rows
                ]
            else:
                deliveries.delivered(writer, together[0].notifier, numbers, now)
                model.rows = [row for row in model.rows if row.seq not in numbers]


def test_waiting_for_an_acknowledgement(writer: Database) -> None:
    """A message that waits for an acknowledgement is sent alone at its time; until then it can be cancelled."""
    upsert_task(writer, "t", "task", "{}")
    assert deliveries.note_unacked(writer, "n", "run.failed", "t", T0, T0 + HOUR_MS)
    add(writer, draft(until=T0 + HOUR_MS)._replace(held=False), digest_ms=1000)
    assert not deliveries.note_unacked(writer, "n", "run.failed", "t", T0 + 1, T0 + 1 + HOUR_MS)
    assert (due(writer, T0 + HOUR_MS - 1), deliveries.standings(writer)) == ([], {})
    assert due(writer, T0 + HOUR_MS) == [[f"at {T0}"]]
    deliveries.cancel_unacked(writer, "t", T0 + 1, ["run.timeout"])
    assert due(writer, T0 + HOUR_MS) == [[f"at {T0}"]]
    assert deliveries.end_of_trouble(writer, ["run.failed"], "t", T0 + 1) == set()
    assert due(writer, T0 + HOUR_MS) == []


def test_reminder(writer: Database) -> None:
    """A delivered message is sent again at its time, unless its problem has ended or was acknowledged."""
    upsert_task(writer, "t", "task", "{}")
    for end in ("none", "ended", "acknowledged", "cancelled"):
        update_task(writer, "t", acknowledged=None)
        deliveries.note_notification(writer, "n", "run.failed", "t", T0, 1)
        add(writer, draft())
        ((message,),) = deliveries.due_messages(writer, T0, (), 1)
        if end == "ended":
            deliveries.end_of_trouble(writer, ["run.failed"], "t", T0)
        elif end == "acknowledged":
            update_task(writer, "t", acknowledged=f'{{"at": {T0 + 1}, "until": null}}')
        elif end == "cancelled":
            deliveries.give_up(writer, "n", [message.seq], "", T0)
        deliveries.remind(writer, message, ["run.failed"], T0 + 2, T0 + HOUR_MS)
        deliveries.delivered(writer, "n", [message.seq], T0 + 2)
        assert due(writer, T0 + HOUR_MS) == ([[f"Reminder: at {T0}"]] if end == "none" else []), end
        deliveries.cancel_unacked(writer, "t", T0 + 3)
        assert due(writer, T0 + HOUR_MS) == []
