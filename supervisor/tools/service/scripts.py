"""The scripts of a service directory, of which runit and s6 differ in little."""

from supervisor.tools.service.plan import DESCRIPTORS, NAME, PERMANENT, Wanted


def run(wanted: Wanted, become: str, *more: str) -> str:
    """Start the daemon: `become` is the program that takes a user's name and then executes, `more` for our command."""
    owned, before = "", ""
    if wanted.user is not None:
        owned = f"install -d -m 0700 -o {wanted.user} -g {wanted.user} {wanted.data} || exit 1\n"
        before = f"{become} {wanted.user} "
    return f"""\
#!/bin/sh
exec 2>&1
ulimit -H -n {DESCRIPTORS} 2>/dev/null || :
{owned}exec {before}{" ".join((wanted.command("up"), *more))}
"""


def finish(give_up: str) -> str:
    """After its end: the command by which it is not started again, when that would be of no use."""
    return f"""\
#!/bin/sh
# After a wrong command line or an invalid configuration, a restart does not help.
case "$1" in {"|".join(PERMANENT)}) {give_up} ;; esac
"""


def log(logger: str) -> str:
    """Return the command that keeps the output, without the directory."""
    return f"""\
#!/bin/sh
mkdir -p /var/log/{NAME}
exec {logger} /var/log/{NAME}
"""
