"""Resolves users and groups to ids, with the variables that a login would set."""

import grp
import os
import pwd
from dataclasses import dataclass

CLEAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of runs that inherit nothing from the daemon's environment."""


class NoSuchAccount(Exception):
    """A user or group does not exist, or the daemon may not use it; the message says which and why."""


@dataclass(frozen=True)
class UnixAccount:
    """The user and groups of a process."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """The ids of all groups, as initgroups(3) would set them."""
    variables: dict[str, str]
    """HOME, USER, LOGNAME and SHELL; empty for an id without an account."""

    @property
    def is_own(self) -> bool:
        """Return whether these are the daemon's own user and group."""
        return (self.uid, self.gid) == (os.geteuid(), os.getegid())


def resolve(text: str) -> UnixAccount:
    """Return the account for ``name`` or ``name:group``. This queries the name service.

    Raises:
        NoSuchAccount: the user or group does not exist, or only root could switch to it.
    """
    name, _, group = text.partition(":")
    entry = _user(name)
    if entry is not None:
        gid = group_id(group) if group else entry.pw_gid
        account = UnixAccount(entry.pw_uid, gid, tuple(os.getgrouplist(entry.pw_name, gid)), _variables(entry))
    elif _is_number(name) and group:
        account = UnixAccount(int(name), group_id(group), (group_id(group),), {})
    else:
        raise NoSuchAccount(f"no such user: {name}" + (" (a number needs a group)" if _is_number(name) else ""))
    if os.geteuid() != 0 and not account.is_own:
        raise NoSuchAccount(f"only root can run commands as {text}, and the daemon runs as user {os.geteuid()}")
    return account


def system_user(name: str, home: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that create a system user and its group with the tools of this host."""
    import shutil

    if shutil.which("useradd") or not shutil.which("adduser"):
        return (("useradd", "--system", "--user-group", "--home-dir", home, "--shell", "/usr/sbin/nologin", name),)
    # busybox
    return (
        ("addgroup", "-S", name),
        ("adduser", "-S", "-D", "-H", "-h", home, "-s", "/sbin/nologin", "-G", name, name),
    )


def own_variables() -> dict[str, str]:
    """Return the variables that a login of the daemon's user would set; empty if the user has no account."""
    try:
        return _variables(pwd.getpwuid(os.geteuid()))
    except KeyError:
        return {}


def _user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    try:
        return pwd.getpwuid(int(name)) if _is_number(name) else None
    except KeyError:
        return None


def _is_number(name: str) -> bool:
    """Whether `name` can be a user id or group id. Ids have 32 bits, and the highest value means "no change"."""
    return name.isascii() and name.isdigit() and int(name) < 2**32 - 1


def user_id(name: str) -> int:
    """Return the id of a user, by name or number. This queries the name service.

    Raises:
        NoSuchAccount: the user does not exist.
    """
    entry = _user(name)
    if entry is None and not _is_number(name):
        raise NoSuchAccount(f"no such user: {name}")
    return int(name) if entry is None else entry.pw_uid


def group_id(name: str) -> int:
    """Return the id of a group, by name or number. This queries the name service.

    Raises:
        NoSuchAccount: the group does not exist.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if _is_number(name):
            return int(name)
        raise NoSuchAccount(f"no such group: {name}") from None


def _variables(entry: pwd.struct_passwd) -> dict[str, str]:
    return {
        "HOME": entry.pw_dir or "/",
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
    }
