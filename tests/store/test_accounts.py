import pytest

from store import accounts, sessions
from store.accounts import Account
from store.database import Database
from tests.store.making import T0


def account(name: str = "n", tag: str = "t") -> Account:
    return Account(name, "hash", tag, "viewer", "web-*", T0, "uid 0", T0)


def test_create_find_delete(writer: Database, reader: Database) -> None:
    """An account is found by its name and its tag until it is deleted; a repeated command changes nothing."""
    assert accounts.create(writer, account()) is None
    assert accounts.create(writer, account()) is None
    assert accounts.create(writer, account(tag="other")) == "taken"
    assert accounts.find(reader, "n") == accounts.by_tag(reader, "t") == account()
    assert accounts.find(reader, "m") is accounts.by_tag(reader, "other") is None
    assert accounts.all_accounts(reader) == [account()]
    assert accounts.delete(writer, "n")
    assert not accounts.delete(writer, "n")
    assert accounts.find(reader, "n") is None


def test_sessions_end_with_the_password(writer: Database) -> None:
    """A new password or a removal ends only this account's sessions; a repeated command ends no newer one."""
    accounts.create(writer, account())
    accounts.create(writer, account("m", "u"))
    for name, tag in (("a", "t"), ("b", "u"), ("c", "of admin")):
        sessions.create(writer, name, tag, T0)
    assert accounts.set_password(writer, "n", "other hash", "t2", T0 + 1)
    assert accounts.find(writer, "n") == account(tag="t2")._replace(
        password_hash="other hash", password_changed_at=T0 + 1
    )
    sessions.create(writer, "d", "t2", T0)
    assert accounts.set_password(writer, "n", "other hash", "t2", T0 + 2)
    assert [sessions.get(writer, token_hash, T0) is not None for token_hash in "abcd"] == [False, True, True, True]
    assert accounts.delete(writer, "n")
    assert [sessions.get(writer, token_hash, T0) is not None for token_hash in "abcd"] == [False, True, True, False]
    assert not accounts.set_password(writer, "n", "h", "x", T0)


def test_daemon_password_keeps_account_sessions(writer: Database) -> None:
    """A new password of the daemon ends its own sessions; the sessions of accounts stay."""
    accounts.create(writer, account())
    sessions.create(writer, "a", "t", T0)
    sessions.create(writer, "b", "former", T0)
    assert sessions.delete_of_former_passwords(writer, "present") == 1
    assert sessions.get(writer, "a", T0) is not None


def test_limit_of_accounts(writer: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of accounts has a limit."""
    monkeypatch.setattr(accounts, "MAX_ACCOUNTS", 1)
    accounts.create(writer, account())
    assert accounts.create(writer, account("m", "u")) == "full"
    assert accounts.create(writer, account()) is None
