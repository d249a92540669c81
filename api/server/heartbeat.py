"""A worker's heartbeat for its arbiter, in place of gunicorn's temporary file.

Only the directory of that file can be configured. Any directory may be read-only or out of inodes, and one below
``/dev/shm`` may be removed at logout. The arbiter could then start no worker.
"""

import os
import time

from gunicorn.workers.workertmp import WorkerTmp


class Heartbeat(WorkerTmp):  # type: ignore[misc]  # gunicorn has no types
    """The monotonic time of the last heartbeat, stored as the mtime of a memory file that both processes have open.

    Creation counts as the first heartbeat, because a new file has a wall-clock time, which is later than any monotonic
    time. A worker that hung during startup, for example for lack of memory, would never be replaced.
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
        """Close the file in this process; the other process keeps it open."""
        os.close(self._fd)
