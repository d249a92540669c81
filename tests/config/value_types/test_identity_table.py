"""``[http.identity]``: accepted values, and error messages."""

from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.problems import ConfigError, UnusableObject
from supervisor.config.value_records import ProxyIdentity
from supervisor.startup import api_exposure

HTTP = '[http]\nbehind_proxy = ["127.0.0.1"]\n'


def loaded(tmp_path: Path, text: str, http: str = HTTP) -> ProxyIdentity | None:
    path = tmp_path / "ringward.toml"
    path.write_text(f"{http}{text}")
    return load(str(path)).http.identity


def test_defaults(tmp_path: Path) -> None:
    """The header names have defaults, and the secret's path starts from the file."""
    text = '[http.identity]\nsecret_file = "s"\nroles = { admins = "admin", "*" = "viewer" }\n'
    assert loaded(tmp_path, text) == ProxyIdentity(
        secret_file=str(tmp_path / "s"),
        roles=(("admins", "admin"), ("*", "viewer")),
        user_header="Remote-User",
        groups_header="Remote-Groups",
        secret_header="Ringward-Proxy-Secret",
    )
    assert loaded(tmp_path, "") is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('roles = { "*" = "viewer" }', "has no secret_file"),
        ('secret_file = "s"', "has no roles"),
        ('secret_file = "s"\nroles = {}', "must be a table such as"),
        ('secret_file = "s"\nroles = { a = "root" }', 'must be "viewer" or "operator" or "admin"'),
        ('secret_file = "s"\nroles = { a = "cloud" }', 'must be "viewer" or "operator" or "admin"'),
        ('secret_file = "s"\nroles = { " a" = "viewer" }', "is not the name of a group"),
        ('secret_file = "s"\nroles = { a = "viewer" }\nuser_header = "Remote_User"', "must be the name of a header"),
        ('secret_file = "s"\nroles = { a = "viewer" }\nuser_header = "Cookie"', "has another meaning"),
        ('secret_file = "s"\nroles = { a = "viewer" }\nuser_header = "X-Forwarded-For"', "has another meaning"),
        ('secret_file = "s"\nroles = { a = "viewer" }\nuser_header = "remote-groups"', "needs three different headers"),
        ('secret_file = "s"\nroles = { a = "viewer" }\nheader = "x"', "unknown key"),
    ],
)
def test_errors(tmp_path: Path, keys: str, message: str) -> None:
    """Each error names its place."""
    with pytest.raises(ConfigError, match=message) as refused:
        loaded(tmp_path, f"[http.identity]\n{keys}\n")
    assert "http.identity" in str(refused.value)


def test_identity_needs_behind_proxy(tmp_path: Path) -> None:
    """Identity without a trusted proxy is refused, because no header would be believed."""
    text = '[http.identity]\nsecret_file = "s"\nroles = { "*" = "viewer" }\n'
    with pytest.raises(ConfigError, match="needs behind_proxy"):
        loaded(tmp_path, text, "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the secret file"),
        ("", "is shorter than 32 characters"),
        ("x" * 31, "is shorter than 32 characters"),
        ("x" * 32 + "\nmore", "is not one line of letters"),
        ("x" * 32 + ",y", "is not one line of letters"),
        ("\u00e9" * 32, "is not one line of letters"),
    ],
)
def test_unusable_secrets(tmp_path: Path, content: str | None, message: str) -> None:
    """The error names the file, the key and a remedy, and never the secret."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UnusableObject, match=message) as refused:
        api_exposure.identity_of(ProxyIdentity(secret_file=str(path), roles=(("*", "viewer"),)))
    assert str(path) in str(refused.value)
    assert refused.value.path == ("http", "identity", "secret_file")
    assert "openssl" in str(refused.value.remedy)
    assert not content or content not in str(refused.value)
