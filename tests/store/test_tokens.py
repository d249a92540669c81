import pytest

from store import tokens
from store.database import Database
from store.errors import Conflict
from store.tokens import TOUCH_MS, Token
from tests.store.making import T0


def token(name: str = "n", secret_hash: str = "h", expires_at: int | None = None) -> Token:
    return Token(name, secret_hash, "viewer", "web-*", T0, "uid 0", expires_at, None)


def test_create_find_delete(writer: Database, reader: Database) -> None:
    """A token is found by its hash until it is deleted; a repeated command changes nothing."""
    assert tokens.create(writer, token()) is None
    assert tokens.create(writer, token()) is None
    assert tokens.create(writer, token(secret_hash="other")) == "taken"
    assert tokens.find(reader, "h", T0) == token()
    assert tokens.find(reader, "other", T0) is None
    assert tokens.all_tokens(reader) == [token()]
    assert tokens.delete(writer, "n")
    assert not tokens.delete(writer, "n")
    assert tokens.find(reader, "h", T0) is None


def test_duplicate_secret(writer: Database) -> None:
    """Two tokens cannot have the same secret."""
    tokens.create(writer, token())
    with pytest.raises(Conflict):
        tokens.create(writer, token("m"))


def test_expiry(writer: Database) -> None:
    """A token is not found from its expiry time on, but is still listed."""
    tokens.create(writer, token(expires_at=T0 + 10))
    assert tokens.find(writer, "h", T0 + 9) is not None
    assert tokens.find(writer, "h", T0 + 10) is None
    assert len(tokens.all_tokens(writer)) == 1


def test_last_use(writer: Database) -> None:
    """The last use is stored at most once a minute, whichever worker reports it."""
    tokens.create(writer, token())
    assert tokens.touch(writer, "h", T0)
    assert not tokens.touch(writer, "h", T0 + TOUCH_MS - 1)
    assert tokens.touch(writer, "h", T0 + TOUCH_MS)
    assert not tokens.touch(writer, "x", T0)
    assert tokens.all_tokens(writer)[0].last_used_at == T0 + TOUCH_MS
    assert tokens.touch(writer, "h", T0), "the clock was set back"
    assert tokens.all_tokens(writer)[0].last_used_at == T0


def test_limit_of_tokens(writer: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of tokens is limited, and the error says so."""
    monkeypatch.setattr(tokens, "MAX_TOKENS", 1)
    tokens.create(writer, token())
    assert tokens.create(writer, token("m", "i")) == "full"
    assert tokens.create(writer, token()) is None
