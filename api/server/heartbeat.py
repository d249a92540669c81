"""Heartbeat of a worker for its arbiter, in place of gunicorn's temporary file.

gunicorn only lets its user choose the directory of that file. Any directory may be read-only, out of inodes or, below
``/dev/shm``, removed at a logout, and then the arbiter could replace no worker.
"""

import os
import time

from gunicorn.workers.workertmp import WorkerTmp


class Pulse(WorkerTmp):  # type: ignore[misc]  # gunicorn has no types
    """The time of the last heartbeat, as the mtime of a memory file that both processes have open.

    Creation counts as the first heartbeat. A new file has a wall-clock time, later than any monotonic one: a worker
    that hung while it started, for example without memory, would never be replaced.
    """

    def __init__(self, _cfg: object) -> None:
        self._fd = os.memfd_create("ringward-pulse")
        self.notify()

    def notify(self) -> None:
        """Record a heartbeat."""
        now_s = time.monotonic()
        os.utime(self._fd, (now_s, now_s))

    def last_update(self) -> float:
        """Return the monotonic time of the last heartbeat, in seconds."""
        return os.fstat(self._fd).st_mtime

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._fd

    def close(self) -> None:
        """Close the file in this process; the other process keeps it."""
        os.close(self._fd)
