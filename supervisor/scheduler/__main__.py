"""``python -m ringward scheduler --fd N``: started by the root, connected to it by the socketpair N.

Exits when the socket closes. Exit statuses: 0 in that case; 71 if memory is exhausted, or if the database became
unreachable or damaged during the start; 73 if it cannot start. With ``--check`` it only checks whether it could work
with the settings on standard input. The root restarts a failed scheduler, but a daemon whose first scheduler cannot
start does not start.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import sys

from store.errors import Away, Damaged, StoreError
from store.recovery.copies import suspect
from supervisor.config.problems import ConfigError
from supervisor.host.osport import set_title
from supervisor.ipc.counted import counted
from supervisor.ipc.messages import Boot, ProtocolError
from supervisor.scheduler.assembly import Scheduler, StartConfig
from supervisor.scheduler.database.database_file import forget_all, tell_problem
from supervisor.scheduler.database.opening import obstacle, open_database
from supervisor.scheduler.loop.loop import RoundLog
from supervisor.scheduler.loop.root_connection import RootConnection, RootGone
from supervisor.scheduler.reload import last_good
from supervisor.scheduler.reload.active_config import ResolvedConfig
from supervisor.scheduler.reload.daemon_settings import follow
from supervisor.scheduler.startup_shutdown import data_lock
from supervisor.version import VERSION

EX_OSERR = 71
EX_CANTCREAT = 73
_NOFILE = 65_536
"""Limit of descriptors: each request of an API worker is a connection."""


def check(settings: str) -> int:
    """Print why this version cannot work with the database of these settings; return the exit status."""
    why = obstacle(Boot.from_dict(json.loads(settings)).database)
    if why is not None:
        print(why)
    return 0 if why is None else EX_CANTCREAT


def main() -> int:
    """Run the scheduler; return the exit status."""
    if sys.argv[1:] == ["--check"]:
        return check(sys.stdin.read())
    root = RootConnection(int(sys.argv[2]))
    try:
        boot = root.hello()
    except RootGone:
        return 0
    except ProtocolError as err:
        RoundLog("info").error(f"cannot start: {err}")
        return EX_CANTCREAT
    os.umask(0o077)
    set_title(data_lock.TITLE)
    # A terminal signals its whole process group; the root handles that and tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = RoundLog(boot.log_level)
    if root.refusal is not None:
        log.warning(f"the supervisor is of another version than {VERSION} and was not upgraded: {root.refusal}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _NOFILE), hard))
    try:
        lock = data_lock.take(boot.data_dir)
        found = last_good.find(boot, log, first_epoch=root.epoch == 1)
        config = found.config
        database = open_database(boot, config, root, log)
        settings, warnings = (boot, []) if found.applied else follow(config, boot)
        try:
            start = StartConfig(
                ResolvedConfig(config, settings), warnings, found.copied, found.applied, found.read_again
            )
            scheduler = Scheduler(root, boot, start, log, database)
        except Away as err:  # it was reachable a moment ago; the next scheduler waits for it
            log.error(f"the next scheduler starts: {err}")
            return EX_OSERR
        except Damaged as err:
            if boot.database_url is not None:
                raise
            log.error(f"the database is damaged; the next scheduler checks all of it: {err}")
            suspect(boot.database)
            return EX_OSERR
    except RootGone:
        if root.is_early("shutdown"):
            forget_all(boot)
        return 0
    except (data_lock.Locked, ConfigError, StoreError, OSError) as err:
        log.error(f"cannot start: {err}")
        _tell_users(root, boot, err)
        return EX_CANTCREAT
    log.info(f"ready: {counted(len(config.tasks), 'task')}, {counted(len(config.services), 'service')}")
    # Present objects stay alive; scanning them in every collection would block the loop for milliseconds.
    gc.collect()
    gc.freeze()
    try:
        scheduler.run()
    except MemoryError:
        # The next scheduler reconciles all interrupted work.
        log.error("out of memory; the next scheduler starts")
        return EX_OSERR
    finally:
        log.flush()
    os.close(lock)
    return 0


def _tell_users(root: RootConnection, boot: Boot, error: Exception) -> None:
    """Publish why a restarted scheduler has no configuration; API workers show it."""
    if root.epoch == 1 or not isinstance(error, ConfigError):
        return
    why = f"there is no usable copy of the active configuration, and the file cannot be used: {error}"
    with contextlib.suppress(OSError):
        tell_problem(boot, "the scheduler has no usable configuration", f"{why}; restore the file")


if __name__ == "__main__":
    sys.exit(main())
