"""systemd: a unit, a user and its directories where it is to have one of its own, and a drop-in that hardens."""

import re
import subprocess

from supervisor.config.files.lookup import API_USER
from supervisor.tools.service.plan import DESCRIPTORS, NAME, PERMANENT, File, Plan, Wanted
from supervisor.tools.service.stamp import stamped

_UNITS = "/etc/systemd/system"
UNIT = f"{_UNITS}/{NAME}.service"
HARDENING = f"{_UNITS}/{NAME}.service.d/hardening.conf"
BEFORE_254 = f"{_UNITS}/{NAME}.service.d/before-254.conf"
SYSUSERS = f"/etc/sysusers.d/{NAME}.conf"
TMPFILES = f"/etc/tmpfiles.d/{NAME}.conf"

_STATE = "/var/lib/"

_CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SYS_NICE",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RESOURCE",
)
"""Root's capabilities for runs of any user: becoming it, signalling, limits, reading environments."""


def plan(wanted: Wanted) -> Plan:
    """Files and commands."""
    files = [
        File(UNIT, stamped(_unit(wanted))),
        File(SYSUSERS, stamped(_sysusers(wanted, wanted.user or API_USER))),
    ]
    prepare: list[tuple[str, ...]] = [("systemd-sysusers", f"{NAME}.conf")]
    if wanted.user is not None:
        files.append(File(TMPFILES, stamped(_tmpfiles(wanted, wanted.user))))
        prepare += [("systemd-tmpfiles", "--create", f"{NAME}.conf")]
    elif wanted.hardened and not wanted.data.startswith(_STATE):
        prepare += [("install", "-d", "-m", "0700", wanted.data)]  # a place that may be written to has to be there
    if wanted.old_systemd:
        files.append(File(BEFORE_254, stamped(_before_254(wanted))))
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


def _user(wanted: Wanted) -> str:
    return f"User={wanted.user}\nGroup={wanted.user}\n" if wanted.user is not None else ""


def _state(wanted: Wanted) -> str:
    """Return where such directories are, systemd makes it and changes its owner."""
    if not wanted.data.startswith(_STATE):
        return ""
    return f"StateDirectory={wanted.data.removeprefix(_STATE)}\nStateDirectoryMode=0700\n"


def _unit(wanted: Wanted) -> str:
    return f"""\
[Unit]
Description=Ringward: scheduled tasks and always-on services
After=network-online.target nss-user-lookup.target time-sync.target
Wants=network-online.target
RequiresMountsFor={wanted.data}
# Restart the daemon without a limit.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
{_user(wanted)}ExecStart={wanted.command("up")}
# Switch to the installed version if it differs, then read the configuration. An error in either is reported and changes
# nothing.
ExecReload={wanted.command("upgrade", "--if-different")}
ExecReload={wanted.command("reload")}
{_state(wanted)}# The daemon, not systemd, stops the runs: within [daemon] shutdown_timeout. It asks systemd for
# more time as long as it makes progress, even beyond TimeoutStopSec. Processes that a definition leaves on purpose
# stay. After a crash, the next start ends all others.
KillMode=process
TimeoutStopSec=30
# The migration of a large database to this version takes time.
TimeoutStartSec=10min
# If the control thread hangs, systemd ends the daemon, and the next one takes over its runs.
WatchdogSec=60
# If the supervisor is killed, systemd keeps the descriptors of its runs, up to five each. The next one takes the runs
# over. The descriptors are numbered from 3 at the start, so they must stay well below the soft LimitNOFILE.
FileDescriptorStoreMax=900
# Each run has its own cgroup below the one of the unit, with the controllers for its limits.
Delegate=yes
# The daemon has its own cgroup beside them. systemd before 254 lacks this setting; see before-254.conf.
DelegateSubgroup=ringward
# A run that uses too much memory ends alone.
OOMPolicy=continue
TasksMax=infinity
Restart=on-failure
RestartSec=1
# After a wrong command line or an invalid configuration, a restart does not help.
RestartPreventExitStatus={" ".join(PERMANENT)}
# The descriptors of the daemon serve all instances together.
LimitNOFILE=1024:{DESCRIPTORS}

[Install]
WantedBy=multi-user.target
"""


def _before_254(wanted: Wanted) -> str:
    return f"""\
# systemd before 254 starts the daemon in the cgroup of the unit itself. The kernel refuses that while the cgroups of
# remaining runs have controllers. This command removes the controllers; the daemon restores them and the limits.
[Service]
ExecStopPost=-{wanted.program} service give-way
"""


def version() -> int | None:
    """Return the version of systemd that is installed here; None: there is none, or it does not tell."""
    try:
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S607 - wherever it is
    except OSError:
        return None
    found = re.match(r"systemd (\d+)", said)
    return int(found[1]) if found else None


def _sysusers(wanted: Wanted, user: str) -> str:
    return f'u {user} - "Ringward" {wanted.data}\n'


def _tmpfiles(wanted: Wanted, user: str) -> str:
    directory = wanted.config.rpartition("/")[0]
    return f"""\
d {directory} 0750 root {user} -
z {wanted.config} 0640 root {user} -
d {wanted.data} 0700 {user} {user} -
"""


def _hardening(wanted: Wanted) -> str:
    root = wanted.user is None
    runtime = f"""\
# Rings outlive the daemon here. API workers reach their files through this directory.
RuntimeDirectory={NAME}
RuntimeDirectoryMode=0711
RuntimeDirectoryPreserve=yes
"""
    return f"""\
# Tasks and services inherit all of these settings. To relax one for them, add your own drop-in beside this one, for
# example [Service] ReadWritePaths=/srv/shop, NoNewPrivileges=no or RestrictNamespaces=no.
[Service]
# Only these directories are writable.
ProtectSystem=strict
ReadWritePaths={wanted.data}
{runtime if root else ""}ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
CapabilityBoundingSet={" ".join(_CAPABILITIES) if root else ""}
NoNewPrivileges=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
LockPersonality=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077
# Left out: ProtectControlGroups (runs have cgroups), ProcSubset=pid (the daemon measures the host), PrivateUsers (tasks
# have users), MemoryDenyWriteExecute (node and java compile at run time).
"""
