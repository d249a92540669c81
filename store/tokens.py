"""API tokens, by the hash of their secret. The secret itself is never stored."""

from typing import NamedTuple

from store.database import Database

MAX_TOKENS = 1000
TOUCH_MS = 60_000
"""Minimum time between two stored uses of a token."""

_COLUMNS = "name, hash, role, tasks, created_at, created_by, expires_at, last_used_at"


class Token(NamedTuple):
    """A token; times in ms since the epoch.

    Attributes:
        name: Name, unique among tokens that were not revoked.
        hash: Hash of the secret.
        role: Name of the role, as in the API.
        tasks: Glob pattern of the tasks that the token may see; None for all tasks.
        created_by: The user who created the token, as text.
        expires_at: When the token expires; None for never.
        last_used_at: Time of the last use, to the minute; None if it was never used.
    """

    name: str
    hash: str
    role: str
    tasks: str | None
    created_at: int
    created_by: str
    expires_at: int | None
    last_used_at: int | None


def create(db: Database, token: Token) -> str | None:
    """Store a new token. A repeated call with the same token changes nothing.

    Returns:
        None if the token is stored; "taken" if another token has its name; "full" if there are too many tokens.
    """
    with db.transaction() as view:
        row = view.row("SELECT hash FROM tokens WHERE name = ?", [token.name])
        if row is not None:
            return None if row[0] == token.hash else "taken"
        count = view.row("SELECT count(*) FROM tokens")
        if count is not None and count[0] >= MAX_TOKENS:
            return "full"
        view.execute(f"INSERT INTO tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", token)  # noqa: S608 - constants
    return None


def find(db: Database, secret_hash: str, now_ms: int) -> Token | None:
    """Return the token with this hash; None if there is none, or if it has expired."""
    row = db.row(f"SELECT {_COLUMNS} FROM tokens WHERE hash = ?", [secret_hash])  # noqa: S608 - constants
    if row is None:
        return None
    token = Token(*row)
    return None if token.expires_at is not None and now_ms >= token.expires_at else token


def all_tokens(db: Database) -> list[Token]:
    """Return all tokens, including expired ones, sorted by name."""
    return [Token(*row) for row in db.rows(f"SELECT {_COLUMNS} FROM tokens ORDER BY name")]  # noqa: S608 - constants


def touch(db: Database, secret_hash: str, now_ms: int) -> bool:
    """Record the use of a token, unless a use within the last minute is recorded; return whether it was stored.

    A recorded use in the future is replaced: the clock has been set back since.
    """
    return (
        db.execute(
            "UPDATE tokens SET last_used_at = ? WHERE hash = ? AND coalesce(last_used_at, 0) NOT BETWEEN ? AND ?",
            [now_ms, secret_hash, now_ms - TOUCH_MS + 1, now_ms],
        )
        > 0
    )


def delete(db: Database, name: str) -> bool:
    """Revoke a token; return whether there was one of that name."""
    return db.execute("DELETE FROM tokens WHERE name = ?", [name]) > 0
