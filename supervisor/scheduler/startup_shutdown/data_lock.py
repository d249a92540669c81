"""The lock of a data directory: one scheduler at a time. A new one waits for the previous one, or kills it."""

import contextlib
import fcntl
import os
import signal
import time

from supervisor.host.pidfds import has_ended

TITLE = "ringward scheduler"
"""Process title of a scheduler in ps(1), set before it takes the lock."""
_WAIT_S = 5.0
_POLL_S = 0.02


class Locked(Exception):
    """Another scheduler holds the lock of this data directory, and could not be killed."""


def acquire(data_dir: str) -> int:
    """Take the lock; wait until an earlier scheduler exits, and kill it if it hangs.

    The pid of the holder comes from /proc/locks. It is not written to the file, because the disk may be full.

    Returns:
        The descriptor that holds the lock as long as it is open.

    Raises:
        Locked: another scheduler keeps the lock.
        OSError: the lock file cannot be created.
    """
    fd = os.open(f"{data_dir}/scheduler.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # A scheduler exits by itself when the connection to its root closes; only a hung one must be killed.
    if not _taken(fd, _WAIT_S):
        for pid in _holders(fd):
            _kill(pid, fd)
        if not _taken(fd, _WAIT_S):
            os.close(fd)
            raise Locked("another scheduler still runs on this data directory")
    return fd


def _taken(fd: int, wait_s: float) -> bool:
    """Take the lock as soon as it is free; return False if it is still held after `wait_s`."""
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _holders(fd: int) -> list[int]:
    """Return the process ids of schedulers that hold a lock on the file (proc_locks(5)).

    Only the inode number is compared with /proc/locks. It may occur on several file systems, so a process must also
    have the file itself open.
    """
    file = os.fstat(fd)
    pids = []
    with contextlib.suppress(FileNotFoundError), open("/proc/locks", encoding="ascii") as locks:  # ENOENT: no /proc
        for line in locks:
            words = line.split()
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(file.st_ino) and words[4].isdigit():
                pid = int(words[4])
                if pid != os.getpid() and _is_scheduler(pid) and _has_open(pid, file):
                    pids.append(pid)
    return pids


def _is_scheduler(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:  # ENOENT: it has ended
        return file.read().startswith(TITLE.encode())
    return False


def _has_open(pid: int, file: os.stat_result) -> bool:
    with contextlib.suppress(OSError):  # ENOENT: it has ended
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), file):
                    return True
    return False


def _kill(pid: int, fd: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # ESRCH: it has just exited
        pidfd = os.pidfd_open(pid)
        try:
            if pid not in _holders(fd):  # the pid could be reused until the pidfd was opened, so check again
                return
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            has_ended(pidfd, _WAIT_S)
        finally:
            os.close(pidfd)
