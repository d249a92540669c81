"""Returns the plan for an init system: systemd, OpenRC, or the service directory of s6 or runit.

Under OpenRC, supervise-daemon(8) restarts the daemon. Under s6, the daemon writes to a descriptor when it is ready;
s6-rc also accepts the directory as a service definition.
"""

import pwd
import shlex
from dataclasses import replace

from supervisor.config.files.lookup import API_USER
from supervisor.host.unix_accounts import system_user
from supervisor.tools.service import systemd_plan
from supervisor.tools.service.detection import scan_directory
from supervisor.tools.service.plan import NAME, Command, File, InstallOptions, Plan, stamped
from supervisor.tools.service.rendering import render

OPENRC_SCRIPT = f"/etc/init.d/{NAME}"
OPENRC_LOGROTATE = f"/etc/logrotate.d/{NAME}"
S6_DIRECTORY = f"/etc/s6/sv/{NAME}"
S6_SCAN_DIRECTORIES = ("/run/service", "/service", "/etc/service")
"""The usual scan directories of s6-svscan."""
_READY_FD = 3
RUNIT_DIRECTORY = f"/etc/sv/{NAME}"
RUNIT_SCAN_DIRECTORIES = ("/run/runit/service", "/var/service", "/etc/service", "/service")
"""The usual directories of runsvdir, on Artix, Void and Debian, and of runit itself."""
_STOP_S = "600"


def plan(kind: str, options: InstallOptions, scan: str | None = None) -> Plan:
    """Return the files and commands of one installation.

    Args:
        kind: One of :data:`supervisor.tools.service.detection.KINDS`.
        options: How the daemon must run.
        scan: The directory in which s6-svscan or runsvdir looks for services; None: the first existing default.
    """
    if kind == "systemd":
        return systemd_plan.plan(options)
    if kind == "openrc":
        init_plan = _openrc(options)
    elif kind == "s6":
        init_plan = _s6(options, scan or scan_directory(S6_SCAN_DIRECTORIES))
    else:
        init_plan = _runit(options, scan or scan_directory(RUNIT_SCAN_DIRECTORIES))
    return replace(init_plan, enable=(*_user(options), *init_plan.enable))


def _user(options: InstallOptions) -> tuple[Command, ...]:
    """Return the commands that create the user and let it read the configuration. Under systemd, files do this."""
    if options.user is None:
        return _made(API_USER, options.data)
    readable: tuple[Command, ...] = (
        ("chown", f"root:{options.user}", options.config),
        ("chmod", "0640", options.config),
    )
    return (*_made(options.user, options.data), *readable)


def _made(user: str, home: str) -> tuple[Command, ...]:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return system_user(user, home)
    return ()


def _openrc(options: InstallOptions) -> Plan:
    user = owned = ""
    if options.user is not None:
        user = f"command_user={options.user}:{options.user}"
        owned = (
            f"\tcheckpath --directory --mode 0700 --owner {options.user}:{options.user} {options.data}\n"
            f"\tcheckpath --file --mode 0640 --owner root:{options.user} {options.config}"
        )
    script = render(
        "openrc",
        program=options.program,
        arguments=shlex.quote(options.command("up").removeprefix(f"{options.program} ")),
        user=user,
        owned=owned,
        config=options.config,
        upgrade=options.command("upgrade", "--if-different"),
        reload=options.command("reload"),
    )
    return Plan(
        files=(File(OPENRC_SCRIPT, stamped(script), 0o755), File(OPENRC_LOGROTATE, stamped(render("logrotate")))),
        enable=(("rc-update", "add", NAME, "default"), ("rc-service", NAME, "start")),
        disable=(("rc-service", NAME, "stop"), ("rc-update", "delete", NAME, "default")),
        enabled=(f"/etc/runlevels/*/{NAME}",),
    )


def _s6(options: InstallOptions, scan: str) -> Plan:
    """Return the plan for a scan directory of s6-svscan(8)."""
    return Plan(
        files=(
            File(f"{S6_DIRECTORY}/run", _run(options, "s6-setuidgid", f" --ready-fd {_READY_FD}"), 0o755),
            File(f"{S6_DIRECTORY}/finish", stamped(render("finish", give_up="exit 125")), 0o755),
            File(f"{S6_DIRECTORY}/notification-fd", f"{_READY_FD}\n"),
            File(f"{S6_DIRECTORY}/type", "longrun\n"),
            File(f"{S6_DIRECTORY}/log/run", stamped(render("log", logger="s6-log n10 s1000000")), 0o755),
        ),
        enable=(("s6-svlink", scan, S6_DIRECTORY),),
        disable=(("s6-svunlink", scan, NAME),),
        enabled=tuple(f"{directory}/{NAME}" for directory in {*S6_SCAN_DIRECTORIES, scan}),
        state=tuple(f"{S6_DIRECTORY}/{name}" for name in ("supervise", "event", "log/supervise", "log/event")),
    )


def _runit(options: InstallOptions, scan: str) -> Plan:
    """Return the plan for a directory that runsvdir(8) scans."""
    link = f"{scan}/{NAME}"
    return Plan(
        files=(
            File(f"{RUNIT_DIRECTORY}/run", _run(options, "chpst -u"), 0o755),
            File(f"{RUNIT_DIRECTORY}/finish", stamped(render("finish", give_up="exec sv d .")), 0o755),
            File(f"{RUNIT_DIRECTORY}/check", stamped(render("check", health=options.command("health"))), 0o755),
            File(f"{RUNIT_DIRECTORY}/log/run", stamped(render("log", logger="svlogd")), 0o755),
        ),
        enable=(("ln", "-sfn", RUNIT_DIRECTORY, link),),
        disable=(("rm", link), ("sv", "-w", _STOP_S, "exit", RUNIT_DIRECTORY)),
        enabled=tuple(f"{directory}/{NAME}" for directory in {*RUNIT_SCAN_DIRECTORIES, scan}),
        state=tuple(f"{RUNIT_DIRECTORY}/{name}" for name in ("supervise", "log/supervise")),
    )


def _run(options: InstallOptions, become: str, flags: str = "") -> str:
    """Return the run script of a service directory; `become` is the command that takes a user and a command."""
    owned, before = "", ""
    if options.user is not None:
        owned = f"install -d -m 0700 -o {options.user} -g {options.user} {options.data} || exit 1"
        before = f"{become} {options.user} "
    return stamped(render("run", owned=owned, become=before, up=options.command("up"), options=flags))
