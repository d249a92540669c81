"""Processes that a killed supervisor left behind: found by their marker, ended before anything new starts.

Every instance carries the id of its data directory and of its run in its environment. A process counts as ours only
when both agree with what this database takes for running, so no other daemon's and no stranger's is ever touched. It
is held by a pidfd (pidfd_open(2)) before its environment is read, so that the process that is signalled is the one
that was looked at.
"""

import os
import select
import signal
import time

from supervisor.logline import Log

_WAIT_S = 5.0


def _markers(pid: int) -> tuple[str, str]:
    """Daemon id and run id in the environment that a process was started with (proc_pid_environ(5)); "" if absent."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
    except OSError:  # ENOENT, ESRCH: it has ended; EACCES, EPERM: another user's
        return "", ""
    return pairs.get(b"RINGWARD_DAEMON", b"").decode(errors="replace"), pairs.get(b"RINGWARD_RUN_ID", b"").decode(
        errors="replace"
    )


def _held(daemon_id: str, runs: set[str]) -> dict[int, int]:
    """Pidfds of all our processes, by pid."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            pidfd = os.pidfd_open(int(name))
        except OSError:  # ESRCH: it has ended; EINVAL: a thread
            continue
        daemon, run = _markers(int(name))
        if daemon == daemon_id and run in runs:
            found[int(name)] = pidfd
        else:
            os.close(pidfd)
    return found


def end_leftovers(daemon_id: str, runs: set[str], log: Log) -> None:
    """Kill the processes of these runs, and wait until they are gone; one that does not go is reported.

    Args:
        daemon_id: ULID of the data directory.
        runs: ids of runs that the store takes for running and the root does not know.
        log: where to say what was done.
    """
    deadline_s = time.monotonic() + _WAIT_S
    while runs and (found := _held(daemon_id, runs)):
        log.warning(f"killing what an earlier supervisor left behind: pid {', '.join(map(str, sorted(found)))}")
        for pid, pidfd in found.items():
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:  # ESRCH: it ended by itself
                pass
            except PermissionError:  # EPERM: it changed its user, to one that we may not signal
                log.error(f"pid {pid} may not be signalled and goes on")
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000)
            os.close(pidfd)
        if time.monotonic() >= deadline_s:
            log.error("not all of them have ended within 5 s")
            return
