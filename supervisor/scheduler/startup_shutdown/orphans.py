"""Processes that a killed supervisor left behind: found, and ended before anything new starts.

A run that had a cgroup is found by that: its name or an attribute is the run's id, and everything in it is the run's.
Others are found by a marker: every instance carries the id of its data directory and of its run in its environment. A
process counts as ours only when both agree with what this database takes for unfinished, so no other daemon's and no
stranger's is ever touched: nobody else makes the id of a run. When it began is not asked: after the clock was set back,
it would seem to be older than its run. It is held by a pidfd (pidfd_open(2)) before its environment is read, so that
the process that is signalled is the one that was looked at.

What was started before the host was booted is not there any more, whatever bears its marks.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from store.database import Database
from store.meta import get_meta, set_meta
from store.runs.writes import get_run
from supervisor.host.cgroup_names import is_spare, run_of
from supervisor.host.osport import current_boot
from supervisor.host.process_environ import Environments
from supervisor.ipc.log_line import Log

T = TypeVar("T")

_WAIT_S = 5.0
"""How long the next one may take to end."""
_POLL_MS = 5
_PATIENCE_S = 0.2
"""How long one that cannot be looked at is waited for."""
_CGROUPS = "cgroups"
_BOOT_ID = "boot_id"
_DAEMON_ID = "daemon_id"
"""Names in the store of what the daemon before said: where its runs' cgroups were, in which boot of the host, and which
data directory it had."""


def end_orphans(db: Database, daemon_id: str, lost: Collection[str], cgroups: str | None, log: Log) -> None:
    """Kill the processes of runs, and wait until they are gone; what does not go is reported.

    Args:
        db: has what the daemon before said of itself; afterwards what this one says.
        daemon_id: ULID of the data directory.
        lost: unfinished runs that the root does not know.
        cgroups: the directory with the cgroups of runs, if there is one.
        log: where to say what was done.
    """
    boot_id = current_boot()
    before = {str(get_meta(db, _CGROUPS) or ""), cgroups or ""} - {""}
    known_as = get_meta(db, _DAEMON_ID)
    if known_as not in (None, daemon_id):
        # Under that id another daemon runs. Its runs are in our database, too.
        log.warning("this data directory is a copy of another one: what runs of that is left alone")
    elif get_meta(db, _BOOT_ID) == boot_id:
        for directory in before:
            _end_cgroups(directory, lost, log)
            _remove_empty(db, daemon_id, directory)
        _end_marked(daemon_id, lost, log)
    # Only now: the next scheduler does it again when this one is killed meanwhile.
    set_meta(db, _CGROUPS, cgroups or "")
    set_meta(db, _BOOT_ID, boot_id)
    set_meta(db, _DAEMON_ID, daemon_id)


def _end_cgroups(directory: str, runs: Collection[str], log: Log) -> None:
    """Kill all first, then wait: what one takes is not missing to the others."""
    paths = _paths(directory)
    killed: dict[str, str] = {}
    for run in runs:
        path = paths.get(run)
        if path is None or _removed(path):
            continue
        log.warning(f"killing what an earlier supervisor left behind of {run}")
        try:
            with open(f"{path}/cgroup.kill", "w", encoding="ascii") as file:
                file.write("1")
            killed[path] = run
        except OSError:  # ENOENT: a kernel before 5.14; its processes are found by their marker
            continue
    for path in wait_until_gone(killed, _removed, time.monotonic, lambda: select.poll().poll(_POLL_MS)):
        log.error(f"not everything of {killed[path]} has ended within {_WAIT_S:g} s")


def wait_until_gone(
    what: Iterable[T], gone: Callable[[T], bool], now_s: Callable[[], float], pause: Callable[[], object]
) -> list[T]:
    """Wait until each is gone; return what is left when none has gone for some seconds.

    So each has its time, however many there are and however busy the host is.
    """
    left = list(what)
    deadline_s = now_s() + _WAIT_S
    while left:
        still = [one for one in left if not gone(one)]
        if len(still) < len(left):
            left, deadline_s = still, now_s() + _WAIT_S
        elif now_s() >= deadline_s:
            break
        else:
            pause()
    return left


def _paths(directory: str) -> dict[str, str]:
    """The cgroups there, by run; one that is no run's has its own name."""
    try:
        found = [entry.path for entry in os.scandir(directory) if entry.is_dir()]
    except OSError:  # ENOENT: never used
        return {}
    return {run_of(path) or os.path.basename(path): path for path in found}


def _removed(path: str) -> bool:
    """Remove a cgroup and those below it; False while there are processes in it."""
    for below, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # EBUSY
            os.rmdir(below)
    return not os.path.exists(path)


def _remove_empty(db: Database, daemon_id: str, directory: str) -> None:
    """Remove cgroups of runs of ours that have ended, and of no run yet, when nobody is left in them."""
    for name, path in _paths(directory).items():
        run = get_run(db, name, include_deleted=True)
        if is_spare(name, daemon_id) or (run is not None and run.status == "ended"):
            _removed(path)


def _held(daemon_id: str, runs: Collection[str], log: Log) -> dict[int, int]:
    """Pidfds of all our processes, by pid."""
    found: dict[int, int] = {}
    environments = Environments(_PATIENCE_S)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            pidfd = os.pidfd_open(int(name))
        except OSError:  # ESRCH: it has ended; EINVAL: a thread
            continue
        marks = environments.read(int(name), 0)
        if marks is None:
            log.error(f"pid {name} cannot be looked at (uninterruptible?) and may be left of an earlier supervisor")
        if marks and marks.get("RINGWARD_DAEMON") == daemon_id and marks.get("RINGWARD_RUN_ID") in runs:
            found[int(name)] = pidfd
        else:
            os.close(pidfd)
    return found


def _end_marked(daemon_id: str, runs: Collection[str], log: Log) -> None:
    """Kill them until a look finds none, also of those that were made meanwhile."""
    while runs and (found := _held(daemon_id, runs, log)):
        log.warning(f"killing what an earlier supervisor left behind: pid {', '.join(map(str, sorted(found)))}")
        for pid, pidfd in found.items():
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:  # ESRCH: it ended by itself
                pass
            except PermissionError:  # EPERM: it changed its user, to one that we may not signal
                log.error(f"pid {pid} may not be signalled and goes on")
        left = wait_until_gone(
            found, lambda pid: _ended(found[pid]), time.monotonic, lambda: select.poll().poll(_POLL_MS)
        )
        for pidfd in found.values():
            os.close(pidfd)
        if left:
            log.error(f"not all of them have ended within {_WAIT_S:g} s: pid {', '.join(map(str, sorted(left)))}")
            return


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
