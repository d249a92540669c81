"""OpenRC: a service script, with OpenRC's own supervise-daemon(8) to start the daemon again."""

import shlex

from supervisor.tools.service.plan import NAME, File, Plan, Wanted
from supervisor.tools.service.stamp import stamped

SCRIPT = f"/etc/init.d/{NAME}"
_STOP_S = 600


def plan(wanted: Wanted) -> Plan:
    """Files and commands."""
    return Plan(
        files=(File(SCRIPT, stamped(_script(wanted)), 0o755),),
        enable=(("rc-update", "add", NAME, "default"), ("rc-service", NAME, "start")),
        disable=(("rc-service", NAME, "stop"), ("rc-update", "delete", NAME, "default")),
        enabled=(f"/etc/runlevels/*/{NAME}",),
    )


def _script(wanted: Wanted) -> str:
    arguments = wanted.command("up").removeprefix(f"{wanted.program} ")
    user = f"command_user={wanted.user}:{wanted.user}\n" if wanted.user is not None else ""
    owned = ""
    if wanted.user is not None:
        owned = (
            f"\tcheckpath --directory --mode 0700 --owner {wanted.user}:{wanted.user} {wanted.data}\n"
            f"\tcheckpath --file --mode 0640 --owner root:{wanted.user} {wanted.config}\n"
        )
    return f"""\
#!/sbin/openrc-run

name="Ringward"
description="Scheduled tasks and always-on services"
description_reload="Switch to the installed version if it differs, then read the configuration"

supervisor=supervise-daemon
command={wanted.program}
command_args={shlex.quote(arguments)}
{user}pidfile="/run/${{RC_SVCNAME}}.pid"
respawn_delay=1
respawn_max=0
# The daemon stops by itself within [daemon] shutdown_timeout.
retry="TERM/{_STOP_S}"
# The daemon's own log, a few lines a start; the output of runs is not in it.
output_log=/var/log/{NAME}.log
error_log=/var/log/{NAME}.log
extra_started_commands="reload"

depend() {{
	want localmount
	use net dns logger
	after bootmisc
}}

start_pre() {{
{owned}	"$command" validate {wanted.config}
}}

reload() {{
	ebegin "Reloading $name"
	{wanted.command("upgrade", "--if-different")} &&
		{wanted.command("reload")}
	eend $?
}}
"""
