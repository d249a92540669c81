"""Idempotency keys of clients: for a day, the same key returns the same run."""

from typing import NamedTuple

from store.database import Database

KEPT_MS = 24 * 3_600_000


class KeyClaim(NamedTuple):
    """The request that used a key.

    Attributes:
        run_id: The run that it created.
        request: Hash of the request.
    """

    run_id: str
    request: str


def find(db: Database, key: str, now_ms: int) -> KeyClaim | None:
    """Return the claim of a key; None if the key is new, or its claim is a day old."""
    row = db.row("SELECT run_id, request FROM trigger_keys WHERE key = ? AND created_at > ?", [key, now_ms - KEPT_MS])
    return None if row is None else KeyClaim(*row)


def adopt(db: Database, key: str, run_id: str, request: str, created_at: int) -> None:
    """Store a claim from another database, made at `created_at`, unless the key already has one."""
    db.execute(
        "INSERT INTO trigger_keys (key, run_id, request, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [key, run_id, request, created_at],
    )


def claim(db: Database, key: str, run_id: str, request: str, now_ms: int) -> None:
    """Claim a key for a run.

    Raises:
        Conflict: The key was already claimed within the last day.
    """
    db.execute("DELETE FROM trigger_keys WHERE key = ? AND created_at <= ?", [key, now_ms - KEPT_MS])
    db.execute(
        "INSERT INTO trigger_keys (key, run_id, request, created_at) VALUES (?, ?, ?, ?)",
        [key, run_id, request, now_ms],
    )


def prune(db: Database, now_ms: int) -> None:
    """Remove claims that are a day old."""
    db.execute("DELETE FROM trigger_keys WHERE created_at <= ?", [now_ms - KEPT_MS])
