"""Returns the plan for an init system: systemd, OpenRC, or the service directory of s6 or runit.

Under OpenRC, supervise-daemon(8) restarts the daemon. Under s6, the daemon writes to a descriptor when it is ready;
s6-rc also accepts the directory as a service definition.
"""

import pwd
import shlex
import shutil
from dataclasses import replace

from supervisor.config.files.lookup import API_USER
from supervisor.tools.service import systemd
from supervisor.tools.service.detection import scan_directory
from supervisor.tools.service.plan import NAME, Command, File, InstallOptions, Plan, stamped
from supervisor.tools.service.rendering import render

OPENRC_SCRIPT = f"/etc/init.d/{NAME}"
S6_DIRECTORY = f"/etc/s6/sv/{NAME}"
S6_SCAN_DIRECTORIES = ("/run/service", "/service", "/etc/service")
"""The usual scan directories of s6-svscan."""
_READY_FD = 3
RUNIT_DIRECTORY = f"/etc/sv/{NAME}"
RUNIT_SCAN_DIRECTORIES = ("/run/runit/service", "/var/service", "/etc/service", "/service")
"""The usual directories of runsvdir, on Artix, Void and Debian, and of runit itself."""
_STOP_S = "600"


def plan(kind: str, wanted: InstallOptions, scan: str | None = None) -> Plan:
    """Return the files and commands of one installation.

    Args:
        kind: One of :data:`supervisor.tools.service.detection.KINDS`.
        wanted: How the daemon must run.
        scan: The directory in which s6-svscan or runsvdir looks for services; None: the first existing default.
    """
    if kind == "systemd":
        return systemd.plan(wanted)
    if kind == "openrc":
        found = _openrc(wanted)
    elif kind == "s6":
        found = _s6(wanted, scan or scan_directory(S6_SCAN_DIRECTORIES))
    else:
        found = _runit(wanted, scan or scan_directory(RUNIT_SCAN_DIRECTORIES))
    return replace(found, enable=(*_user(wanted), *found.enable))


def _user(wanted: InstallOptions) -> tuple[Command, ...]:
    """Return the commands that create the user and let it read the configuration. Under systemd, files do this."""
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


def _openrc(wanted: InstallOptions) -> Plan:
    user = owned = ""
    if wanted.user is not None:
        user = f"command_user={wanted.user}:{wanted.user}"
        owned = (
            f"\tcheckpath --directory --mode 0700 --owner {wanted.user}:{wanted.user} {wanted.data}\n"
            f"\tcheckpath --file --mode 0640 --owner root:{wanted.user} {wanted.config}"
        )
    script = render(
        "openrc",
        program=wanted.program,
        arguments=shlex.quote(wanted.command("up").removeprefix(f"{wanted.program} ")),
        user=user,
        owned=owned,
        config=wanted.config,
        upgrade=wanted.command("upgrade", "--if-different"),
        reload=wanted.command("reload"),
    )
    return Plan(
        files=(File(OPENRC_SCRIPT, stamped(script), 0o755),),
        enable=(("rc-update", "add", NAME, "default"), ("rc-service", NAME, "start")),
        disable=(("rc-service", NAME, "stop"), ("rc-update", "delete", NAME, "default")),
        enabled=(f"/etc/runlevels/*/{NAME}",),
    )


def _s6(wanted: InstallOptions, scan: str) -> Plan:
    """Return the plan for a scan directory of s6-svscan(8)."""
    return Plan(
        files=(
            File(f"{S6_DIRECTORY}/run", _run(wanted, "s6-setuidgid", f" --ready-fd {_READY_FD}"), 0o755),
            File(f"{S6_DIRECTORY}/finish", stamped(render("finish", give_up="exit 125")), 0o755),
            File(f"{S6_DIRECTORY}/notification-fd", f"{_READY_FD}\n"),
            File(f"{S6_DIRECTORY}/type", "longrun\n"),
            File(f"{S6_DIRECTORY}/log/run", stamped(render("log", logger="s6-log n10 s1000000")), 0o755),
        ),
        enable=(("s6-svlink", scan, S6_DIRECTORY),),
        disable=(("s6-svunlink", scan, NAME),),
        enabled=tuple(f"{one}/{NAME}" for one in {*S6_SCAN_DIRECTORIES, scan}),
        state=tuple(f"{S6_DIRECTORY}/{one}" for one in ("supervise", "event", "log/supervise", "log/event")),
    )


def _runit(wanted: InstallOptions, scan: str) -> Plan:
    """Return the plan for a directory that runsvdir(8) scans."""
    link = f"{scan}/{NAME}"
    return Plan(
        files=(
            File(f"{RUNIT_DIRECTORY}/run", _run(wanted, "chpst -u"), 0o755),
            File(f"{RUNIT_DIRECTORY}/finish", stamped(render("finish", give_up="exec sv d .")), 0o755),
            File(f"{RUNIT_DIRECTORY}/check", stamped(render("check", health=wanted.command("health"))), 0o755),
            File(f"{RUNIT_DIRECTORY}/log/run", stamped(render("log", logger="svlogd")), 0o755),
        ),
        enable=(("ln", "-sfn", RUNIT_DIRECTORY, link),),
        disable=(("rm", link), ("sv", "-w", _STOP_S, "exit", RUNIT_DIRECTORY)),
        enabled=tuple(f"{one}/{NAME}" for one in {*RUNIT_SCAN_DIRECTORIES, scan}),
        state=tuple(f"{RUNIT_DIRECTORY}/{one}" for one in ("supervise", "log/supervise")),
    )


def _run(wanted: InstallOptions, become: str, options: str = "") -> str:
    """Return the run script of a service directory; `become` is the command that takes a user and a command."""
    owned, before = "", ""
    if wanted.user is not None:
        owned = f"install -d -m 0700 -o {wanted.user} -g {wanted.user} {wanted.data} || exit 1"
        before = f"{become} {wanted.user} "
    return stamped(render("run", owned=owned, become=before, up=wanted.command("up"), options=options))
