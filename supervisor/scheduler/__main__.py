"""``python -m ringward scheduler --fd N``: the root starts it, connected by descriptor N of a socketpair.

Exit statuses::

    0   the socket closed
    71  out of memory, or the database became unreachable or damaged during the start
    73  it cannot start

The root restarts a scheduler that fails, except the first one: if that cannot start, the daemon exits. With ``--check``
it only reports whether it could work with the settings on standard input.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import sys

from store.errors import DatabaseDamaged, ServerUnreachable, StoreError
from store.recovery.copies import suspect
from supervisor.config.problems import ConfigError
from supervisor.host.osport import set_title
from supervisor.ipc.messages import DaemonSettings, ProtocolError
from supervisor.ipc.plural import counted
from supervisor.scheduler.assembly import Scheduler, StartConfig
from supervisor.scheduler.database.database_file import forget_all, write_problem
from supervisor.scheduler.database.opening import obstacle, open_database
from supervisor.scheduler.loop.loop import RoundLog
from supervisor.scheduler.loop.root_connection import RootConnection, RootGone
from supervisor.scheduler.reload import last_good
from supervisor.scheduler.reload.active_config import ResolvedConfig
from supervisor.scheduler.reload.daemon_settings import follow
from supervisor.scheduler.startup_shutdown import data_lock
from supervisor.startup.orphans import end_orphans_unstored
from supervisor.version import VERSION

EX_OSERR = 71
EX_CANTCREAT = 73
_NOFILE = 65_536
"""Limit of descriptors, which is high because each request of an API worker is a connection."""


def check(settings: str) -> int:
    """Print why this version cannot use the database of `settings` (JSON), if so; return the exit status."""
    reason = obstacle(DaemonSettings.from_dict(json.loads(settings)).database)
    if reason is not None:
        print(reason)
    return 0 if reason is None else EX_CANTCREAT


def main() -> int:
    """Run the scheduler; return the exit status."""
    if sys.argv[1:] == ["--check"]:
        return check(sys.stdin.read())
    root = RootConnection(int(sys.argv[2]))
    try:
        settings = root.hello()
    except RootGone:
        return 0
    except ProtocolError as err:
        RoundLog("info").error(f"cannot start: {err}")
        return EX_CANTCREAT
    os.umask(0o077)
    set_title(data_lock.TITLE)
    # Ctrl-C signals the whole process group of the terminal. The root handles it, and then stops the scheduler.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = RoundLog(settings.log_level)
    if root.refusal is not None:
        log.warning(f"the supervisor is of another version than {VERSION} and was not upgraded: {root.refusal}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _NOFILE), hard))
    try:
        lock = data_lock.acquire(settings.data_dir)
        loaded = last_good.find(settings, log)
        config = loaded.config
        database = open_database(settings, config, root, log)
        followed, warnings = (settings, []) if loaded.applied else follow(config, settings)
        try:
            start = StartConfig(ResolvedConfig(config, followed), warnings, loaded.applied, loaded.read_again)
            scheduler = Scheduler(root, settings, start, log, database)
        except ServerUnreachable as err:  # it was reachable a moment ago; the next scheduler waits for it
            log.error(f"the next scheduler starts: {err}")
            return EX_OSERR
        except DatabaseDamaged as err:
            if settings.database_url is not None:
                raise
            log.error(f"the database is damaged; the next scheduler checks all of it: {err}")
            suspect(settings.database)
            return EX_OSERR
    except RootGone:
        if root.must_shut_down:
            forget_all(settings)
        return 0
    except (data_lock.Locked, ConfigError, StoreError, OSError) as err:
        log.error(f"cannot start: {err}")
        _tell_users(root, settings, err)
        if root.epoch == 1 and isinstance(err, (StoreError, OSError)):
            _end_orphans(root, settings, log)
        return EX_CANTCREAT
    log.info(f"ready: {counted(len(config.tasks), 'task')}, {counted(len(config.services), 'service')}")
    # The objects of now live as long as the process. Scanning them in each collection would block the loop for
    # milliseconds, so they are moved out of the collector's sight.
    gc.collect()
    gc.freeze()
    try:
        scheduler.run()
    finally:
        log.flush()
    os.close(lock)
    return 0


def _end_orphans(root: RootConnection, settings: DaemonSettings, log: RoundLog) -> None:
    """End what a killed supervisor left running, except for the runs that its successor has taken over."""
    with contextlib.suppress(RootGone, OSError):  # EPIPE: the successor was killed, too
        root.ask({"op": "snapshot"})
        snapshot = root.wait("snapshot")
        known = {entry["run"] for entry in (*snapshot["instances"], *snapshot["exits"])}
        end_orphans_unstored(settings.database, settings.daemon_id, known, log)


def _tell_users(root: RootConnection, settings: DaemonSettings, error: Exception) -> None:
    """Publish the reason why a restarted scheduler has no configuration, for API workers to show."""
    if root.epoch == 1 or not isinstance(error, ConfigError):
        return
    reason = f"there is no usable copy of the active configuration, and the file cannot be used: {error}"
    with contextlib.suppress(OSError):
        write_problem(settings, "the scheduler has no usable configuration", f"{reason}; restore the file")


if __name__ == "__main__":
    sys.exit(main())
