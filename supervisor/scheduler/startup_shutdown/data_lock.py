"""The lock of a data directory: one scheduler at a time, and the next one waits for the one before, or ends it."""

import contextlib
import fcntl
import os
import select
import signal
import time

TITLE = "ringward scheduler"
"""Under which ps(1) shows a scheduler, before it takes the lock."""
_WAIT_S = 5.0
_POLL_S = 0.02


class Locked(Exception):
    """Another scheduler of this data directory does not end."""


def take(data_dir: str) -> int:
    """Wait for an earlier scheduler of this data directory to end, and end it when it does not.

    Nothing is written, so a full disk does not matter.

    Returns:
        The descriptor that holds the lock; keep it open.

    Raises:
        Locked: the lock cannot be had.
        OSError: its file cannot be made.
    """
    fd = os.open(f"{data_dir}/scheduler.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # A holder reads end of file from its root, and ends by itself; a hung one is killed.
    if not _taken(fd, _WAIT_S):
        for pid in _holders(fd):
            _kill(pid, fd)
        if not _taken(fd, _WAIT_S):
            os.close(fd)
            raise Locked("another scheduler of this data directory does not end")
    return fd


def _taken(fd: int, wait_s: float) -> bool:
    """Take the lock as soon as it is free; False when it is not for so long."""
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
    """Ids of the schedulers that hold a lock on the file, as the kernel knows them (proc_locks(5)).

    Only those that have the same file open: a number of an inode is used by many file systems.
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
    with contextlib.suppress(ProcessLookupError):  # ESRCH: it has just ended
        pidfd = os.pidfd_open(pid)
        try:
            if pid not in _holders(fd):  # looked at again, since only now its id cannot be given to another one
                return
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(_WAIT_S * 1000)
        finally:
            os.close(pidfd)
