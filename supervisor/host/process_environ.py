"""Reads the initial environments of other processes without blocking.

To read an environment, the kernel takes the memory lock of its process. A thread of that process that waits for a dead
disk may hold the lock forever. So each read has its own thread, and the caller waits only briefly for it.

Standard library only: the root process loads this.
"""

import contextlib
import os

from supervisor.host.detached_thread import DetachedThread

_MAX_BYTES = 1 << 20
_MAX_WAITING = 32
"""Limit of reads that hang at the same time. At the limit, no more processes are read."""


class _EnvironmentRead:
    """One attempt to read an environment, in a thread; the next one tries again if memory is short.

    Raises:
        RuntimeError: the thread cannot be started.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.content = b""
        self.thread = DetachedThread(self._read)

    def _read(self) -> None:
        # If the first thread has ended before the others, it no longer refers to the process's memory.
        self.content = _read_environ(self._directory) or self._read_by_thread()

    def _read_by_thread(self) -> bytes:
        tasks = os.path.join(self._directory, "task")
        with contextlib.suppress(OSError):  # ENOENT: it has ended
            for thread in os.listdir(tasks):
                if content := _read_environ(os.path.join(tasks, thread)):
                    return content
        return b""


def _read_environ(directory: str) -> bytes:
    content = b""
    # ENOENT, ESRCH: it has ended; EACCES, EPERM: it belongs to another user; EMFILE, ENOMEM
    with contextlib.suppress(OSError), open(os.path.join(directory, "environ"), "rb", buffering=0) as file:
        while len(content) < _MAX_BYTES and (part := file.read(_MAX_BYTES)):
            content += part
    return content


class Environments:
    """Reads environments (proc_pid_environ(5)); for use by one thread.

    Args:
        patience_s: How long to wait for the first read of a process.
        proc: Where /proc is mounted.
    """

    def __init__(self, patience_s: float, proc: str = "/proc") -> None:
        self._patience_s = patience_s
        self._proc = proc
        self._waiting: dict[tuple[int, int], _EnvironmentRead] = {}

    def read(self, pid: int, start: int) -> dict[str, str] | None:
        """Return the variables of a process; empty if it has ended or is not readable.

        None means that the read has not finished yet. The next call for the process returns the result of that read
        without waiting.

        Args:
            pid: The id of the process.
            start: Its start time in any unit, which distinguishes it from other processes with the same id.
        """
        pending_read = self._waiting.get((pid, start))
        if pending_read is None:
            self._waiting = {key: read for key, read in self._waiting.items() if read.thread.running}
            if len(self._waiting) >= _MAX_WAITING:
                return None
            try:
                pending_read = _EnvironmentRead(os.path.join(self._proc, str(pid)))
            except RuntimeError:  # the limit of threads is reached
                return None
            pending_read.thread.wait(self._patience_s)
        if pending_read.thread.running:
            self._waiting[pid, start] = pending_read
            return None
        self._waiting.pop((pid, start), None)
        return _variables(pending_read.content) if pending_read.thread.returned else None


def _variables(content: bytes) -> dict[str, str]:
    """Parse an environment. If a name occurs twice, the first value counts, as for getenv(3)."""
    pairs = [entry.partition(b"=") for entry in content.split(b"\0")]
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in reversed(pairs) if equals}
