"""The log of one run, shared by the pump and the file thread; and the logs whose runs wait for the disk."""

import contextlib
import os
import resource
import sys
from collections.abc import Callable, Iterable

from logring.layout import BLOCK_SIZE, FILE_BLOCKS_AT, RingShape
from logring.logfile.log_file import LogFileWriter
from logring.redraw.history_file import FramesWriter
from logring.ring.writer import Keep, RingWriter
from supervisor.ipc.messages import Spawn
from supervisor.root.handover.record_memory import Record
from supervisor.root.handover.state_schema import LeftoverState, LogProgress, LogState, PipeState, RunLogState

_LARGE_BLOCK = 4 * BLOCK_SIZE
_LARGE_RINGS = range(4, 17)
_LARGE_FROM_BYTES = 32 * _LARGE_BLOCK
_MIN_FILE_BLOCKS = 2
_SLOW_AFTER_S = 5.0

OK, WAITING, DROPPING = "ok", "waiting", "dropping"
"""States of a log."""


def shape_of(log_max_bytes: int, memory_bytes: int) -> RingShape:
    """Return the size and number of blocks for a log file and a ring of at most these sizes.

    Large blocks halve the cost of a busy run, and with many blocks the pump and the file thread rarely wait for each
    other. A log with a small limit gets small blocks, so that removing the oldest block loses little. While shared
    memory is short, every log gets small blocks.
    """
    slots = min(memory_bytes // _LARGE_BLOCK, _LARGE_RINGS[-1])
    if log_max_bytes >= _LARGE_FROM_BYTES and slots in _LARGE_RINGS:
        return RingShape(log_max_bytes // _LARGE_BLOCK, slots, _LARGE_BLOCK)
    return RingShape(max(_MIN_FILE_BLOCKS, log_max_bytes // BLOCK_SIZE))


class OutputPipe:
    """One pipe of a run."""

    __slots__ = ("fd", "log", "stream", "wide")

    def __init__(self, fd: int, stream: int, log: "RunLog") -> None:
        self.fd = fd
        self.stream = stream
        self.log = log
        self.wide: bool | None = None
        """Whether the pipe was enlarged; None: not tried yet."""


class RunLog:
    """The ring and the log file of one run.

    Args:
        name: The name of the ring.
        path: The path of the log file; empty: the log is a ring without a file.
        writer: The writer of the ring, if it exists.
        make: Creates the writer when there is something to write.

    The file thread owns `file`, `frames`, `frames_failed` and `finished`; the pump owns everything else. Neither reads
    more than one value of the other at a time.
    """

    __slots__ = (
        "_make",
        "_writer",
        "closes_early",
        "failure",
        "file",
        "finished",
        "frames",
        "frames_failed",
        "held",
        "left",
        "name",
        "overflow_reported",
        "path",
        "record",
        "reported_blocks",
        "sealed",
        "sealing",
        "sources",
        "stalled",
        "state",
    )

    def __init__(
        self, name: str, path: str, writer: RingWriter | None = None, make: Callable[[], RingWriter] | None = None
    ) -> None:
        self.name = name
        self.path = path
        self._writer = writer
        self._make = make
        self.sources: set[OutputPipe] = set()
        self.stalled = False
        """The ring is full: the pump does not watch the pipes until the file thread has made room."""
        self.state = OK
        """The state that was reported last (:class:`Backpressure`)."""
        self.overflow_reported = False
        self.reported_blocks = 0
        self.closes_early = False
        """An earlier version has begun to close the pipes."""
        self.failure: str | None = None
        """Why the file cannot be written, as far as the pump knows."""
        self.left: LeftoverState | None = None
        """The task and secrets of processes that outlive the run and keep its pipes; None: the pipes are closed."""
        self.sealing = False
        """The run has ended, and its last lines were added."""
        self.sealed = False
        """The writer belongs to the file thread, which completes the ring and the file."""
        self.file: LogFileWriter | None = None
        self.frames: FramesWriter | None = None
        self.frames_failed = False
        """Some of its history of redrawn lines could not be written, and this was logged."""
        self.finished = False
        self.record: Record | None = None
        """Recovery record for text that masks hold back; None: there are no masks or no records."""
        self.held = b"", b"", 0
        """The last recorded state."""

    @property
    def writer(self) -> RingWriter:
        """Return the writer, which is created on first use."""
        if self._writer is None:
            if self._make is None:
                raise TypeError("this log has no writer and cannot create one")
            self._writer = self._make()
        return self._writer

    @property
    def silent(self) -> bool:
        """Return whether the log is empty, and has no writer, ring or file."""
        return self._writer is None

    @property
    def ring_is_gone(self) -> bool:
        """Return whether the ring was removed; False for a log that is being sealed. Any thread may call it."""
        writer = self._writer
        if writer is None or not writer.blocks.created or writer.blocks.private or os.path.exists(writer.blocks.path):
            return False
        return not (self.sealing or writer.blocks.sealed)

    @property
    def is_private(self) -> bool:
        """Return whether only this process sees the ring; False for a log that is being sealed."""
        return self._writer is not None and self._writer.blocks.private and not self.sealing

    def move_ring(self, path: str) -> None:
        """Set another path for the ring; :meth:`make_ring_again` creates it there."""
        if self._writer is not None:
            self._writer.blocks.path = path

    def make_ring_again(self) -> None:
        """Copy the ring into a new file and continue there, while both threads wait.

        Raises:
            OSError: the new file cannot be created.
        """
        self._writer = self.writer.in_a_new_file()
        if self.frames is not None:
            self.frames.close()
            self.frames = None
        if self.file is not None:
            progress = self.file.progress
            self.file.close()
            self.file = LogFileWriter(self.path, self.writer, self.writer.blocks.file_blocks)
            self.file.progress = progress

    def save_held(self) -> None:
        """Write the text that masks hold back to the record, if it has changed."""
        if self.record is not None and self.writer.withheld != self.held:
            self.held = self.writer.withheld
            with contextlib.suppress(OSError):  # ENOSPC, ENOMEM: no memory
                self.record.write_held(*self.held)

    def dump(self, keep: Keep, since_s: float | None = None) -> RunLogState:
        """Return the state for the next root, while both threads wait.

        Args:
            keep: Registers a descriptor that the next root needs.
            since_s: Monotonic time since which the log has waited for its file.
        """
        return RunLogState(
            name=self.name,
            path=self.path,
            sources=[PipeState(keep(source.fd), source.stream) for source in self.sources],
            writer=self.writer.dump(keep),
            progress=None if self.file is None else LogProgress(*self.file.progress),
            stalled=self.stalled,
            state=self.state,
            told_overflow=self.overflow_reported,
            told_blocks=self.reported_blocks,
            cut_off=False,
            sealing=self.sealing,
            sealed=self.sealed,
            frames_failed=self.frames_failed,
            left=self.left,
            since_s=since_s,
        )

    @classmethod
    def load(cls, state: LogState) -> "RunLog":
        """Restore the log in the next root.

        Raises:
            UnknownFormat, KeyError: another version wrote the state.
            OSError: the ring cannot be mapped.
            LogError: the file is not a ring.
        """
        self = cls(state.name, state.path, RingWriter.load(state.writer))
        self.sources = {OutputPipe(fd, stream, self) for fd, stream in state.sources}
        if state.progress is not None:
            self.file = LogFileWriter(self.path, self.writer, self.writer.blocks.file_blocks)
            self.file.progress = state.progress
        self.stalled = state.stalled
        self.state = state.state
        self.overflow_reported = state.told_overflow
        self.reported_blocks = state.told_blocks
        self.closes_early = state.cut_off
        self.sealing = state.sealing
        self.sealed = state.sealed
        self.frames_failed = state.frames_failed
        self.left = state.left
        return self


def free_bytes(runtime_dir: str) -> int:
    """Return the shared memory in bytes that a ring may take; 0 if the directory was removed."""
    try:
        filesystem = os.statvfs(runtime_dir)
    except OSError:  # ENOENT
        return 0
    return min(filesystem.f_bavail * filesystem.f_frsize, _largest_file_bytes())


def largest_log_bytes() -> int:
    """Return the size that a log may have under the limit on the size of files (``ulimit -f``)."""
    return _largest_file_bytes() - FILE_BLOCKS_AT


def _largest_file_bytes() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def prepare(writer: RingWriter, spawn: Spawn, streams: Iterable[int]) -> None:
    """Set up masking of secrets and reduction of redrawn lines, as the run's request asks."""
    if spawn.secrets:
        writer.mask([os.fsencode(spawn.env[name]) for name in spawn.secrets])
    if spawn.redraw:
        for stream in streams:
            writer.redraw(stream, full=spawn.tty)


class Backpressure:
    """The logs that drop output, make their runs wait, or cannot be written. Belongs to the pump thread."""

    def __init__(self) -> None:
        self._stalled: dict[RunLog, float] = {}

    def stalled(self, log: RunLog, now_s: float) -> None:
        """Record that output waits for the file since `now_s`."""
        self._stalled.setdefault(log, now_s)

    def resumed(self, log: RunLog) -> None:
        """Record that it no longer waits, if that is so."""
        if not log.stalled and log.failure is None:
            self._stalled.pop(log, None)

    @property
    def since_s(self) -> dict[RunLog, float]:
        """Return the logs whose output waits for the file, and since when (monotonic seconds)."""
        return self._stalled

    def due_s(self) -> float | None:
        """Return when the next log becomes slow (monotonic seconds); None: none will without another event."""
        if not self._stalled:
            return None
        return min((since_s + _SLOW_AFTER_S for log, since_s in self._stalled.items() if log.state == OK), default=None)

    def slow(self, now_s: float) -> list[RunLog]:
        """Return the logs that have waited for 5 s and are not reported yet."""
        return [log for log, since_s in self._stalled.items() if log.state == OK and now_s - since_s >= _SLOW_AFTER_S]

    def judge(self, log: RunLog, now_s: float) -> tuple[str, str | None] | None:
        """Return a log's new state and the reason; None if the state has not changed."""
        since_s = self._stalled.get(log)
        gap = log.writer.gap
        if gap is not None:
            state, reason = DROPPING, gap.reason
        elif since_s is not None and (log.state != OK or now_s - since_s >= _SLOW_AFTER_S):
            state, reason = WAITING, log.failure or "its log file accepts no data"
        else:
            state, reason = OK, None
        if state == log.state:
            return None
        log.state = state
        return state, reason
