"""The outbox: events numbered 1, 2, 3 … without gaps, stored in the transaction of the change that they report.

An event's number is one more than that of the newest event, which is never pruned, so numbers never restart. The
numbers of a transaction or savepoint that is rolled back are used again.
"""

import functools
import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from store.connection import Value
from store.database import Database
from store.models import OutboxModel

_TOGETHER = 16
"""Maximum number of rows in one statement. Each number of rows makes a different statement for the database."""
_encode = msgspec.json.Encoder().encode


class Draft(NamedTuple):
    """An event without a number. `created_at` is in ms since the epoch; `body` is the JSON text of an object."""

    kind: str
    created_at: int
    body: str


class Event(NamedTuple):
    """One event; `created_at` is in ms since the epoch."""

    seq: int
    kind: str
    created_at: int
    body: dict[str, object]


def draft(kind: str, body: dict[str, object], now_ms: int) -> Draft:
    """Return an event to append; `body` is encoded now."""
    return Draft(kind, now_ms, _encode(body).decode())


def append(db: Database, kind: str, body: dict[str, object], now_ms: int) -> int:
    """Store one event like `append_all`; return its number."""
    return append_all(db, [draft(kind, body, now_ms)])


def append_all(db: Database, drafts: Sequence[Draft]) -> int:
    """Store events in order, in the caller's transaction if there is one; return the number of the first."""
    first = last_seq(db) + 1
    for start in range(0, len(drafts), _TOGETHER):
        part = drafts[start : start + _TOGETHER]
        values: list[Value] = []
        for number, event in enumerate(part, first + start):
            values += (number, *event)
        db.execute(_insert(len(part)), values)
    return first


@functools.cache
def _insert(count: int) -> str:
    rows = ", ".join(["(?, ?, ?, ?)"] * count)
    return f"INSERT INTO outbox (seq, kind, created_at, body) VALUES {rows}"  # noqa: S608 - question marks


def since(db: Database, seq: int, limit: int = 1000) -> list[Event]:
    """Return at most `limit` events after number `seq`, oldest first."""
    query = OutboxModel.select().where(OutboxModel.seq > seq).order_by(OutboxModel.seq).limit(limit)
    return [Event(number, kind, at, json.loads(body)) for number, kind, at, body in db.fetch(query.tuples())]


def last_seq(db: Database) -> int:
    """Return the number of the newest event; 0 if there was none yet."""
    row = db.row("SELECT COALESCE(max(seq), 0) FROM outbox")
    return int(row[0]) if row else 0


def prune(db: Database, keep: int) -> int:
    """Remove all but the newest `keep` events, and never the newest; return the number removed."""
    return db.apply(OutboxModel.delete().where(OutboxModel.seq <= last_seq(db) - max(1, keep)))
