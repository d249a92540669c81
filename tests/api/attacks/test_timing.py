"""Secrets and the time of their comparison: each is compared in constant time."""

import hashlib
import hmac
from typing import Any

import pytest

from api.auth.identity import hash_secret
from api.auth.passwords import Passwords, WrongPassword, hash_password
from store.accounts import Account
from supervisor.ipc.control_client import ControlClient

PASSWORD = "correct horse battery"


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Every pair that is compared in constant time."""
    pairs: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def note(first: Any, other: Any) -> bool:
        pairs.append((first, other))
        return real(first, other)

    monkeypatch.setattr(hmac, "compare_digest", note)
    return pairs


@pytest.mark.parametrize(
    "guess", ["", "c", "correct horse batterx", "correct horse battery", "x" * 100_000, "\udcff", "пароль"]
)
def test_passwords(compared: list[tuple[bytes, bytes]], guess: str) -> None:
    """Every password is compared once, as a whole and in constant time, by digests of equal length."""
    passwords = Passwords(PASSWORD, ControlClient("/nowhere", "token"), lambda _name: None)
    if guess == PASSWORD:
        passwords.check("", guess, None)
    else:
        with pytest.raises(WrongPassword):
            passwords.check("", guess, None)
    ((first, other),) = compared
    assert {len(first), len(other)} == {hashlib.sha256().digest_size}


@pytest.mark.parametrize("user", ["known", "unknown", "x" * 200])
def test_names(monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    """An unknown account name costs as much hashing as a wrong password does."""
    account = Account("known", hash_password("right"), "t", "viewer", None, 0, "x", 0)
    tags = {"known": account}
    passwords = Passwords(PASSWORD, ControlClient("/nowhere", "token"), tags.get)
    with pytest.raises(WrongPassword):
        passwords.check(user, "first", None)
    hashed: list[dict[str, int]] = []
    real = hashlib.scrypt

    def note(data: bytes, **parameters: Any) -> bytes:
        hashed.append({name: parameters[name] for name in ("n", "r", "p", "dklen")})
        return real(data, **parameters)

    monkeypatch.setattr(hashlib, "scrypt", note)
    with pytest.raises(WrongPassword):
        passwords.check(user, "wrong", None)
    assert hashed == [{"n": 16384, "r": 8, "p": 5, "dklen": 32}]


def test_sessions_and_tokens() -> None:
    """Sessions and tokens are looked up by a digest, so a partial match reveals nothing."""
    digests = [hash_secret(secret) for secret in ("rw_a", "rw_b", "rw_", "\udcff")]
    assert {len(digest) for digest in digests} == {64}
    assert len({digest[:8] for digest in digests}) == len(digests)
