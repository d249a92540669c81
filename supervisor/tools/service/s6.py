"""s6: a service directory for s6-svscan(8), which s6-rc takes as a definition, too. Readiness goes to a descriptor."""

from supervisor.tools.service import scripts
from supervisor.tools.service.plan import NAME, File, Plan, Wanted
from supervisor.tools.service.stamp import stamped

DIRECTORY = f"/etc/s6/sv/{NAME}"
SCAN_DIRECTORIES = ("/run/service", "/service", "/etc/service")
"""Where s6-svscan usually looks."""
_READY_FD = 3


def plan(wanted: Wanted, scan: str) -> Plan:
    """Files and commands; `scan` is the directory that s6-svscan looks into."""
    return Plan(
        files=(
            File(f"{DIRECTORY}/run", stamped(scripts.run(wanted, "s6-setuidgid", f"--ready-fd {_READY_FD}")), 0o755),
            File(f"{DIRECTORY}/finish", stamped(scripts.finish("exit 125")), 0o755),
            File(f"{DIRECTORY}/notification-fd", f"{_READY_FD}\n"),
            File(f"{DIRECTORY}/type", "longrun\n"),
            File(f"{DIRECTORY}/log/run", stamped(scripts.log("s6-log n10 s1000000")), 0o755),
        ),
        enable=(("s6-svlink", scan, DIRECTORY),),
        disable=(("s6-svunlink", scan, NAME),),
        enabled=tuple(f"{one}/{NAME}" for one in {*SCAN_DIRECTORIES, scan}),
        state=tuple(f"{DIRECTORY}/{one}" for one in ("supervise", "event", "log/supervise", "log/event")),
    )
