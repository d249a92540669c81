"""Pending deliveries: messages that wait for their notifier, stored together with the events that they report.

The table ``told`` has the time of the last notification by notifier, kind and task. It serves to suppress repeats,
and to report a recovery to the notifiers that reported the failure.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from store.database import Database

_SAME = "notifier = ? AND kind = ? AND task_name = ?"


_UNACKED = "held = 0 AND attempts = 0 AND due_at > created_at"
"""Messages that are only sent if by then the problem has not ended, and nobody has acknowledged it."""
_ABOUT = "COALESCE(task_name, '') = ?"
_REMINDER = "Reminder: "


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
    if digest_ms and not draft.held and draft.due_at <= draft.created_at:
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


def move_held(db: Database, task_name: str, before: int, after: int) -> None:
    """Let messages about a task or service that were held until `before` wait until `after` instead."""
    db.execute(
        "UPDATE deliveries SET due_at = ? WHERE held = 1 AND task_name = ? AND due_at = ?", [after, task_name, before]
    )
    db.execute("UPDATE told SET at = ? WHERE task_name = ? AND at = ?", [after, task_name, before])


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
    others = "task_name <> '' AND task_name NOT IN (SELECT name FROM tasks WHERE configured = 1)"
    db.execute(f"DELETE FROM told WHERE {others}")  # noqa: S608 - constants
    db.execute(f"DELETE FROM deliveries WHERE {others} AND {_UNACKED}")  # noqa: S608 - constants
    return dropped


def note_notification(
    db: Database, notifier: str, kind: str, task_name: str | None, now_ms: int, window_ms: int
) -> bool:
    """Record a notification; return False if the notifier got the same one less than `window_ms` ago."""
    same = [notifier, kind, task_name or ""]
    row = db.row(f"SELECT at FROM told WHERE {_SAME}", same)  # noqa: S608 - constants
    if row is not None and now_ms - window_ms < row[0] <= now_ms:
        return False
    _note(db, same, now_ms)
    return True


def note_held(db: Database, notifier: str, kind: str, task_name: str, now_ms: int, until: int) -> bool:
    """Record a notification that waits until a time; return False if the same one waits already.

    It counts from then. If the notifier was told of the problem before, that stays recorded.
    """
    same = [notifier, kind, task_name]
    row = db.row(f"SELECT at FROM told WHERE {_SAME}", same)  # noqa: S608 - constants
    if row is None or row[0] > now_ms:
        _note(db, same, until)
        return row is None or bool(row[0] != until)
    waiting = f"SELECT 1 FROM deliveries WHERE {_SAME} AND held = 1 AND due_at = ?"  # noqa: S608 - constants
    return db.row(waiting, [*same, until]) is None


def note_unacked(db: Database, notifier: str, kind: str, task_name: str, now_ms: int, due_at: int) -> bool:
    """Record a notification that waits for an acknowledgement until `due_at`; return False if it must not be sent.

    It must not if one of its kind already waits, or if an acknowledgement still holds.
    """
    same = [notifier, kind, task_name]
    waiting = f"SELECT 1 FROM deliveries WHERE notifier = ? AND kind = ? AND {_ABOUT} AND {_UNACKED}"  # noqa: S608 - constants
    if db.row(waiting, same) is not None or _is_acknowledged(db, task_name, now_ms, now_ms):
        return False
    row = db.row(f"SELECT at FROM told WHERE {_SAME}", same)  # noqa: S608 - constants
    if row is None or row[0] > now_ms:
        _note(db, same, due_at)
    return True


def remind(db: Database, delivery: Delivery, kinds: Collection[str], now_ms: int, due_at: int) -> None:
    """Send a message that was just delivered again at `due_at`, unless its problem ends or is acknowledged before.

    `kinds` are those of the problems that end together; only one of them is repeated.
    """
    task, notifier = delivery.task_name or "", delivery.notifier
    about = f"SELECT kind FROM deliveries WHERE notifier = ? AND {_ABOUT} AND seq <> ? AND {_UNACKED}"  # noqa: S608 - constants
    waiting = {kind for (kind,) in db.rows(about, [notifier, task, delivery.seq])}
    told = db.row(f"SELECT 1 FROM told WHERE {_SAME}", [notifier, delivery.kind, task])  # noqa: S608 - constants
    cancelled = db.row("SELECT 1 FROM deliveries WHERE seq = ?", [delivery.seq]) is None or told is None
    if cancelled or not waiting.isdisjoint(kinds) or _is_acknowledged(db, task, delivery.created_at, now_ms):
        return
    title = f"{_REMINDER}{delivery.title.removeprefix(_REMINDER)}"
    add(db, delivery._replace(title=title, created_at=now_ms, due_at=due_at, held=False, attempts=0), 0)


def cancel_unacked(db: Database, task_name: str, now_ms: int, kinds: Collection[str] | None = None) -> None:
    """Drop the messages about a task that waited for an acknowledgement; `kinds`: only these."""
    rows = db.rows(f"SELECT seq, notifier, kind FROM deliveries WHERE {_ABOUT} AND {_UNACKED}", [task_name])  # noqa: S608 - constants
    for seq, notifier, kind in rows:
        if kinds is None or kind in kinds:
            _drop(db, [seq])
            # A notifier that was never told of the problem need not hear of its end.
            db.execute(f"DELETE FROM told WHERE {_SAME} AND at > ?", [notifier, kind, task_name, now_ms])  # noqa: S608 - constants


def _is_acknowledged(db: Database, task_name: str, since: int, now_ms: int) -> bool:
    """Return whether a task was acknowledged at a time or later, or for a time that has not passed."""
    row = db.row("SELECT acknowledged FROM tasks WHERE name = ?", [task_name])
    if row is None or row[0] is None:
        return False
    stored = json.loads(row[0])
    return bool(stored["at"] >= since or (stored["until"] or 0) > now_ms)


def _note(db: Database, same: list[str], at: int) -> None:
    db.execute(
        "INSERT INTO told (notifier, kind, task_name, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (notifier, kind, task_name) DO UPDATE SET at = excluded.at",
        [*same, at],
    )


def end_of_trouble(
    db: Database, kinds: Collection[str], task_name: str, now_ms: int, held_since: int | None = None
) -> set[str]:
    """Forget and return the notifiers that were told of these kinds of problems with a task.

    Messages that wait since `held_since` or later are dropped: their notifiers need not hear of the problem.
    """
    cancel_unacked(db, task_name, now_ms, kinds)
    notified = set()
    for kind in kinds:
        about = [kind, task_name]
        told = db.rows("SELECT notifier, at FROM told WHERE kind = ? AND task_name = ?", about)
        db.execute("DELETE FROM told WHERE kind = ? AND task_name = ?", about)
        dropped = set()
        if held_since is not None:
            held = "kind = ? AND task_name = ? AND held = 1 AND attempts = 0 AND created_at >= ?"
            rows = db.rows(f"SELECT notifier FROM deliveries WHERE {held}", [*about, held_since])  # noqa: S608 - constants
            dropped = {name for (name,) in rows}
            db.execute(f"DELETE FROM deliveries WHERE {held}", [*about, held_since])  # noqa: S608 - constants
        notified |= {name for name, at in told if name not in dropped or at <= now_ms}
    return notified


def standings(db: Database) -> dict[str, DeliveryStatus]:
    """Return the results of deliveries by notifier; notifiers without any delivery are missing."""
    counts = db.rows(f"SELECT notifier, count(*) FROM deliveries WHERE NOT ({_UNACKED}) GROUP BY 1")  # noqa: S608 - constants
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
