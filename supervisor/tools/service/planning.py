"""The plan of an init system by its name."""

import pwd
import shutil
from dataclasses import replace

from supervisor.config.files.lookup import API_USER
from supervisor.tools.service import openrc, runit, s6, systemd
from supervisor.tools.service.detection import scan_directory
from supervisor.tools.service.plan import Command, Plan, Wanted


def plan(kind: str, wanted: Wanted, scan: str | None = None) -> Plan:
    """Return the files and commands of one installation.

    Args:
        kind: one of :data:`supervisor.tools.service.detection.KINDS`.
        wanted: how the daemon is to run.
        scan: the directory in which s6-svscan or runsvdir look for services; None: the usual one that exists.
    """
    if kind == "systemd":
        return systemd.plan(wanted)
    if kind == "openrc":
        found = openrc.plan(wanted)
    elif kind == "s6":
        found = s6.plan(wanted, scan or scan_directory(s6.SCAN_DIRECTORIES))
    else:
        found = runit.plan(wanted, scan or scan_directory(runit.SCAN_DIRECTORIES))
    return replace(found, enable=(*_user(wanted), *found.enable))


def _user(wanted: Wanted) -> tuple[Command, ...]:
    """Return the parts that create the user with access to the configuration; systemd's files do this themselves."""
    if wanted.user is None:
        return _made(API_USER, wanted.data)
    readable: tuple[Command, ...] = (
        ("chown", f"root:{wanted.user}", wanted.config),
        ("chmod", "0640", wanted.config),
    )
    return (*_made(wanted.user, wanted.data), *readable)


def _made(user: str, home: str) -> tuple[Command, ...]:
    try:
        pwd.getpwnam(user)
    except KeyError:
        pass
    else:
        return ()
    if shutil.which("useradd") or not shutil.which("adduser"):
        return (("useradd", "--system", "--user-group", "--home-dir", home, "--shell", "/usr/sbin/nologin", user),)
    # busybox
    return (
        ("addgroup", "-S", user),
        ("adduser", "-S", "-D", "-H", "-h", home, "-s", "/sbin/nologin", "-G", user, user),
    )
