"""Web sessions, by the hash of their secret. A session ends 30 days after login, or 7 days after its last use."""

from typing import NamedTuple

from store.database import Database
from store.models import SessionModel

MAX_AGE_MS = 30 * 86_400_000
MAX_IDLE_MS = 7 * 86_400_000


class Session(NamedTuple):
    """A session; times in ms since the epoch.

    Attributes:
        hash: Hash of the secret that the browser has.
        password_tag: Identifies the account and its password at login, so a changed password ends the session.
    """

    hash: str
    password_tag: str
    created_at: int
    last_used_at: int


def create(db: Database, secret_hash: str, password_tag: str, now_ms: int) -> None:
    """Store a new session. A repeated call for the same session changes nothing."""
    query = SessionModel.insert(hash=secret_hash, password_tag=password_tag, created_at=now_ms, last_used_at=now_ms)
    db.apply(query.on_conflict_ignore())


def get(db: Database, secret_hash: str, now_ms: int) -> Session | None:
    """Return a session; None if it does not exist or has ended."""
    rows = db.fetch(SessionModel.select().where(SessionModel.hash == secret_hash).tuples())
    if not rows:
        return None
    session = Session(*rows[0])
    ended = now_ms >= session.created_at + MAX_AGE_MS or now_ms >= session.last_used_at + MAX_IDLE_MS
    return None if ended else session


def touch(db: Database, secret_hash: str, now_ms: int) -> bool:
    """Record the use of a session; return whether it exists."""
    return db.apply(SessionModel.update(last_used_at=now_ms).where(SessionModel.hash == secret_hash)) > 0


def delete(db: Database, secret_hash: str) -> bool:
    """End a session; return whether it existed."""
    return db.apply(SessionModel.delete().where(SessionModel.hash == secret_hash)) > 0


def delete_of_former_passwords(db: Database, password_tag: str) -> int:
    """Delete sessions of former passwords, so they stay ended if the password is used again; return their number.

    Args:
        db: A writer.
        password_tag: Tag of the current password of `admin`. The table of accounts has all other tags.
    """
    query = "DELETE FROM sessions WHERE password_tag != ? AND password_tag NOT IN (SELECT tag FROM accounts)"
    return db.execute(query, [password_tag])


def delete_expired(db: Database, now_ms: int) -> int:
    """Remove expired sessions; return their number."""
    too_old = SessionModel.created_at <= now_ms - MAX_AGE_MS
    too_idle = SessionModel.last_used_at <= now_ms - MAX_IDLE_MS
    return db.apply(SessionModel.delete().where(too_old | too_idle))
