"""systemd: a unit, a user and its directories where it is to have one of its own, and a drop-in that hardens."""

import re
import subprocess

from supervisor.config.files.lookup import API_USER
from supervisor.tools.service.plan import NAME, File, Plan, Wanted, stamped
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
"""Root's capabilities for runs of any user: becoming it, signalling, limits, reading environments."""


def plan(wanted: Wanted) -> Plan:
    """Files and commands."""
    name, user = wanted.user or API_USER, ""
    if wanted.user is not None:
        user = f"User={wanted.user}\nGroup={wanted.user}"
    unit = render(
        "ringward.service",
        data=wanted.data,
        user=user,
        up=wanted.command("up"),
        upgrade=wanted.command("upgrade", "--if-different"),
        reload=wanted.command("reload"),
        state=_state(wanted),
    )
    files = [
        File(UNIT, stamped(unit)),
        File(SYSUSERS, stamped(render("sysusers.conf", name=name, data=wanted.data))),
    ]
    prepare: list[tuple[str, ...]] = [("systemd-sysusers", f"{NAME}.conf")]
    if wanted.user is not None:
        directory = wanted.config.rpartition("/")[0]
        text = render("tmpfiles.conf", directory=directory, config=wanted.config, data=wanted.data, name=name)
        files.append(File(TMPFILES, stamped(text)))
        prepare += [("systemd-tmpfiles", "--create", f"{NAME}.conf")]
    elif wanted.hardened and not wanted.data.startswith(_STATE):
        prepare += [("install", "-d", "-m", "0700", wanted.data)]  # a place that may be written to has to be there
    if wanted.old_systemd:
        files.append(File(BEFORE_254, stamped(render("before-254.conf", program=wanted.program))))
    if wanted.hardened:
        files.append(File(HARDENING, stamped(_hardening(wanted))))
    reload = ("systemctl", "daemon-reload")
    return Plan(
        files=tuple(files),
        enable=(*prepare, reload, ("systemctl", "enable", "--now", NAME)),
        disable=(("systemctl", "disable", "--now", NAME),),
        forget=(reload,),
        enabled=(f"{_UNITS}/*.wants/{NAME}.service",),
    )


def _state(wanted: Wanted) -> str:
    """Return where such directories are, systemd makes it and changes its owner."""
    if not wanted.data.startswith(_STATE):
        return ""
    return f"StateDirectory={wanted.data.removeprefix(_STATE)}\nStateDirectoryMode=0700"


def version() -> int | None:
    """Return the version of systemd that is installed here; None: there is none, or it does not tell."""
    try:
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S607 - wherever it is
    except OSError:
        return None
    found = re.match(r"systemd (\d+)", said)
    return int(found[1]) if found else None


def _hardening(wanted: Wanted) -> str:
    """Return the drop-in: for root's daemon with capabilities, and with a directory in which rings outlive it."""
    if wanted.user is not None:
        return render("hardening.conf", data=wanted.data, runtime="", capabilities="")
    runtime = render("runtime-directory.conf").rstrip("\n")
    return render("hardening.conf", data=wanted.data, runtime=runtime, capabilities=_CAPABILITIES)
