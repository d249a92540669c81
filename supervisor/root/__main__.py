"""``python -m supervisor.root --boot FD --lock FD --place FD [--ready FD]``: what ``ringward up`` turns into.

The descriptor holds the boot settings as JSON. The locks of the data directory and of the runtime directory are
inherited and held by simply staying open. The last one hears when the daemon is ready.
With ``--resume FD`` it goes on in the place of another root (:mod:`supervisor.root.upgrade`), with ``--check FD`` it
only tries whether it could.
Exit statuses: 0 after a clean shutdown, 71 when an address cannot be bound, 73 when the scheduler
cannot use the data directory, 70 after a defect of its own.

Here is what it takes to start the API server, which needs longer than we do until it can answer; all else is loaded
while that begins.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time

from logring.paths import DAEMON_RING, ring_path
from supervisor.messages import Boot
from supervisor.root.cgroups import Cgroups
from supervisor.root.fdstore import handed_back
from supervisor.root.helpers import Helper
from supervisor.root.listeners import CannotListen, bind, inherited

_EX_OSERR = 71
_OURS = ("RINGWARD_", "WATCHDOG_", "LISTEN_")
_SYSTEMD = ("NOTIFY_SOCKET", "FDSTORE")


def _read_boot(fd: int) -> Boot:
    with open(fd, "rb") as file:
        file.seek(0)
        return Boot.from_dict(json.load(file))


def _close_on_exec() -> None:
    """Keep whatever we inherited (the lock, a terminal's descriptors) from reaching any child."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2:
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing itself
                fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)


def _listen(boot: Boot) -> list[socket.socket]:
    """The listeners of a new daemon, whose predecessor's own log goes."""
    listeners = bind(boot)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ring_path(boot.runtime_dir, DAEMON_RING))
    return listeners


def _start(api: Helper, boot: Boot, env: dict[str, str]) -> None:
    """Start the API server; if that fails, the control thread says so and tries it again."""
    if boot.cgroups:
        Cgroups.find()  # moves us to where our own processes are to be: before there are any
    now_s = time.monotonic()
    try:
        api.start(env, now_s)
        api.flush()
    except OSError:
        api.kill()
        api.ended(now_s)


def main() -> int:
    """Run the root until it is shut down; returns the exit status."""
    arguments = dict(zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True))
    if "--check" in arguments:
        from supervisor.root.inherited import check

        return check(arguments["--check"])
    # Until the control thread takes them; the other threads never do.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    before, stored = None, {}
    if "--resume" in arguments:
        from supervisor.root.inherited import Inherited

        before = Inherited.take_up(arguments["--resume"])
        boot, kept = before.boot, before.table["kept"]
    else:
        boot, kept = _read_boot(arguments["--boot"]), {"lock": [arguments["--lock"], arguments["--place"]]}
        stored = handed_back(os.environ)
    _close_on_exec()
    umask = os.umask(0o077)
    try:
        listeners = _listen(boot) if before is None else inherited(kept["listeners"])
    except CannotListen as err:
        print(f"ringward: {err}", file=sys.stderr)
        return _EX_OSERR
    base_env = {
        name: value for name, value in os.environ.items() if not name.startswith(_OURS) and name not in _SYSTEMD
    }
    api = Helper("gunicorn", "api.serve", boot, listeners)
    if before is None:
        _start(api, boot, base_env)

    from supervisor.root.daemon import run

    kept = {"lock": kept["lock"], "listeners": [one.fileno() for one in listeners]}
    return run(boot, base_env, api, kept, before, stored, arguments.get("--ready"), umask)


if __name__ == "__main__":
    sys.exit(main())
