"""s6: a service directory for s6-svscan(8), which s6-rc takes as a definition, too. Readiness goes to a descriptor."""

from supervisor.service.plan import DESCRIPTORS, NAME, PERMANENT, File, Plan, Wanted
from supervisor.service.stamp import stamped

DIRECTORY = f"/etc/s6/sv/{NAME}"
SCAN_DIRECTORIES = ("/run/service", "/service", "/etc/service")
"""Where s6-svscan usually looks."""
_READY_FD = 3


def plan(wanted: Wanted, scan: str) -> Plan:
    """Files and commands; `scan` is the directory that s6-svscan looks into."""
    return Plan(
        files=(
            File(f"{DIRECTORY}/run", stamped(_run(wanted)), 0o755),
            File(f"{DIRECTORY}/finish", stamped(_finish()), 0o755),
            File(f"{DIRECTORY}/notification-fd", f"{_READY_FD}\n"),
            File(f"{DIRECTORY}/type", "longrun\n"),
            File(f"{DIRECTORY}/log/run", stamped(_log()), 0o755),
        ),
        enable=(("s6-svlink", scan, DIRECTORY),),
        disable=(("s6-svunlink", scan, NAME),),
        enabled=tuple(f"{one}/{NAME}" for one in {*SCAN_DIRECTORIES, scan}),
        state=tuple(f"{DIRECTORY}/{one}" for one in ("supervise", "event", "log/supervise", "log/event")),
    )


def _run(wanted: Wanted) -> str:
    owned, become = "", ""
    if wanted.user is not None:
        owned = f"install -d -m 0700 -o {wanted.user} -g {wanted.user} {wanted.data} || exit 1\n"
        become = f"s6-setuidgid {wanted.user} "
    return f"""\
#!/bin/sh
exec 2>&1
ulimit -H -n {DESCRIPTORS} 2>/dev/null || :
{owned}exec {become}{wanted.command("up")} --ready-fd {_READY_FD}
"""


def _finish() -> str:
    return f"""\
#!/bin/sh
# A wrong command line, and a configuration that is not valid: that has to be repaired by people.
case "$1" in {"|".join(PERMANENT)}) exit 125 ;; esac
"""


def _log() -> str:
    return f"""\
#!/bin/sh
mkdir -p /var/log/{NAME}
exec s6-log n10 s1000000 /var/log/{NAME}
"""
