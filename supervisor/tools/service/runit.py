"""runit: a service directory for runsv(8)."""

from supervisor.tools.service import scripts
from supervisor.tools.service.plan import NAME, File, Plan, Wanted
from supervisor.tools.service.stamp import stamped

DIRECTORY = f"/etc/sv/{NAME}"
SCAN_DIRECTORIES = ("/run/runit/service", "/var/service", "/etc/service", "/service")
"""Where runsvdir usually looks: Artix, Void, Debian and the original."""
_STOP_S = "600"


def plan(wanted: Wanted, scan: str) -> Plan:
    """Files and commands; `scan` is the directory that runsvdir looks into."""
    link = f"{scan}/{NAME}"
    return Plan(
        files=(
            File(f"{DIRECTORY}/run", stamped(scripts.run(wanted, "chpst -u")), 0o755),
            File(f"{DIRECTORY}/finish", stamped(scripts.finish("exec sv d .")), 0o755),
            File(f"{DIRECTORY}/check", stamped(_check(wanted)), 0o755),
            File(f"{DIRECTORY}/log/run", stamped(scripts.log("svlogd")), 0o755),
        ),
        enable=(("ln", "-sfn", DIRECTORY, link),),
        disable=(("rm", link), ("sv", "-w", _STOP_S, "exit", DIRECTORY)),
        enabled=tuple(f"{one}/{NAME}" for one in {*SCAN_DIRECTORIES, scan}),
        state=tuple(f"{DIRECTORY}/{one}" for one in ("supervise", "log/supervise")),
    )


def _check(wanted: Wanted) -> str:
    return f"""\
#!/bin/sh
exec {wanted.command("health")} >/dev/null 2>&1
"""
