"""Orphans: processes that a killed supervisor left behind. They are killed before anything new starts.

The first scheduler of a daemon kills them. A start that fails earlier does so as well, if it can read the database:
nothing else would end their timeouts, or stop the program that fills the disk.

If a run had a cgroup, its orphans are the members of that cgroup, whose name or attribute is the run id. Other orphans
are found by their environment, which contains the ids of the data directory and of the run. Both must match an
unfinished run of this database, so no foreign process is ever signalled. The start time of a process is ignored: after
a step of the clock, it may be earlier than that of the run.

The pidfd of a process (pidfd_open(2)) is opened before its environment is read. A pid could be reused in between.

After a reboot of the host there are no orphans; a process with such an environment is something else.
"""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeVar

from store.daemon_values import add_former_host, get_meta, set_meta
from store.database import Database, open_reader
from store.errors import StoreError
from store.runs.writes import Run, get_run, unfinished_runs
from store.tasks import get_task
from supervisor.host.cgroups import is_spare, run_of
from supervisor.host.clock import Clock
from supervisor.host.osport import current_boot
from supervisor.host.pidfds import has_ended
from supervisor.host.process_environ import Environments
from supervisor.host.shortage import is_shortage
from supervisor.ipc.log_line import Log

T = TypeVar("T")

_WAIT_S = 5.0
"""How long to wait while no process exits."""
_POLL_S = 0.005
_PATIENCE_S = 0.2
"""How long to wait for an environment: reading /proc/PID/environ may block."""
_CGROUPS = "cgroups"
_BOOT_ID = "boot_id"
_DAEMON_ID = "daemon_id"
_HOST = "host"
"""Names in the store of facts about the previous daemon.

They are its directory of cgroups, the boot and the name of the host, and the id of its data directory.
"""


def end_orphans(db: Database, daemon_id: str, lost: Collection[str], cgroups: str | None, log: Log) -> None:
    """Kill the orphans of runs and wait until they exit; log the rest.

    Args:
        db: has facts about the previous daemon, which are replaced by facts about this daemon.
        daemon_id: ULID of the data directory.
        lost: unfinished runs that the root does not know.
        cgroups: the directory of the runs' cgroups, if any.
        log: the log of the scheduler.
    """
    before = {str(get_meta(db, _CGROUPS) or ""), cgroups or ""} - {""}
    if get_meta(db, _DAEMON_ID) not in (None, daemon_id):
        host = str(get_meta(db, _HOST) or "an unknown host")
        log.warning(
            f"another daemon, on {host}, used this database before: its unfinished runs end as crashed, "
            "and logs that were not copied are still in its data directory"
        )
        add_former_host(db, host)
    elif _may_have_orphans(db, daemon_id):
        _end(daemon_id, lost, before, log)
        for directory in before:
            _remove_empty(db, daemon_id, directory)
    # Stored last: if this scheduler is killed before, the next one repeats everything.
    set_meta(db, _CGROUPS, cgroups or "")
    set_meta(db, _BOOT_ID, current_boot())
    set_meta(db, _HOST, socket.gethostname())
    set_meta(db, _DAEMON_ID, daemon_id)


def end_orphans_unstored(database: str, daemon_id: str, kept: Collection[str], log: Log) -> list[Run]:
    """Kill the orphans of a previous daemon if the database can be read; change nothing there.

    Args:
        database: the path or URL of the database.
        daemon_id: ULID of the data directory.
        kept: runs that the next daemon will continue.
        log: receives what could not be killed.

    Returns:
        The runs whose orphans were killed.
    """
    try:
        with contextlib.closing(open_reader(database, alone=True)) as db:
            if not _may_have_orphans(db, daemon_id):
                return []
            runs = [run for run in unfinished_runs(db) if run.id not in kept]
            lost, cgroups = without_kept(db, runs), str(get_meta(db, _CGROUPS) or "")
    except StoreError:
        return []
    killed = _end(daemon_id, lost, {cgroups} - {""}, log)
    return [run for run in runs if run.id in killed]


def without_kept(db: Database, runs: Iterable[Run]) -> set[str]:
    """Return the ids of `runs` except for those of tasks whose leftovers stay.

    The definition in `db` decides, with which the runs started, and not the present configuration.
    """
    runs = list(runs)
    to_leave = {name for name in {run.task_name for run in runs} if _leaves(db, name)}
    return {run.id for run in runs if run.task_name not in to_leave}


def _leaves(db: Database, name: str) -> bool:
    task = get_task(db, name)
    return task is not None and json.loads(task.definition).get("leftovers") == "leave"


def _may_have_orphans(db: Database, daemon_id: str) -> bool:
    """Return whether the database is that of `daemon_id`, and its last daemon ran since the host was booted.

    The daemon of another id may be running. Its runs are also in our copy, but are not our orphans.
    """
    return bool(get_meta(db, _DAEMON_ID) == daemon_id and get_meta(db, _BOOT_ID) == current_boot())


