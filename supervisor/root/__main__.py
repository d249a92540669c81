"""``python -m ringward root --start FD --lock FD --place FD [--ready FD]``: the program behind ``ringward up``.

``--start`` names a descriptor with a JSON object: ``boot`` (the settings), ``listeners`` (descriptors) and ``api``, an
API server that is running already (:class:`supervisor.ipc.child_process.ChildProcess`), or null. ``--lock`` and
``--place`` are the locks of the data directory and the runtime directory, which are held while they are open.
``--ready`` receives a line when the daemon is ready.

With ``--resume FD``, the program takes over from another root (:mod:`supervisor.root.handover.upgrade`). With
``--check FD``, it only tests whether it could. Exit statuses: 0 after a clean shutdown, 73 if the scheduler cannot use
the data directory, 70 after an unexpected exception.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time

from supervisor.host.cgroups import Cgroups
from supervisor.ipc import child_process
from supervisor.ipc.child_process import ChildProcess
from supervisor.ipc.listening_sockets import inherited
from supervisor.ipc.messages import DaemonSettings
from supervisor.ipc.stale_helpers import API
from supervisor.root.handover.fd_store import stored_descriptors
from supervisor.root.handover.inherited_state import InheritedState, check
from supervisor.root.handover.state_schema import KeptDescriptors
from supervisor.root.helper_processes import Helper
from supervisor.root.root_threads import Launch, run


def _close_on_exec() -> None:
    """Set the close-on-exec flag of all inherited descriptors, such as the locks, so that no child inherits them."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2:
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing itself
                fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)


def main() -> int:
    """Run the root until it is shut down; return the exit status."""
    arguments = dict(zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True))
    if "--check" in arguments:
        return check(arguments["--check"])
    # Until the control thread handles signals. The other threads never do.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    before, stored, server = None, {}, None
    if "--resume" in arguments:
        before = InheritedState.load(arguments["--resume"])
        settings, descriptors = before.state.boot, before.state.kept
    else:
        with open(arguments["--start"], "rb") as file:
            start = json.load(file)
        settings, server = DaemonSettings.from_dict(start["boot"]), start["api"]
        descriptors = KeptDescriptors([arguments["--lock"], arguments["--place"]], start["listeners"])
        stored = stored_descriptors(os.environ)
    _close_on_exec()
    umask = os.umask(0o077)
    listeners = inherited(descriptors.listeners)
    api = Helper(API, "api", settings, listeners)
    if server is not None:
        pid, pidfd, sock, output = server
        api.adopt(ChildProcess(pid, pidfd, socket.socket(fileno=sock), output), time.monotonic())
    if before is None and settings.cgroups:
        Cgroups.find(companion=api.pid)  # moves our own processes to their cgroup, now while there are only two
    descriptors = KeptDescriptors(descriptors.lock, [listener.fileno() for listener in listeners])
    launch = Launch(descriptors, before, stored, arguments.get("--ready"), umask)
    return run(settings, child_process.environment(os.environ), api, launch)


if __name__ == "__main__":
    sys.exit(main())
