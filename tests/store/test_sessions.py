import pytest

from store import sessions
from store.database import Database
from store.sessions import MAX_AGE_MS, MAX_IDLE_MS, Session
from tests.store.making import T0


def test_create_touch_delete(writer: Database, reader: Database) -> None:
    """A session is found until it is deleted; a repeated creation changes nothing."""
    sessions.create(writer, "h", "tag", T0)
    sessions.create(writer, "h", "other", T0 + 1)
    assert sessions.get(reader, "h", T0) == Session("h", "tag", T0, T0)
    assert sessions.touch(writer, "h", T0 + 5)
    assert sessions.get(reader, "h", T0 + 6) == Session("h", "tag", T0, T0 + 5)
    assert sessions.get(reader, "x", T0) is None
    assert sessions.delete(writer, "h")
    assert not sessions.delete(writer, "h")
    assert not sessions.touch(writer, "h", T0)
    assert sessions.get(reader, "h", T0) is None


@pytest.mark.parametrize(
    ("used", "now", "alive"),
    [
        (0, MAX_IDLE_MS - 1, True),
        (0, MAX_IDLE_MS, False),
        (MAX_AGE_MS - 10, MAX_AGE_MS - 1, True),
        (MAX_AGE_MS - 10, MAX_AGE_MS, False),
    ],
)
def test_expiry(writer: Database, used: int, now: int, alive: bool) -> None:
    """A session ends 30 days after the login or 7 days after its last use, and is not removed before."""
    sessions.create(writer, "h", "tag", T0)
    sessions.touch(writer, "h", T0 + used)
    assert (sessions.get(writer, "h", T0 + now) is not None) is alive
    assert sessions.delete_expired(writer, T0 + now) == (0 if alive else 1)


def test_former_passwords(writer: Database) -> None:
    """Sessions of other passwords end; sessions of the current password stay."""
    for secret_hash, tag in (("a", "old"), ("b", "new"), ("c", "older")):
        sessions.create(writer, secret_hash, tag, T0)
    assert sessions.delete_of_former_passwords(writer, "new") == 2
    assert [sessions.get(writer, token_hash, T0) is not None for token_hash in "abc"] == [False, True, False]
