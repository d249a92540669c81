"""Signs of life of a worker, which its arbiter looks at: stands in for gunicorn's file of one."""

import os
import time


class Pulse:
    """The time of the last sign, as that of a file in memory, which both processes hold."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("ringward-pulse")

    def notify(self) -> None:
        """Give a sign."""
        now_s = time.monotonic()
        os.utime(self._fd, (now_s, now_s))

    def last_update(self) -> float:
        """When the last one was given, monotonic seconds; before the first one it is later than any."""
        return os.fstat(self._fd).st_mtime

    def fileno(self) -> int:
        """Descriptor of the file."""
        return self._fd

    def close(self) -> None:
        """Look no more; the other process may."""
        os.close(self._fd)
