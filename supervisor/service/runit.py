"""runit: a service directory for runsv(8)."""

from supervisor.service.plan import DESCRIPTORS, NAME, PERMANENT, File, Plan, Wanted
from supervisor.service.stamp import stamped

DIRECTORY = f"/etc/sv/{NAME}"
SCAN_DIRECTORIES = ("/run/runit/service", "/var/service", "/etc/service", "/service")
"""Where runsvdir usually looks: Artix, Void, Debian and the original."""
_STOP_S = "600"


def plan(wanted: Wanted, scan: str) -> Plan:
    """Files and commands; `scan` is the directory that runsvdir looks into."""
    link = f"{scan}/{NAME}"
    return Plan(
        files=(
            File(f"{DIRECTORY}/run", stamped(_run(wanted)), 0o755),
            File(f"{DIRECTORY}/finish", stamped(_finish()), 0o755),
            File(f"{DIRECTORY}/check", stamped(_check(wanted)), 0o755),
            File(f"{DIRECTORY}/log/run", stamped(_log()), 0o755),
        ),
        enable=(("ln", "-sfn", DIRECTORY, link),),
        disable=(("rm", link), ("sv", "-w", _STOP_S, "exit", DIRECTORY)),
        enabled=tuple(f"{one}/{NAME}" for one in {*SCAN_DIRECTORIES, scan}),
        state=tuple(f"{DIRECTORY}/{one}" for one in ("supervise", "log/supervise")),
    )


def _run(wanted: Wanted) -> str:
    owned, become = "", ""
    if wanted.user is not None:
        owned = f"install -d -m 0700 -o {wanted.user} -g {wanted.user} {wanted.data} || exit 1\n"
        become = f"chpst -u {wanted.user} "
    return f"""\
#!/bin/sh
exec 2>&1
ulimit -H -n {DESCRIPTORS} 2>/dev/null || :
{owned}exec {become}{wanted.command("up")}
"""


def _finish() -> str:
    return f"""\
#!/bin/sh
# A wrong command line, and a configuration that is not valid: that has to be repaired by people.
case "$1" in {"|".join(PERMANENT)}) exec sv d . ;; esac
"""


def _check(wanted: Wanted) -> str:
    return f"""\
#!/bin/sh
exec {wanted.command("health")} >/dev/null 2>&1
"""


def _log() -> str:
    return f"""\
#!/bin/sh
mkdir -p /var/log/{NAME}
exec svlogd /var/log/{NAME}
"""
