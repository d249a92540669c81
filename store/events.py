"""The outbox: events, numbered 1, 2, 3 … without a gap, stored in the transaction of the change that they report.

Each number is one more than the number of the newest event, which is never pruned, so numbers never restart. A
transaction or savepoint that is rolled back returns its numbers.
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
"""Rows of one statement; each number of rows is a statement of its own to the database."""
_encode = msgspec.json.Encoder().encode


class Draft(NamedTuple):
    """An event that has no number yet; `created_at` in ms since the epoch, `body` the JSON text of an object."""

    kind: str
    created_at: int
    body: str


class Event(NamedTuple):
    """One event; `created_at` in ms since the epoch."""

    seq: int
    kind: str
    created_at: int
    body: dict[str, object]


def draft(kind: str, body: dict[str, object], now_ms: int) -> Draft:
    """Return an event to be appended."""
    return Draft(kind, now_ms, _encode(body).decode())


def append(db: Database, kind: str, body: dict[str, object], now_ms: int) -> int:
    """Store one event, as `append_all` does; returns its number."""
    return append_all(db, [draft(kind, body, now_ms)])


def append_all(db: Database, drafts: Sequence[Draft]) -> int:
    """Store events in their order, in the caller's transaction if there is one; returns the number of the first."""
    first = last_seq(db) + 1
    for begin in range(0, len(drafts), _TOGETHER):
        part = drafts[begin : begin + _TOGETHER]
        values: list[Value] = []
        for number, one in enumerate(part, first + begin):
            values += (number, *one)
        db.execute(_insert(len(part)), values)
    return first


@functools.cache
def _insert(count: int) -> str:
    rows = ", ".join(["(?, ?, ?, ?)"] * count)
    return f"INSERT INTO outbox (seq, kind, created_at, body) VALUES {rows}"  # noqa: S608 - question marks


def since(db: Database, seq: int, limit: int = 1000) -> list[Event]:
    """Return the events after number `seq`, oldest first."""
    query = OutboxModel.select().where(OutboxModel.seq > seq).order_by(OutboxModel.seq).limit(limit)
    return [Event(number, kind, at, json.loads(body)) for number, kind, at, body in db.fetch(query.tuples())]


def last_seq(db: Database) -> int:
    """Return the number of the newest event there ever was; 0: none yet."""
    row = db.row("SELECT COALESCE(max(seq), 0) FROM outbox")
    return int(row[0]) if row else 0


def prune(db: Database, keep: int) -> int:
    """Remove all but the newest `keep` events, at least one; returns how many were removed."""
    return db.apply(OutboxModel.delete().where(OutboxModel.seq <= last_seq(db) - max(1, keep)))
