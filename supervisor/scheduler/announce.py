"""The events ring: every transition that was stored, one JSON object a line.

Line n holds event number n + 1 of the store's outbox, so an event's line number can serve as the id that a
reader resumes from, over scheduler restarts.
"""

import contextlib
import json
import os
from typing import Any

from logring.layout import SYSTEM
from logring.paths import ring_path
from logring.writer import RingWriter
from supervisor.doorbell import DoorbellServer
from supervisor.scheduler.loop import Loop

EVENTS_RING = "events"


class Announcer:
    """The only writer of the events ring, and its doorbell."""

    def __init__(self, loop: Loop, runtime_dir: str, daemon_id: str, bell: DoorbellServer, first_number: int) -> None:
        """Begin a new ring whose first line will hold event `first_number`."""
        path = ring_path(runtime_dir, EVENTS_RING)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._writer = RingWriter(path, daemon_id, file_blocks=0, first_line=first_number - 1)
        self._loop = loop
        self._bell = bell
        loop.watch(bell.listener.fileno(), self._accept)

    def announce(self, number: int, kind: str, body: dict[str, Any], now_ms: int) -> None:
        """Append event `number`, and ring."""
        text = json.dumps({"seq": number, "kind": kind, **body}, separators=(",", ":"), ensure_ascii=False)
        self._writer.append(SYSTEM, text.encode() + b"\n", now_ms)
        self._loop.last(self.ring)

    def ring(self) -> None:
        """Tell the readers, again later when one of them was told a moment ago."""
        before = self._bell.due_s()
        self._bell.ring([EVENTS_RING], self._loop.now_s())
        due_s = self._bell.due_s()
        if due_s is not None and before is None:
            self._loop.after(max(0.0, due_s - self._loop.now_s()) * 1000, self._again)

    def _again(self) -> None:
        self._bell.ring([], self._loop.now_s())
        due_s = self._bell.due_s()
        if due_s is not None:
            self._loop.after(max(0.0, due_s - self._loop.now_s()) * 1000, self._again)

    def _accept(self, _mask: int) -> None:
        reader = self._bell.accept()
        if reader is not None:
            fd = reader.fileno()
            self._loop.watch(fd, lambda _mask: self._read(fd))

    def _read(self, fd: int) -> None:
        self._loop.unwatch(fd)
        if self._bell.readable(fd):
            self._loop.watch(fd, lambda _mask: self._read(fd))

    def close(self) -> None:
        """Seal the ring, remove it and hang up."""
        self._writer.seal(self._loop.now_ms())
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._writer.path)
        self._bell.close()
