"""The lock of a data directory: one scheduler at a time. The next one waits for its predecessor, or kills it."""

import contextlib
import fcntl
import os
import select
import signal
import time

TITLE = "ringward scheduler"
"""Process title of a scheduler in ps(1), set before it takes the lock."""
_WAIT_S = 5.0
_POLL_S = 0.02


class Locked(Exception):
    """Another scheduler of this data directory does not exit."""


def take(data_dir: str) -> int:
    """Wait until an earlier scheduler of this data directory exits, and kill it if it hangs.

    Nothing is written, so a full disk is no obstacle.

    Returns:
        The descriptor of the lock; keep it open.

    Raises:
        Locked: the lock stays held.
        OSError: the lock file cannot be created.
    """
    fd = os.open(f"{data_dir}/scheduler.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # A holder exits by itself when its root closes the connection; a hung one is killed.
    if not _taken(fd, _WAIT_S):
        for pid in _holders(fd):
            _kill(pid, fd)
        if not _taken(fd, _WAIT_S):
            os.close(fd)
            raise Locked("another scheduler still runs on this data directory")
    return fd


def _taken(fd: int, wait_s: float) -> bool:
    """Take the lock as soon as it is free; return False after `wait_s`."""
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

    They must have the same file open, because inode numbers repeat across file systems.
    """
    file = os.fstat(fd)
    found = []
    with contextlib.suppress(FileNotFoundError), open("/proc/locks", encoding="ascii") as locks:  # no /proc
        for line in locks:
            words = line.split()
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(file.st_ino) and words[4].isdigit():
                pid = int(words[4])
                if pid != os.getpid() and _is_scheduler(pid) and _has_open(pid, file):
                    found.append(pid)
    return found


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
            if pid not in _holders(fd):  # checked again: only the pidfd guarantees that the pid is not reused
                return
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(_WAIT_S * 1000)
        finally:
            os.close(pidfd)
