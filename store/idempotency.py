"""Keys under which clients trigger runs: for a day the same key stands for the same run."""

from typing import NamedTuple

from store.database import Database

KEPT_MS = 24 * 3_600_000


class Claim(NamedTuple):
    """The request that a key stands for.

    Attributes:
        run_id: The run.
        request: Hash of the request.
    """

    run_id: str
    request: str


def find(db: Database, key: str, now_ms: int) -> Claim | None:
    """Return the claim of a key; None when it is new, or a day old."""
    row = db.row("SELECT run_id, request FROM trigger_keys WHERE key = ? AND created_at > ?", [key, now_ms - KEPT_MS])
    return None if row is None else Claim(*row)


def adopt(db: Database, key: str, run_id: str, request: str, created_at: int) -> None:
    """Let a key stand for a run, as it did from a time on in another database, unless it stands for one already."""
    db.execute(
        "INSERT INTO trigger_keys (key, run_id, request, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [key, run_id, request, created_at],
    )


def claim(db: Database, key: str, run_id: str, request: str, now_ms: int) -> None:
    """Let a key stand for a run, if it stands for none of the last day.

    Raises:
        Conflict: It stands for one already.
    """
    db.execute("DELETE FROM trigger_keys WHERE key = ? AND created_at <= ?", [key, now_ms - KEPT_MS])
    db.execute(
        "INSERT INTO trigger_keys (key, run_id, request, created_at) VALUES (?, ?, ?, ?)",
        [key, run_id, request, now_ms],
    )


def prune(db: Database, now_ms: int) -> None:
    """Forget the keys that are a day old."""
    db.execute("DELETE FROM trigger_keys WHERE created_at <= ?", [now_ms - KEPT_MS])
