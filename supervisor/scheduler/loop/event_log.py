"""The events ring: every stored transition as one JSON object per line.

Line n holds event n + 1 of the store's outbox. Readers can therefore resume at a line number even after a restart of
the scheduler. A line has a maximum length. An event that exceeds it is reduced to its number and kind, and readers
fetch the new state.
"""

import contextlib
import os
from collections.abc import Sequence

from logring.errors import LogError
from logring.layout import MAX_LINE, SYSTEM, RingShape
from logring.log_paths import ring_path
from logring.reader import LogReader
from logring.ring.writer import RingWriter
from store.database import Database
from store.events import Draft, draft, last_seq, since
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.scheduler.loop.loop import Loop

EVENTS_RING = "events"
_CHECK_MS = 2000
_AGAIN = 1000
"""Number of announced events that a new ring repeats, for readers that resume after a restart of the scheduler."""


def left_over(db: Database, runtime_dir: str) -> tuple[int, list[Draft]]:
    """Return the first event number of a new ring, and the events with which it begins.

    The first events repeat announcements of the previous scheduler; it had stored the others but not announced them.
    """
    last = last_seq(db)
    newest = announced(runtime_dir)
    if not newest:
        return last + 1, []
    oldest = max(0, newest - _AGAIN)
    events = since(db, oldest, max(0, last - oldest))
    # A database restored from its copy skips event numbers; a ring cannot have gaps.
    if not events or events[-1].seq - events[0].seq != len(events) - 1:
        return last + 1, []
    return events[0].seq, [draft(event.kind, event.body, event.created_at) for event in events]


def announced(runtime_dir: str) -> int:
    """Return the number of the last event in the previous scheduler's ring; 0 if there is none or it is unreadable."""
    reader = LogReader(ring_path(runtime_dir, EVENTS_RING), None)
    try:
        return reader.head().lines
    except (LogError, OSError):
        return 0
    finally:
        reader.close()


class EventLog:
    """The writer of the events ring; there is only one. Wakes readers through the doorbell."""

    def __init__(self, loop: Loop, runtime_dir: str, daemon_id: str, bell: DoorbellServer, first_number: int) -> None:
        """Create a ring whose first line will hold event `first_number`; remove the ring of an earlier scheduler."""
        self._path = ring_path(runtime_dir, EVENTS_RING)
        self._daemon_id = daemon_id
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._writer = self._new_ring(first_number)
        self._loop = loop
        self._bell = bell
        self._news = False
        loop.watch(bell.listener.fileno(), self._accept)
        loop.after(_CHECK_MS, self._check)

    def _new_ring(self, first_number: int) -> RingWriter:
        return RingWriter.new(self._path, self._daemon_id, RingShape(0), first_line=first_number - 1)

    def _check(self) -> None:
        """If the ring's file was removed, write the ring with its contents to a new one."""
        writer = self._writer
        if writer.blocks.created and not writer.blocks.sealed and not os.path.exists(self._path):
            with contextlib.suppress(OSError):  # the directory is gone, too; the root creates it again
                self._writer = writer.in_a_new_file()
                self.ring()
        self._loop.after(_CHECK_MS, self._check)

    def announce(self, first: int, events: Sequence[Draft]) -> None:
        """Append events numbered from `first`; call :meth:`ring_at_round_end` afterwards to wake readers."""
        if events:
            lines = [_line(number, event) for number, event in enumerate(events, first)]
            self._writer.append(SYSTEM, b"".join(lines), events[-1].created_at)
            self._news = True
            if self._writer.gap is not None:
                # The file system is full. The writer would report the gap in a line of its own, which would take the
                # number of an event. Instead, a new ring begins with the next event.
                self._writer = self._new_ring(first + len(events))

    def ring_at_round_end(self) -> None:
        """Wake readers at the end of this round if there are new events."""
        if self._news:
            self._loop.at_round_end(self.ring)

    def ring(self) -> None:
        """Wake readers; a reader that was woken a moment ago is woken later."""
        self._news = False
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
        if self._bell.readable(fd, self._loop.now_s()):
            self._loop.watch(fd, lambda _mask: self._read(fd))

    def close(self, *, last: bool) -> None:
        """Close the doorbell. The `last` scheduler of a daemon also seals and removes the ring."""
        if last:
            self._writer.seal(self._loop.now_ms())
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        self._bell.close()


def _line(number: int, event: Draft) -> bytes:
    """Return the line of an event, without the body if the line would be too long."""
    start = f'{{"seq":{number},"kind":"{event.kind}"'
    tail = event.body[1:] if event.body == "{}" else f",{event.body[1:]}"
    line = f"{start}{tail}\n".encode()
    return line if len(line) <= MAX_LINE else f"{start}}}\n".encode()
