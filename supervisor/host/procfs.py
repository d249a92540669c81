"""Examines other processes through /proc, and signals a process without hitting a later one with the same id.

Reading /proc/PID/stat never waits for the process's memory lock, unlike reading its command line.
"""

import contextlib
import os
import signal
from typing import NamedTuple

_GONE = frozenset(b"ZX")
_LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")
"""Whether the kernel lists children (CONFIG_PROC_CHILDREN)."""
COUNTS_IO = os.path.exists("/proc/self/io")
"""Whether the kernel counts the bytes of each process on disks (CONFIG_TASK_IO_ACCOUNTING)."""
_FORKED_NO_EXEC = 0x40
"""PF_FORKNOEXEC of include/linux/sched.h: fork(2) sets it, and a successful execve(2) clears it."""
_LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp (proc_pid_net(5))."""
_READ_BYTES = 4096
_LIST_BYTES = 65536


class Process(NamedTuple):
    """A living process, identified by its id and start time."""

    pid: int
    name: str
    parent: int
    group: int
    session: int
    start: int
    """Start time in clock ticks since the host booted."""
    memory: int
    """Size of its address space in bytes; 0: its first thread has released it, as each thread does while it exits."""

    def __str__(self) -> str:
        """Return the name and the id, for log lines."""
        return f"{self.name} ({self.pid})"


def find_process(pid: int) -> Process | None:
    """Return the process with this id; None if there is none, or if it is a zombie without a living thread."""
    data = read_process_file(pid, "stat")
    # Field 2, the name, can contain spaces and parentheses (proc_pid_stat(5)).
    head, _, tail = data.rpartition(b")")
    fields = tail.split()
    # A first thread that has ended before the others is a zombie, which field 20 (num_threads) still counts.
    if len(fields) < 21 or (fields[0][0] in _GONE and int(fields[17]) <= 1):
        return None
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(pid, name, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), int(fields[20]))


def read_process_file(pid: int, name: str, proc: str = "/proc") -> bytes:
    """Return a file of a process, up to 4 KiB; empty if the process has ended or the file is not readable."""
    try:
        fd = os.open(f"{proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # ENOENT: it has ended; EACCES, EPERM: not permitted; EMFILE
        return b""
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:  # ESRCH: it has ended; EACCES: not permitted
        return b""
    finally:
        os.close(fd)


def stat_fields(pid: int, proc: str = "/proc") -> list[bytes]:
    """Return the fields of /proc/PID/stat after the process's name, from field 3, the state; empty if it has ended."""
    # Field 2, the name, can contain spaces and parentheses (proc_pid_stat(5)).
    return read_process_file(pid, "stat", proc).rpartition(b")")[2].split()


def start_of(pid: int) -> int | None:
    """Return the start time of a process or zombie in clock ticks since the host booted; None if there is none."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else None


def has_executed_nothing(pid: int) -> bool:
    """Return whether a process or zombie was forked but never executed a program; False if this is unknown."""
    fields = stat_fields(pid)
    return len(fields) > 6 and bool(int(fields[6]) & _FORKED_NO_EXEC)


def children_of(pid: int) -> list[int]:
    """Return the ids of the children of a process, including zombies; empty if it has ended."""
    if not _LISTS_CHILDREN:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == pid]
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # ENOENT: it has ended
        return []
    pids: list[int] = []
    for thread in threads:
        pids += children_of_thread(pid, thread)
    return pids


def own_children() -> list[int]:
    """Return the ids of this process's orphans and of its main thread's children, including zombies.

    The kernel makes orphans children of a subreaper's first living thread (find_new_reaper in kernel/exit.c). So it is
    enough to list the children of the main thread.
    """
    pid = os.getpid()
    return children_of_thread(pid, pid) if _LISTS_CHILDREN else children_of(pid)


def children_of_thread(pid: int, thread: int | str) -> list[int]:
    """Return the ids of the children that a thread has forked or adopted; empty if the thread has ended."""
    text = b""
    with contextlib.suppress(OSError):  # ENOENT, ESRCH: it has ended; EMFILE
        fd = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(fd, _LIST_BYTES):
                text += part
        finally:
            os.close(fd)
    return [int(word) for word in text.split()]


def listener_of(port: int) -> Process | None:
    """Return a process that listens on a TCP port; None if this user may not see it."""
    sockets = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as file:  # ENOENT: no IPv6
            for _number, address, _peer, state, *_more, inode in (line.split()[:10] for line in file):
                if state == _LISTENING and int(address.rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{inode}]")
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # ENOENT: it has ended; EACCES: another user's
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") in sockets:
                    return find_process(int(pid))
    return None


def parent_of(pid: int) -> int:
    """Return the parent of a process or zombie; 0 if the process has ended or has no parent."""
    fields = stat_fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def with_descendants(pids: list[int]) -> dict[int, Process]:
    """Return the living processes among `pids`, and all their living descendants."""
    processes: dict[int, Process] = {}
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in processes and (process := find_process(pid)) is not None:
            processes[pid] = process
            waiting += children_of(pid)
    return processes


def send_signal(process: Process, number: int) -> bool:
    """Signal a process if its start time is unchanged; return False if the permission is missing.

    The pidfd is opened first (pidfd_open(2)). If the start time is still the same afterwards, the pidfd refers to this
    process and not to a later one with the same id.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:  # ESRCH: it has ended; EMFILE: the next sweep finds it again
        return True
    try:
        now = find_process(process.pid)
        if now is not None and now.start == process.start:
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:  # ESRCH: it has ended
        return True
    except PermissionError:  # EPERM: it has changed its user
        return False
    finally:
        os.close(pidfd)
    return True


def io_bytes(pid: int, proc: str = "/proc") -> tuple[int | None, int | None]:
    """Return the bytes that a process and its awaited children have read from and written to disks.

    Both are None if the file is not readable or the kernel does not count (proc_pid_io(5)).
    """
    pairs = dict(line.partition(b": ")[::2] for line in read_process_file(pid, "io", proc).splitlines())
    try:
        return int(pairs[b"read_bytes"]), int(pairs[b"write_bytes"])
    except KeyError:
        return None, None