def _end(daemon_id: str, lost: Collection[str], cgroups: Iterable[str], log: Log) -> set[str]:
    """Kill the orphans of `lost`; return the runs that had some."""
    killed = [_end_cgroups(directory, lost, log) for directory in cgroups]
    return set().union(*killed, _end_marked(daemon_id, lost, log))


def _end_cgroups(directory: str, runs: Collection[str], log: Log) -> set[str]:
    """Kill the cgroups of `runs`, then wait for all of them, so that they exit at the same time; return the runs."""
    paths = _paths(directory)
    killed: dict[str, str] = {}
    for run in runs:
        path = paths.get(run)
        if path is None or _removed(path):
            continue
        log.warning(f"killing orphans of {run}")
        try:
            with open(f"{path}/cgroup.kill", "w", encoding="ascii") as file:
                file.write("1")
            killed[path] = run
        except OSError:  # ENOENT: Linux before 5.14 has no cgroup.kill; the environments find the processes
            continue
    for path in wait_until_gone(killed, _removed, Clock()):
        log.error(f"some orphans of {killed[path]} did not exit within {_WAIT_S:g} s")
    return set(killed.values())


def wait_until_gone(items: Iterable[T], gone: Callable[[T], bool], clock: Clock) -> list[T]:
    """Wait until all of `items` are gone; return the rest if none of them goes for five seconds.

    Each exit extends the wait, because a busy host may need long for many processes.
    """
    remaining = list(items)
    deadline_s = clock.monotonic_s() + _WAIT_S
    while remaining:
        still = [item for item in remaining if not gone(item)]
        if len(still) < len(remaining):
            remaining, deadline_s = still, clock.monotonic_s() + _WAIT_S
        elif clock.monotonic_s() >= deadline_s:
            break
        else:
            clock.sleep(_POLL_S)
    return remaining


def _paths(directory: str) -> dict[str, str]:
    """Return the paths of the cgroups in `directory`, by run id, or by name if they belong to no run."""
    try:
        paths = [entry.path for entry in os.scandir(directory) if entry.is_dir()]
    except OSError:  # ENOENT: no run ever had a cgroup there
        return {}
    return {run_of(path) or os.path.basename(path): path for path in paths}


def _removed(path: str) -> bool:
    """Remove a cgroup and the cgroups below it; return False while processes are in them."""
    for below, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # EBUSY: it has processes
            os.rmdir(below)
    return not os.path.exists(path)


def _remove_empty(db: Database, daemon_id: str, directory: str) -> None:
    """Remove the empty cgroups of ended runs of this database, and the spare ones of this daemon."""
    for name, path in _paths(directory).items():
        run = get_run(db, name, include_deleted=True)
        if is_spare(name, daemon_id) or (run is not None and run.status == "ended"):
            _removed(path)


class _Orphan(NamedTuple):
    pid: int
    pidfd: int
    run: str


def _held(daemon_id: str, runs: Collection[str], log: Log) -> list[_Orphan]:
    """Return the orphans of `runs`: all of them, or as many as there are descriptors. The caller closes these."""
    orphans = []
    environments = Environments(_PATIENCE_S)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            pidfd = os.pidfd_open(int(name))
        except OSError as err:  # ESRCH: it has exited; EINVAL: not a thread group leader
            if is_shortage(err):
                log.error(f"cannot look for further orphans: {err.strerror}")
                break
            continue
        marks = environments.read(int(name), 0)
        if marks is None:
            log.error(f"cannot read the environment of pid {name} (uninterruptible?); it may be an orphan")
        run = marks.get("RINGWARD_RUN_ID") if marks and marks.get("RINGWARD_DAEMON") == daemon_id else None
        if run is not None and run in runs:
            orphans.append(_Orphan(int(name), pidfd, run))
        else:
            os.close(pidfd)
    return orphans


def _end_marked(daemon_id: str, runs: Collection[str], log: Log) -> set[str]:
    """Kill orphans until a scan finds none, because a process may fork before it is killed; return their runs."""
    killed: set[str] = set()
    while runs and (orphans := _held(daemon_id, runs, log)):
        log.warning(f"killing orphans: pid {_pids(orphans)}")
        for orphan in orphans:
            try:
                signal.pidfd_send_signal(orphan.pidfd, signal.SIGKILL)
                killed.add(orphan.run)
            except ProcessLookupError:  # ESRCH: it has exited by itself
                pass
            except PermissionError:  # EPERM: it runs as another user, and the daemon not as root
                log.error(f"not permitted to signal pid {orphan.pid}, which continues")
        remaining = wait_until_gone(orphans, lambda orphan: has_ended(orphan.pidfd), Clock())
        for orphan in orphans:
            os.close(orphan.pidfd)
        if remaining:
            log.error(f"some orphans did not exit within {_WAIT_S:g} s: pid {_pids(remaining)}")
            break
    return killed


def _pids(orphans: Iterable[_Orphan]) -> str:
    return ", ".join(str(pid) for pid in sorted(orphan.pid for orphan in orphans))
