"""The initial environments of other processes, read without waiting for those processes.

To read one, the kernel takes the lock of the process's memory, which a thread on a dead disk may hold without end. So a
thread of its own reads, and the caller waits for that only a little while.

Standard library only: the root process loads this.
"""

import _thread
import contextlib
import os
import signal
import threading
import weakref

_MAX_BYTES = 1 << 20
_MAX_WAITING = 32
"""Reads that may hang at the same time; beyond that, no process is read."""


class _Life:
    """Is there as long as a thread has it."""


class _Read:
    """One attempt.

    Raises:
        RuntimeError: no more threads may be had.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.done = threading.Event()
        self.content = b""
        life = _Life()
        self._life = weakref.ref(life)
        # threading.Thread waits for its thread to begin, without end if memory for it is missing.
        _thread.start_new_thread(self._run, (life,))

    @property
    def goes_on(self) -> bool:
        """False when it is done, or has ended for want of memory."""
        return not self.done.is_set() and self._life() is not None

    def _run(self, _life: _Life) -> None:
        # Reads must not wait for a hung thread, or end with it: an upgrade executes the root anew.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(MemoryError):  # the next one tries again
            # The first thread may have ended before the others, and has let go of the memory.
            self.content = _content(self._directory) or self._of_another_thread()
            self.done.set()

    def _of_another_thread(self) -> bytes:
        tasks = os.path.join(self._directory, "task")
        with contextlib.suppress(OSError):  # ENOENT: it has ended
            for thread in os.listdir(tasks):
                if content := _content(os.path.join(tasks, thread)):
                    return content
        return b""


def _content(directory: str) -> bytes:
    content = b""
    # ENOENT, ESRCH: it has ended; EACCES, EPERM: another user's; EMFILE, ENOMEM
    with contextlib.suppress(OSError), open(os.path.join(directory, "environ"), "rb", buffering=0) as file:
        while len(content) < _MAX_BYTES and (part := file.read(_MAX_BYTES)):
            content += part
    return content


class Environments:
    """Reads environments (proc_pid_environ(5)) for one thread.

    Args:
        patience_s: How long to wait for a process that was not asked for before.
        proc: Where /proc is mounted.
    """

    def __init__(self, patience_s: float, proc: str = "/proc") -> None:
        self._patience_s = patience_s
        self._proc = proc
        self._waiting: dict[tuple[int, int], _Read] = {}

    def read(self, pid: int, start: int) -> dict[str, str] | None:
        """Return the variables of a process; empty when it is gone or not readable.

        None: they are not to be had now. The next call finds what came meanwhile, and waits for nothing.

        Args:
            pid: The process.
            start: When it started, in any unit: another process of the same id is another one.
        """
        one = self._waiting.get((pid, start))
        if one is None:
            self._waiting = {key: read for key, read in self._waiting.items() if read.goes_on}
            if len(self._waiting) >= _MAX_WAITING:
                return None
            try:
                one = _Read(os.path.join(self._proc, str(pid)))
            except RuntimeError:  # no more threads may be had
                return None
            one.done.wait(self._patience_s)
        if one.goes_on:
            self._waiting[pid, start] = one
            return None
        self._waiting.pop((pid, start), None)
        return _variables(one.content) if one.done.is_set() else None


def _variables(content: bytes) -> dict[str, str]:
    """Parse an environment. The first of two equal names counts, as for getenv(3)."""
    pairs = [entry.partition(b"=") for entry in content.split(b"\0")]
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in reversed(pairs) if equals}
