"""A start that fails: it ends what a killed supervisor left running, because no daemon does so until a start succeeds.

Nothing is written, so the reason of the failure may be a full disk.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Mapping

from store.runs.writes import Run
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DESCRIPTOR_PREFIX, LOCK
from supervisor.startup import data_directory, runtime_directory
from supervisor.startup.orphans import end_orphans_unstored
from supervisor.startup.refusal import NotStarted


def end_orphans(directory: str, database: str, environ: Mapping[str, str]) -> list[Run]:
    """End the orphans of a killed supervisor, unless a daemon may be running; return the runs that had some.

    A daemon locks its data directory and its runtime directory. The runtime directory must exist: in a copy of the data
    directory, it shows whether the daemon of the original runs. Runs stay whose descriptors the service manager stores,
    because the next daemon continues them.

    Args:
        directory: the data directory; this process must not have locked it.
        database: the path or URL of the database.
        environ: the environment.
    """
    with contextlib.ExitStack() as locks:
        try:
            status = os.stat(directory)
            if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
                return []  # another user could name any run
            daemon_id = data_directory.identity(directory)
            places = [f"{base}/{daemon_id}" for base in runtime_directory.bases(daemon_id, environ, shared=False)]
            places = [place for place in places if os.path.isdir(place)]
            for place in (directory, *places):
                fd = os.open(f"{place}/{LOCK}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                locks.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, NotStarted):  # ENOENT: no daemon was killed here; EWOULDBLOCK: one runs
            return []
        if not places:
            return []
        names = environ.get("LISTEN_FDNAMES", "").split(":")
        stored = {name.removeprefix(DESCRIPTOR_PREFIX) for name in names}
        return end_orphans_unstored(database, daemon_id, stored, Log("up", "error"))
