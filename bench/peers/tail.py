"""Follow a log file as ``tail -f`` does: the kernel reports writes."""

import ctypes
import os
import select
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.client import Failed

_IN_MODIFY = 2
_READ_BYTES = 65536
_libc = ctypes.CDLL(None, use_errno=True)


class Tail:
    """New content of a file, from now on; a context."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._file.seek(0, os.SEEK_END)
        self._buffer = b""
        self._inotify = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._inotify < 0 or _libc.inotify_add_watch(self._inotify, os.fsencode(path), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._inotify)
        self._file.close()

    def next(self, wait_s: float) -> tuple[list[bytes], int]:
        """Wait for complete lines; return them with the time of reading, in ns of the monotonic clock.

        Raises:
            Failed: no line arrives in time.
        """
        deadline_s = time.monotonic() + wait_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            if not select.select([self._inotify], [], [], left_s)[0]:
                break
            os.read(self._inotify, 4096)
            while data := self._file.read(_READ_BYTES):
                self._buffer += data
            at_ns = time.monotonic_ns()
            *lines, self._buffer = self._buffer.split(b"\n")
            if lines:
                return lines, at_ns
        raise Failed(f"nothing is written to {self._path.name}")
