"""Tokens of the API, by the hash of their secret; the secret itself is never stored."""

from typing import NamedTuple

from store.database import Database

MAX_TOKENS = 1000
TOUCH_MS = 60_000
"""How old a token's last use is before another one is stored."""

_COLUMNS = "name, hash, role, tasks, created_at, created_by, expires_at, last_used_at"


class Token(NamedTuple):
    """A token; times in ms since the epoch.

    Attributes:
        name: Unique among tokens that were not revoked.
        hash: Hash of the secret.
        role: In the words of the API.
        tasks: Glob of the only tasks that it may see; None: all.
        created_by: Who made it, for people.
        expires_at: None: never.
        last_used_at: Exact to a minute; None: never used.
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
    """Store a new token; a repeat of the same command changes nothing.

    Returns:
        None when it is stored, else the obstacle: "taken" (its name) or "full" (there are too many).
    """
    with db.transaction() as view:
        found = view.row("SELECT hash FROM tokens WHERE name = ?", [token.name])
        if found is not None:
            return None if found[0] == token.hash else "taken"
        count = view.row("SELECT count(*) FROM tokens")
        if count is not None and count[0] >= MAX_TOKENS:
            return "full"
        view.execute(f"INSERT INTO tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", token)  # noqa: S608 - constants
    return None


def find(db: Database, secret_hash: str, now_ms: int) -> Token | None:
    """Return the token with this hash, unless it has expired."""
    row = db.row(f"SELECT {_COLUMNS} FROM tokens WHERE hash = ?", [secret_hash])  # noqa: S608 - constants
    if row is None:
        return None
    token = Token(*row)
    return None if token.expires_at is not None and now_ms >= token.expires_at else token


def all_tokens(db: Database) -> list[Token]:
    """Return all tokens by name, the expired ones too."""
    return [Token(*row) for row in db.rows(f"SELECT {_COLUMNS} FROM tokens ORDER BY name")]  # noqa: S608 - constants


def touch(db: Database, secret_hash: str, now_ms: int) -> bool:
    """Note that a token was used; returns whether that was stored: not when the last time was a moment ago.

    A last time that is still to come was told by a clock that has been set back since.
    """
    return (
        db.execute(
            "UPDATE tokens SET last_used_at = ? WHERE hash = ? AND coalesce(last_used_at, 0) NOT BETWEEN ? AND ?",
            [now_ms, secret_hash, now_ms - TOUCH_MS + 1, now_ms],
        )
        > 0
    )


def delete(db: Database, name: str) -> bool:
    """Revoke a token; returns whether there was one of that name."""
    return db.execute("DELETE FROM tokens WHERE name = ?", [name]) > 0
