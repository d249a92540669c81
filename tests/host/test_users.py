"""Users and groups as numbers."""

import grp
import os
import pwd

import pytest

from supervisor.host import users
from supervisor.host.users import NoSuchAccount, own_variables, resolve

NOBODY = pwd.getpwnam("nobody")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")


@as_root
def test_a_user_by_name() -> None:
    """With the groups that it is in, and the variables of a login."""
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
def test_a_group_besides() -> None:
    """It takes the place of the user's own."""
    account = resolve("nobody:daemon")
    assert account.gid == grp.getgrnam("daemon").gr_gid
    assert account.gid in account.groups


@as_root
def test_numbers() -> None:
    """A number names a known user, or, with a group, an unknown one."""
    assert resolve(str(NOBODY.pw_uid)).variables["USER"] == "nobody"
    assert resolve("12345678:87654321") == users.Account(12345678, 87654321, (87654321,), {})


@pytest.mark.parametrize("text", ["no-such-user", "12345678", "root:no-such-group", "99999999999:1"])
def test_nobody(text: str) -> None:
    """Who does not exist is named."""
    with pytest.raises(NoSuchAccount, match=r"no such (user|group): (no-such|12345678|99999999999)"):
        resolve(text)


def test_only_root_becomes_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may name themselves, which changes nothing."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY.pw_uid)
    monkeypatch.setattr(os, "getegid", lambda: NOBODY.pw_gid)
    assert resolve("nobody").is_own
    assert own_variables()["USER"] == "nobody"
    with pytest.raises(NoSuchAccount, match="only root"):
        resolve("root")
