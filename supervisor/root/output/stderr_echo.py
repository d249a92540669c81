"""The daemon's log on standard error, as fast as whoever reads it takes it: writing never waits.

Standard error is shared with whoever started us, so it is not made non-blocking: it is asked before each write. A pipe
that says POLLOUT takes PIPE_BUF bytes (pipe(7)); a terminal that was stopped does not say it.
"""

import collections
import os
import select

_MAX_WAITING_BYTES = 1024 * 1024
_WRITE_BYTES = select.PIPE_BUF


class StderrEcho:
    """Lines on their way to a descriptor; one thread adds, another one flushes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._waiting: collections.deque[bytes] = collections.deque()
        # Each counter has one thread that writes it.
        self._added_bytes = 0
        self._gone_bytes = 0

    def add(self, lines: bytes) -> bool:
        """Take lines; False when a megabyte waits already and they are dropped (they are in the ring)."""
        if self._added_bytes - self._gone_bytes >= _MAX_WAITING_BYTES:
            return False
        self._added_bytes += len(lines)
        self._waiting.append(lines)
        return True

    @property
    def waiting(self) -> bytes:
        """What is not written yet; while nobody adds or flushes."""
        return b"".join(self._waiting)

    def flush(self) -> None:
        """Write what can be written now."""
        while self._waiting and self._poll.poll(0):
            lines = self._waiting[0]
            try:
                written = os.write(self._fd, lines[:_WRITE_BYTES])
            except OSError:  # EPIPE, EIO, EBADF: nobody reads any more
                written = len(lines)
            self._gone_bytes += written
            if written < len(lines):
                self._waiting[0] = lines[written:]
            else:
                self._waiting.popleft()
