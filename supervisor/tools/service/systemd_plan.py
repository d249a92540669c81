"""The plan for systemd: a unit, a user, the directories of a daemon with its own user, and a hardening drop-in."""

import re
import subprocess

from supervisor.config.files.lookup import API_USER
from supervisor.tools.service.plan import NAME, File, InstallOptions, Plan, stamped
from supervisor.tools.service.rendering import render

_UNITS = "/etc/systemd/system"
UNIT = f"{_UNITS}/{NAME}.service"
HARDENING = f"{_UNITS}/{NAME}.service.d/hardening.conf"
BEFORE_254 = f"{_UNITS}/{NAME}.service.d/before-254.conf"
SYSUSERS = f"/etc/sysusers.d/{NAME}.conf"
TMPFILES = f"/etc/tmpfiles.d/{NAME}.conf"

_STATE = "/var/lib/"

_CAPABILITIES = (
    "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_NET_BIND_SERVICE CAP_SETGID CAP_SETUID CAP_SYS_NICE"
    " CAP_SYS_PTRACE CAP_SYS_RESOURCE"
)
"""The capabilities that root needs for runs of any user: switching users, signals, limits, reading environments."""


def plan(options: InstallOptions) -> Plan:
    """Return the files and commands of an installation."""
    name, user = options.user or API_USER, ""
    if options.user is not None:
        user = f"User={options.user}\nGroup={options.user}"
    unit = render(
        "ringward.service",
        data=options.data,
        user=user,
        up=options.command("up"),
        upgrade=options.command("upgrade", "--if-different"),
        reload=options.command("reload"),
        state=_state(options),
    )
    files = [
        File(UNIT, stamped(unit)),
        File(SYSUSERS, stamped(render("sysusers.conf", name=name, data=options.data))),
    ]
    prepare: list[tuple[str, ...]] = [("systemd-sysusers", f"{NAME}.conf")]
    if options.user is not None:
        directory = options.config.rpartition("/")[0]
        text = render("tmpfiles.conf", directory=directory, config=options.config, data=options.data, name=name)
        files.append(File(TMPFILES, stamped(text)))
        prepare += [("systemd-tmpfiles", "--create", f"{NAME}.conf")]
    elif options.hardened and not options.data.startswith(_STATE):
        prepare += [("install", "-d", "-m", "0700", options.data)]  # a path in ReadWritePaths= must exist
    if options.old_systemd:
        files.append(File(BEFORE_254, stamped(render("before-254.conf", program=options.program))))
    if options.hardened:
        files.append(File(HARDENING, stamped(_hardening(options))))
    reload = ("systemctl", "daemon-reload")
    return Plan(
        files=tuple(files),
        enable=(*prepare, reload, ("systemctl", "enable", "--now", NAME)),
        disable=(("systemctl", "disable", "--now", NAME),),
        forget=(reload,),
        enabled=(f"{_UNITS}/*.wants/{NAME}.service",),
    )


def _state(options: InstallOptions) -> str:
    """Return the settings with which systemd creates the data directory, if it is in /var/lib."""
    if not options.data.startswith(_STATE):
        return ""
    return f"StateDirectory={options.data.removeprefix(_STATE)}\nStateDirectoryMode=0700"


def version() -> int | None:
    """Return the version of the installed systemd; None if there is none or the version is unknown."""
    try:
        output = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S607 - wherever it is
    except OSError:
        return None
    match = re.match(r"systemd (\d+)", output)
    return int(match[1]) if match else None


def _hardening(options: InstallOptions) -> str:
    """Return the hardening drop-in.

    For a daemon of root, it also limits capabilities and adds a runtime directory in which rings outlive the daemon.
    """
    if options.user is not None:
        return render("hardening.conf", data=options.data, runtime="", capabilities="")
    runtime = render("runtime-directory.conf").rstrip("\n")
    return render("hardening.conf", data=options.data, runtime=runtime, capabilities=_CAPABILITIES)
