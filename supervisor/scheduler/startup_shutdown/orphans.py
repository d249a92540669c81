"""Orphans: processes that a killed supervisor left behind are killed before anything new starts.

The orphans of a run with a cgroup are the members of that cgroup, whose name or attribute is the run id. Others are
found by a marker: the environment of every process has the ids of its data directory and its run. A process is ours
only if both match an unfinished run of this database, so no foreign process is ever signalled. Its start time is
ignored, because after a step of the clock it may precede the run. A pidfd (pidfd_open(2)) is opened before the
environment is read, so the checked process is the signalled one.

After a reboot of the host there are no orphans, whatever carries such a marker.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from store.daemon_values import get_meta, set_meta
from store.database import Database
from store.runs.writes import get_run
from supervisor.host.cgroup_names import is_spare, run_of
from supervisor.host.osport import current_boot
from supervisor.host.process_environ import Environments
from supervisor.ipc.log_line import Log

T = TypeVar("T")

_WAIT_S = 5.0
"""Longest time without any process exiting."""
_POLL_MS = 5
_PATIENCE_S = 0.2
"""How long to wait for an unreadable environment."""
_CGROUPS = "cgroups"
_BOOT_ID = "boot_id"
_DAEMON_ID = "daemon_id"
"""Names in the store of facts about the previous daemon: directory of cgroups, boot of the host, and id of its data
directory."""


def end_orphans(db: Database, daemon_id: str, lost: Collection[str], cgroups: str | None, log: Log) -> None:
    """Kill the orphans of runs and wait until they exit; report the rest.

    Args:
        db: holds facts about the previous daemon; updated to this one.
        daemon_id: ULID of the data directory.
        lost: unfinished runs unknown to the root.
        cgroups: the directory of the cgroups of runs, if any.
        log: the log of the scheduler.
    """
    boot_id = current_boot()
    before = {str(get_meta(db, _CGROUPS) or ""), cgroups or ""} - {""}
    known_as = get_meta(db, _DAEMON_ID)
    if known_as not in (None, daemon_id):
        # Another daemon may run with that id, and its runs are in our database too.
        log.warning("this data directory is a copy of another one; runs of the other daemon are ignored")
    elif get_meta(db, _BOOT_ID) == boot_id:
        for directory in before:
            _end_cgroups(directory, lost, log)
            _remove_empty(db, daemon_id, directory)
        _end_marked(daemon_id, lost, log)
    # Only now, so that the next scheduler repeats this if we are killed meanwhile.
    set_meta(db, _CGROUPS, cgroups or "")
    set_meta(db, _BOOT_ID, boot_id)
    set_meta(db, _DAEMON_ID, daemon_id)


def _end_cgroups(directory: str, runs: Collection[str], log: Log) -> None:
    """Kill all cgroups first, then wait, so that a slow one takes no time from others."""
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
        except OSError:  # ENOENT: Linux before 5.14; the marker finds the processes
            continue
    for path in wait_until_gone(killed, _removed, time.monotonic, lambda: select.poll().poll(_POLL_MS)):
        log.error(f"some orphans of {killed[path]} did not exit within {_WAIT_S:g} s")


def wait_until_gone(
    what: Iterable[T], gone: Callable[[T], bool], now_s: Callable[[], float], pause: Callable[[], object]
) -> list[T]:
    """Wait until all are gone; return the rest once none has gone for some seconds.

    Each exit extends the wait, however many there are and however busy the host is.
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
    """Return the cgroups in a directory by run id; others by their own name."""
    try:
        found = [entry.path for entry in os.scandir(directory) if entry.is_dir()]
    except OSError:  # ENOENT: never used
        return {}
    return {run_of(path) or os.path.basename(path): path for path in found}


def _removed(path: str) -> bool:
    """Remove a cgroup with its children; return False while it has processes."""
    for below, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # EBUSY
            os.rmdir(below)
    return not os.path.exists(path)


def _remove_empty(db: Database, daemon_id: str, directory: str) -> None:
    """Remove empty cgroups of our ended runs, and spare ones."""
    for name, path in _paths(directory).items():
        run = get_run(db, name, include_deleted=True)
        if is_spare(name, daemon_id) or (run is not None and run.status == "ended"):
            _removed(path)


def _held(daemon_id: str, runs: Collection[str], log: Log) -> dict[int, int]:
    """Return pidfds of all orphans, by pid."""
    found: dict[int, int] = {}
    environments = Environments(_PATIENCE_S)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            pidfd = os.pidfd_open(int(name))
        except OSError:  # ESRCH: it exited; EINVAL: a thread
            continue
        marks = environments.read(int(name), 0)
        if marks is None:
            log.error(f"cannot read the environment of pid {name} (uninterruptible?); it may be an orphan")
        if marks and marks.get("RINGWARD_DAEMON") == daemon_id and marks.get("RINGWARD_RUN_ID") in runs:
            found[int(name)] = pidfd
        else:
            os.close(pidfd)
    return found


def _end_marked(daemon_id: str, runs: Collection[str], log: Log) -> None:
    """Kill orphans until a scan finds none, including processes forked meanwhile."""
    while runs and (found := _held(daemon_id, runs, log)):
        log.warning(f"killing orphans: pid {', '.join(map(str, sorted(found)))}")
        for pid, pidfd in found.items():
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:  # ESRCH: it exited by itself
                pass
            except PermissionError:  # EPERM: it runs as a user that we may not signal
                log.error(f"not permitted to signal pid {pid}, which continues")
        left = wait_until_gone(
            found, lambda pid: _ended(found[pid]), time.monotonic, lambda: select.poll().poll(_POLL_MS)
        )
        for pidfd in found.values():
            os.close(pidfd)
        if left:
            log.error(f"some orphans did not exit within {_WAIT_S:g} s: pid {', '.join(map(str, sorted(left)))}")
            return


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
