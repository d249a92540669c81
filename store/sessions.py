"""Web sessions, by the hash of their secret. One ends 30 days after the login, or 7 days after its last use."""

from typing import NamedTuple

from store.database import Database
from store.models import SessionModel

MAX_AGE_MS = 30 * 86_400_000
MAX_IDLE_MS = 7 * 86_400_000


class Session(NamedTuple):
    """A session; times in ms since the epoch.

    Attributes:
        hash: Hash of the secret that the browser holds.
        password_tag: Stands for the account and the password that was used: a changed password ends the sessions of
            the old one.
    """

    hash: str
    password_tag: str
    created_at: int
    last_used_at: int


def create(db: Database, secret_hash: str, password_tag: str, now_ms: int) -> None:
    """Store a new session; a repeat of the same command changes nothing."""
    query = SessionModel.insert(hash=secret_hash, password_tag=password_tag, created_at=now_ms, last_used_at=now_ms)
    db.apply(query.on_conflict_ignore())


def get(db: Database, secret_hash: str, now_ms: int) -> Session | None:
    """Return a session that has not ended, or None."""
    rows = db.fetch(SessionModel.select().where(SessionModel.hash == secret_hash).tuples())
    if not rows:
        return None
    session = Session(*rows[0])
    ended = now_ms >= session.created_at + MAX_AGE_MS or now_ms >= session.last_used_at + MAX_IDLE_MS
    return None if ended else session


def touch(db: Database, secret_hash: str, now_ms: int) -> bool:
    """Note that a session was used; returns whether it exists."""
    return db.apply(SessionModel.update(last_used_at=now_ms).where(SessionModel.hash == secret_hash)) > 0


def delete(db: Database, secret_hash: str) -> bool:
    """End a session; returns whether it existed."""
    return db.apply(SessionModel.delete().where(SessionModel.hash == secret_hash)) > 0


def delete_of_former_passwords(db: Database, password_tag: str) -> int:
    """End the sessions of former passwords for good, should one of these be the password again; returns how many.

    Args:
        db: The database.
        password_tag: Stands for the password of the account `admin`. The table of accounts has the other tags.
    """
    query = "DELETE FROM sessions WHERE password_tag != ? AND password_tag NOT IN (SELECT tag FROM accounts)"
    return db.execute(query, [password_tag])


def delete_expired(db: Database, now_ms: int) -> int:
    """Remove the sessions that have ended by their age; returns how many."""
    too_old = SessionModel.created_at <= now_ms - MAX_AGE_MS
    too_idle = SessionModel.last_used_at <= now_ms - MAX_IDLE_MS
    return db.apply(SessionModel.delete().where(too_old | too_idle))
