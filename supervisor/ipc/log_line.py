"""The log lines of the daemon's processes, which the root copies from their standard error into the daemon's ring.

::

    2026-11-21T03:04:05.678Z INFO scheduler: text

Standard library only, without `logging`: the root process loads this.
"""

import functools
import os
import time

LEVELS = ("debug", "info", "warning", "error")

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))}


def printable(text: str) -> str:
    """Return `text` with control characters escaped, so that data cannot forge log lines."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def stamp(now_ms: int) -> str:
    """Format a time, in ms since the epoch, as RFC 3339 in UTC with milliseconds."""
    seconds, ms = divmod(now_ms, 1000)
    return f"{_second(seconds)}.{ms:03d}Z"


@functools.lru_cache(1)
def _second(seconds: int) -> str:
    """Format the part up to the second. It is cached because a busy daemon logs many lines a second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


class Log:
    """Writes the log lines of one process, except those below a level."""

    def __init__(self, name: str, level: str = "info", fd: int = 2) -> None:
        self._name = name
        self._threshold = LEVELS.index(level)
        self._fd = fd

    def set_level(self, level: str) -> None:
        """Write lines at or above `level` from now on."""
        self._threshold = LEVELS.index(level)

    def debug(self, text: str) -> None:
        """Log a detail for the daemon's developers."""
        self._write(0, text)

    def info(self, text: str) -> None:
        """Log an action of the daemon."""
        self._write(1, text)

    def warning(self, text: str) -> None:
        """Log a problem that the daemon could handle."""
        self._write(2, text)

    def error(self, text: str) -> None:
        """Log an error that needs attention."""
        self._write(3, text)

    def line(self, level: int, text: str) -> bytes:
        """Return a complete line with the present time; `level` is an index of :data:`LEVELS`."""
        now_ms = time.time_ns() // 1_000_000
        return f"{stamp(now_ms)} {LEVELS[level].upper()} {self._name}: {printable(text)}\n".encode()

    def _write(self, level: int, text: str) -> None:
        if level >= self._threshold:
            self.emit(self.line(level, text))

    def emit(self, line: bytes) -> None:
        """Write a line to the descriptor. The root overrides this to write into the ring."""
        try:
            os.write(self._fd, line)
        except (BrokenPipeError, BlockingIOError):
            # EPIPE: the root is gone, so this process is about to end. EAGAIN: a full pipe must not stall the loop.
            return
