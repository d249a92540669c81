"""Resolution of users and groups to numbers."""

import grp
import os
import pwd

import pytest

from supervisor.host import unix_accounts
from supervisor.host.unix_accounts import NoSuchAccount, own_variables, resolve, system_user
from tests.support.paths import ROOT

NOBODY = pwd.getpwnam("nobody")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")


@as_root
def test_user_by_name() -> None:
    """A user is resolved with its groups and the variables of a login."""
    account = resolve("nobody")
    assert (account.uid, account.gid) == (NOBODY.pw_uid, NOBODY.pw_gid)
    assert account.groups == tuple(os.getgrouplist("nobody", NOBODY.pw_gid))
    assert account.variables == {
        "HOME": NOBODY.pw_dir,
        "USER": "nobody",
        "LOGNAME": "nobody",
        "SHELL": NOBODY.pw_shell,
    }
    assert not account.is_own


@as_root
def test_explicit_group() -> None:
    """An explicit group replaces the user's own."""
    account = resolve("nobody:daemon")
    assert account.gid == grp.getgrnam("daemon").gr_gid
    assert account.gid in account.groups


@as_root
def test_numbers() -> None:
    """A number names a known user, or, with a group, an unknown one."""
    assert resolve(str(NOBODY.pw_uid)).variables["USER"] == "nobody"
    assert resolve("12345678:87654321") == unix_accounts.UnixAccount(12345678, 87654321, (87654321,), {})


@pytest.mark.parametrize("text", ["no-such-user", "12345678", "root:no-such-group", "99999999999:1"])
def test_unknown_accounts(text: str) -> None:
    """The error for an unknown user or group names it."""
    with pytest.raises(NoSuchAccount, match=r"no such (user|group): (no-such|12345678|99999999999)"):
        resolve(text)


def test_unprivileged_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user other than root may name only itself, which changes nothing."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY.pw_uid)
    monkeypatch.setattr(os, "getegid", lambda: NOBODY.pw_gid)
    assert resolve("nobody").is_own
    assert own_variables()["USER"] == "nobody"
    with pytest.raises(NoSuchAccount, match="only root"):
        resolve("root")


def test_one_way_to_create_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documentation creates the user with the command that messages and ``service install`` show."""
    monkeypatch.setattr("shutil.which", lambda name: name)
    ((*words,),) = system_user("ringward", "/var/lib/ringward")
    assert f"$ {' '.join(words)}\n" in (ROOT / "docs/deployment.rst").read_text()
