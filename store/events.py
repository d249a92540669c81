"""The outbox: events, numbered 1, 2, 3 … without a gap, in the transaction that makes what they tell of true.

Each number is one more than that of the newest event, which is never pruned, so that numbers go on; and a transaction
or savepoint that is rolled back gives its numbers back.
"""

import json
from typing import Any, NamedTuple

from store.database import Database
from store.models import OutboxModel


class Event(NamedTuple):
    """One event; `created_at` in ms since the epoch."""

    seq: int
    kind: str
    created_at: int
    body: dict[str, Any]


_INSERT = (
    "INSERT INTO outbox (seq, kind, created_at, body)"
    " VALUES ((SELECT COALESCE(max(seq), 0) + 1 FROM outbox), ?, ?, ?) RETURNING seq"
)


def append(db: Database, kind: str, body: dict[str, Any], now_ms: int) -> int:
    """Store an event, in the caller's transaction if there is one; returns its number."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    row = db.row(_INSERT, [kind, now_ms, text])
    return int(row[0]) if row else 0


def since(db: Database, seq: int, limit: int = 1000) -> list[Event]:
    """The events after number `seq`, oldest first."""
    query = OutboxModel.select().where(OutboxModel.seq > seq).order_by(OutboxModel.seq).limit(limit)
    return [Event(number, kind, at, json.loads(body)) for number, kind, at, body in db.fetch(query.tuples())]


def last_seq(db: Database) -> int:
    """The number of the newest event there ever was; 0: none yet."""
    row = db.row("SELECT COALESCE(max(seq), 0) FROM outbox")
    return int(row[0]) if row else 0


def prune(db: Database, keep: int) -> int:
    """Remove all but the newest `keep` events, at least one; returns how many were removed."""
    return db.apply(OutboxModel.delete().where(OutboxModel.seq <= last_seq(db) - max(1, keep)))
