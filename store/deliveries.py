"""Pending deliveries: messages that wait for their notifier, stored together with the events that they report.

The table ``told`` has the time of the last notification by notifier, kind and task. It serves to suppress repeats,
and to report a recovery to the notifiers that reported the failure.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from store.database import Database

_SAME = "notifier = ? AND kind = ? AND task_name = ?"


class Delivery(NamedTuple):
    """A message for one notifier; times in ms since the epoch.

    Attributes:
        seq: Number of the message; numbers ascend.
        kind: Kind of the notification, such as "run.failed".
        severity: "info", "warn" or "error".
        due_at: Earliest time of delivery.
        held: Whether the message waits on purpose (quiet hours, a digest). Held messages that are due together are sent
            as one message.
        attempts: Number of attempts so far.
    """

    seq: int
    notifier: str
    kind: str
    severity: str
    title: str
    body: str
    task_name: str | None
    run_id: str | None
    created_at: int
    due_at: int
    held: bool
    attempts: int


class DeliveryStatus(NamedTuple):
    """The results of one notifier's deliveries.

    Attributes:
        delivered_at: Time of the last delivery, ms since the epoch.
        failed_at: Time of the last failed attempt.
        error: Reason of the last failure.
        given_up: Number of messages that were never delivered.
        waiting: Number of messages that wait now.
    """

    name: str
    delivered_at: int | None
    failed_at: int | None
    error: str | None
    given_up: int
    waiting: int


_COLUMNS = ", ".join(Delivery._fields)
_NEW = [name for name in Delivery._fields if name != "seq"]
_INSERT = f"INSERT INTO deliveries ({', '.join(_NEW)}) VALUES ({', '.join('?' * len(_NEW))})"  # noqa: S608 - constants
_SELECT = f"SELECT {_COLUMNS} FROM deliveries"  # noqa: S608 - constants
_DUE = "(due_at <= ? OR (due_at > ? AND created_at > ?))"
_SET_BACK_MS = 86_400_000
_STANDING = "INSERT INTO notifiers (name, {0}) VALUES (?, {1}) ON CONFLICT (name) DO UPDATE SET {2}"


def add(db: Database, draft: Delivery, digest_ms: int) -> None:
    """Store a message; its `seq` is ignored.

    With `digest_ms`, it is sent together with messages that already wait, or waits that long for others.
    """
    if digest_ms and not draft.held:
        row = db.row(
            "SELECT min(due_at) FROM deliveries WHERE notifier = ? AND held = 1 AND attempts = 0 AND due_at > ?",
            [draft.notifier, draft.created_at],
        )
        latest = draft.created_at + digest_ms
        due_at = latest if row is None or row[0] is None else min(latest, row[0])
        draft = draft._replace(held=True, due_at=due_at)
    values = [int(value) if isinstance(value, bool) else value for value in draft[1:]]
    db.execute(_INSERT, values)


def overflow(db: Database, notifier: str, most: int) -> int:
    """Drop the oldest messages of a notifier that has more than `most`; return the number dropped."""
    row = db.row("SELECT count(*) FROM deliveries WHERE notifier = ?", [notifier])
    surplus = (0 if row is None else row[0]) - most
    if surplus > 0:
        oldest = "SELECT seq FROM deliveries WHERE notifier = ? ORDER BY seq LIMIT ?"
        db.execute(f"DELETE FROM deliveries WHERE seq IN ({oldest})", [notifier, surplus])  # noqa: S608 - constants
    return max(0, surplus)


def due_messages(db: Database, now_ms: int, without: Collection[str], most: int) -> list[list[Delivery]]:
    """Return the next delivery of at most `most` notifiers with due messages, longest wait first.

    A delivery is one message, or all held messages that are due. A message from a clock that was set back by more than
    a day is due.
    """
    messages: list[list[Delivery]] = []
    times = [now_ms, now_ms + _SET_BACK_MS, now_ms + _SET_BACK_MS]
    names = db.rows(f"SELECT notifier, min(due_at) FROM deliveries WHERE {_DUE} GROUP BY 1 ORDER BY 2, 1", times)  # noqa: S608 - constants
    for name, _ in names:
        if name in without or len(messages) == most:
            continue
        waiting = f"{_SELECT} WHERE notifier = ? AND {_DUE}"
        first = _delivery(db.rows(f"{waiting} ORDER BY due_at, seq LIMIT 1", [name, *times])[0])
        if first.held:
            held_rows = db.rows(f"{waiting} AND held = 1 ORDER BY seq", [name, *times])
            messages.append([_delivery(row) for row in held_rows])
        else:
            messages.append([first])
    return messages


def next_due(db: Database, without: Collection[str]) -> int | None:
    """Return the time at which the next message is due, except for notifiers in `without`; None if none waits."""
    names = db.rows("SELECT notifier, min(due_at) FROM deliveries GROUP BY 1")
    return min((at for name, at in names if name not in without), default=None)


def make_due(db: Database, now_ms: int, notifier: str | None = None) -> None:
    """Make failed deliveries of one notifier, or of all, due at once, because the cause may be gone."""
    which, names = ("notifier = ? AND", [notifier]) if notifier is not None else ("", [])
    sql = f"UPDATE deliveries SET due_at = ? WHERE {which} attempts > 0 AND due_at > ?"  # noqa: S608 - constants
    db.execute(sql, [now_ms, *names, now_ms])


def delivered(db: Database, notifier: str, sent: Iterable[int], now_ms: int) -> None:
    """Remove delivered messages, given by number, and record the delivery."""
    _drop(db, sent)
    db.execute(
        _STANDING.format("delivered_at, given_up", "?, 0", "delivered_at = excluded.delivered_at"), [notifier, now_ms]
    )


def failed(db: Database, notifier: str, due: Mapping[int, int], error: str, now_ms: int) -> None:
    """Record a failed delivery. `due` maps the number of each message to the time of the next attempt."""
    for seq, due_at in due.items():
        db.execute("UPDATE deliveries SET attempts = attempts + 1, due_at = ? WHERE seq = ?", [due_at, seq])
    changes = "failed_at = excluded.failed_at, error = excluded.error"
    db.execute(_STANDING.format("failed_at, error, given_up", "?, ?, 0", changes), [notifier, now_ms, error])


def give_up(db: Database, notifier: str, lost: Collection[int], error: str, now_ms: int) -> None:
    """Remove messages that are not tried again, and count them as lost."""
    _drop(db, lost)
    count_lost(db, notifier, len(lost), error, now_ms)


def count_lost(db: Database, notifier: str, number: int, error: str, now_ms: int) -> None:
    """Count messages that were never delivered, and record why."""
    changes = (
        "failed_at = excluded.failed_at, error = excluded.error, given_up = notifiers.given_up + excluded.given_up"
    )
    db.execute(_STANDING.format("failed_at, error, given_up", "?, ?, ?", changes), [notifier, now_ms, error, number])


def _drop(db: Database, numbers: Iterable[int]) -> None:
    for seq in numbers:
        db.execute("DELETE FROM deliveries WHERE seq = ?", [seq])


def forget_others(db: Database, names: Collection[str]) -> int:
    """Drop all data of notifiers that are no longer configured; return the number of dropped messages."""
    rows = db.rows("SELECT name FROM notifiers UNION SELECT notifier FROM told UNION SELECT notifier FROM deliveries")
    dropped = 0
    for (name,) in rows:
        if name not in names:
            dropped += db.execute("DELETE FROM deliveries WHERE notifier = ?", [name])
            db.execute("DELETE FROM told WHERE notifier = ?", [name])
            db.execute("DELETE FROM notifiers WHERE name = ?", [name])
    db.execute(
        "DELETE FROM told WHERE task_name <> '' AND task_name NOT IN (SELECT name FROM tasks WHERE configured = 1)"
    )
    return dropped


def note_notification(
    db: Database, notifier: str, kind: str, task_name: str | None, now_ms: int, window_ms: int
) -> bool:
    """Record a notification; return False if the notifier got the same one less than `window_ms` ago."""
    same = [notifier, kind, task_name or ""]
    row = db.row(f"SELECT at FROM told WHERE {_SAME}", same)  # noqa: S608 - constants
    if row is not None and now_ms - window_ms < row[0] <= now_ms:
        return False
    db.execute(
        "INSERT INTO told (notifier, kind, task_name, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (notifier, kind, task_name) DO UPDATE SET at = excluded.at",
        [*same, now_ms],
    )
    return True


def end_of_trouble(db: Database, kinds: Collection[str], task_name: str) -> set[str]:
    """Forget and return the notifiers that were told of these kinds of problems with a task."""
    notified = set()
    for kind in kinds:
        notified |= {
            name for (name,) in db.rows("SELECT notifier FROM told WHERE kind = ? AND task_name = ?", [kind, task_name])
        }
        db.execute("DELETE FROM told WHERE kind = ? AND task_name = ?", [kind, task_name])
    return notified


def standings(db: Database) -> dict[str, DeliveryStatus]:
    """Return the results of deliveries by notifier; notifiers without any delivery are missing."""
    counts = db.rows("SELECT notifier, count(*) FROM deliveries GROUP BY 1")
    waiting = {str(name): int(number) for name, number in counts}
    statuses = {
        name: DeliveryStatus(name, at, failed_at, error, given_up, waiting.pop(name, 0))
        for name, at, failed_at, error, given_up in db.rows(
            "SELECT name, delivered_at, failed_at, error, given_up FROM notifiers"
        )
    }
    return statuses | {name: DeliveryStatus(name, None, None, None, 0, number) for name, number in waiting.items()}


def _delivery(row: tuple[object, ...]) -> Delivery:
    delivery = Delivery._make(row)
    return delivery._replace(held=bool(delivery.held))
