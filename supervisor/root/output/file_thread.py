"""The file thread: from rings to log files, and the daemon's log to standard error.

Only this thread writes to disks and terminals. A full, slow or hung disk therefore never stops the control thread, and
stops a run only once its ring is full. A stopped terminal does not delay the disk. After an error, the blocks stay in
the ring and the thread tries again every second; meanwhile the run waits as it would for any full pipe. A disk may stay
full for a long time, and a limit on the size of files stays, so the output beyond the ring is then dropped and counted
instead. A run that has ended waits for nothing: the thread completes its log when it can, and at a limit on the size of
files without the lines that do not fit.
"""

import collections
import contextlib
import errno
import os
import queue
import select
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from logring.log_paths import frames_path
from logring.logfile.log_file import LogFileWriter
from logring.redraw.history_file import FramesWriter
from supervisor.host.clock import Clock
from supervisor.host.shortage import REST_S, SHORTAGES, is_shortage
from supervisor.ipc.log_line import Log
from supervisor.root.handover.state_schema import FilesState
from supervisor.root.output.data_directory_monitor import DataDirectoryMonitor
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.run_log import RunLog

_MAX_WAITING_BYTES = 1024 * 1024
_WRITE_BYTES = select.PIPE_BUF
_MAY_PASS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class StderrEcho:
    """A queue of log lines for standard error. One thread adds lines; another writes them and never blocks.

    The process that started the daemon shares standard error, so O_NONBLOCK must not be set on it. Instead, poll(2) is
    called before each write: a pipe with POLLOUT accepts PIPE_BUF bytes (pipe(7)), and a stopped terminal has none.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._waiting: collections.deque[bytes] = collections.deque()
        # Each counter has one thread that writes it.
        self._added_bytes = 0
        self._gone_bytes = 0
        self._dropped_lines = 0
        self._told_lines = 0

    def add(self, lines: bytes) -> bool:
        """Queue lines. Return False if a megabyte waits already: the lines are dropped here, but are in the ring."""
        if self._added_bytes - self._gone_bytes >= _MAX_WAITING_BYTES:
            self._dropped_lines += lines.count(b"\n")
            return False
        self._added_bytes += len(lines)
        self._waiting.append(lines)
        return True

    @property
    def waiting(self) -> bytes:
        """Return the lines that are not written yet. Call it only while no thread adds or flushes."""
        return b"".join(self._waiting)

    @property
    def is_waiting(self) -> bool:
        """Return whether some lines are not written yet."""
        return bool(self._waiting)

    def newly_missing(self) -> int:
        """Return how many lines were dropped since the last call. The thread that flushes calls it."""
        before, self._told_lines = self._told_lines, self._dropped_lines
        return self._told_lines - before

    def flush(self) -> None:
        """Write as much as is possible without waiting. Lines for a file on a full disk wait."""
        while self._waiting and self._poll.poll(0):
            lines = self._waiting[0]
            try:
                written = os.write(self._fd, lines[:_WRITE_BYTES])
            except OSError as err:
                if err.errno in _MAY_PASS:
                    return
                written = len(lines)  # EPIPE, EIO, EBADF: no reader any more; EFBIG: the file stays too large
            self._gone_bytes += written
            if written < len(lines):
                self._waiting[0] = lines[written:]
            else:
                self._waiting.popleft()


class RingUser(Protocol):
    """The pump, which writes the rings."""

    def room(self, log: RunLog) -> None:
        """Report that the ring of `log` has room again. The file thread calls it."""

    def note_file(self, log: RunLog, failure: str | None) -> None:
        """Report why the file of `log` cannot be written; None: it can again. The file thread calls it."""


_TICK_S = 1.0
_REST_S = 3600.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FileThread(threading.Thread):
    """Writes finished blocks at once, unfinished ones every second, and everything when a run is sealed."""

    def __init__(self, log: Log, echo_fd: int, disk_space: DiskSpace, clock: Clock | None = None) -> None:
        super().__init__(name="file", daemon=True)
        self.clock = clock or Clock()
        self._log = log
        self.disk_space = disk_space
        self.data_directory: DataDirectoryMonitor | None = None
        """The monitor of the data directory; None: it is not checked."""
        self._check_waits = False
        """Whether a check of the data directory is queued."""
        self._echo = StderrEcho(echo_fd)
        self._queue: queue.SimpleQueue[RunLog | Callable[[], None]] = queue.SimpleQueue()
        self._tick_s = self.clock.monotonic_s() + _TICK_S
        self._rests = False
        """Whether the thread waits without ticks, because there is nothing to write."""
        self._ending = False
        self._changed: set[RunLog] = set()
        self._failing: dict[RunLog, str] = {}
        self._draining: set[RunLog] = set()
        self._pump: RingUser | None = None

    def connect(self, pump: RingUser) -> None:
        """Set the pump, which the thread informs when a ring has room again. Call it before :meth:`start`."""
        self._pump = pump

    def enqueue(self, log: RunLog) -> None:
        """Queue a log whose blocks were closed, or that was sealed. Any thread may call it."""
        if log.sealed:
            self._draining.add(log)
        self._queue.put(log)

    @property
    def draining(self) -> int:
        """Return how many logs of ended runs wait to be written. Any thread may call it."""
        return len(self._draining)

    def changed(self, log: RunLog) -> None:
        """Note that the unfinished block of this log has changed. The pump thread calls it."""
        self._changed.add(log)
        if self._rests:
            self._queue.put(self._end_rest)

    def echo(self, line: bytes) -> None:
        """Queue a log line for standard error; it is dropped if too many wait already. The pump thread calls it."""
        if self._echo.add(line):
            self._queue.put(self._echo.flush)

    def hold(self, wait: Callable[[], None]) -> None:
        """Have the thread call `wait` after the queued work."""
        self._queue.put(wait)

    def check_data_directory(self) -> None:
        """Queue a check of the data directory, unless one waits already. The control thread calls it."""
        if self.data_directory is not None and not self._check_waits:
            self._check_waits = True
            self._queue.put(self._check_data_directory)

    def _check_data_directory(self) -> None:
        self._check_waits = False
        if self.data_directory is not None:
            self.data_directory.check()

    def dump(self) -> tuple[list[RunLog], FilesState]:
        """Return the logs with unwritten data, and the state for the next root. Call it while the thread waits."""
        queued = []
        with contextlib.suppress(queue.Empty):
            while True:
                queued.append(self._queue.get_nowait())
        for item in queued:
            self._queue.put(item)
        logs = {*self._failing, *self._changed, *(item for item in queued if isinstance(item, RunLog))}
        return list(logs), FilesState(
            failing={log.name: text for log, text in self._failing.items()}, echo=self._echo.waiting
        )

    def adopt(self, log: RunLog) -> None:
        """Write the rest of a log of the previous root. Call it before :meth:`start`."""
        self._changed.add(log)
        self._queue.put(log)

    def load(self, logs: Iterable[RunLog], state: FilesState) -> None:
        """Restore the state from :meth:`dump`; `logs` are all logs. Call it before :meth:`start`."""
        self._failing = {log: state.failing[log.name] for log in logs if log.name in state.failing}
        if self._pump is not None:
            for log, text in self._failing.items():
                self._pump.note_file(log, text.removeprefix(f"{log.path}: "))
        if state.echo:
            self.echo(state.echo)

    def finish(self, timeout_s: float) -> bool:
        """Write the queue, then end the thread. Return False if that takes longer than `timeout_s`: a disk hangs."""
        self._queue.put(self._finish)
        self.join(timeout_s)
        return not self.is_alive()

    def run(self) -> None:
        """Write until :meth:`finish`."""
        while not self._ending:
            self.round()

    def round(self) -> None:
        """Wait for work until the next tick, and do it."""
        self._rests = True  # before the look at the logs: a change after that look ends the rest
        if self._changed or self._failing or self._echo.is_waiting:
            self._rests = False
        until_s = self.clock.monotonic_s() + _REST_S if self._rests else self._tick_s
        try:
            item = self.clock.take(self._queue, until_s)
        except queue.Empty:
            pass
        else:
            if isinstance(item, RunLog):
                self._insist(self._write, item)
            else:
                self._insist(item)
        now_s = self.clock.monotonic_s()
        if self._rests:
            self._tick_s = now_s + _TICK_S
        elif now_s >= self._tick_s and not self._ending:
            self._insist(self._tick)
            self._tick_s = self.clock.monotonic_s() + _TICK_S

    def _end_rest(self) -> None:
        """Do nothing but wake up."""

    def _finish(self) -> None:
        self._ending = True
        for log in self._failing:
            if log.sealed:  # what waits in memory ends with this process, so the ring says how much is lost
                log.writer.blocks.shortage = "the daemon ended before the log file could be written"
                log.writer.complete_waiting()

    def _insist(self, step: Callable[..., None], *arguments: RunLog) -> None:
        """Take a step. After a shortage of memory, pause and repeat it; after another, leave it to the next tick."""
        while True:
            try:
                step(*arguments)
            except SHORTAGES as err:
                if not is_shortage(err):
                    raise
                self.clock.sleep(REST_S)
                if isinstance(err, MemoryError):
                    continue
                self._changed.update(arguments)
            return

    def _tick(self) -> None:
        self._echo.flush()
        missing = 0 if self._echo.is_waiting else self._echo.newly_missing()
        if missing:
            self._log.warning(f"{missing} lines of this log are missing on standard error, which did not accept them")
        changed = set(self._changed)
        self._changed -= changed
        for log in {*changed, *self._failing}:
            self._write(log, unfinished=log in changed)

    def _write(self, log: RunLog, *, unfinished: bool = False) -> None:
        if log.finished:
            return
        if log.writer.blocks.frames.waiting and self.disk_space.shortage() is None:
            if log.frames is None:
                log.frames = _frames_of(log)
            self._write_frames(log, log.frames)
        shortage = None
        if log.file is None:
            log.file = LogFileWriter(log.path, log.writer, log.writer.blocks.file_blocks)
        try:
            if log.sealed:
                self._complete(log.file)
                if log.frames is not None:
                    log.frames.close()
                log.writer.close()
                log.finished = True
                self._draining.discard(log)
            else:
                shortage = self.disk_space.shortage()
                log.file.may_grow = shortage is None
                log.file.write_closed()
                if unfinished or log in self._failing:  # no further change may follow the one that failed
                    log.file.write_unfinished()
                # Even if nothing was written now: the pump may have stalled after an earlier write made room.
                if self._pump is not None:
                    self._pump.room(log)
        except OSError as err:
            self._fail(log, err, shortage)
            return
        except MemoryError:
            self._fail(log, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), shortage)
            return
        self._written(log, log.file)

    def _complete(self, file: LogFileWriter) -> None:
        try:
            file.finish()
        except OSError as err:
            if err.errno != errno.EFBIG:
                raise
            file.cut(os.strerror(err.errno))  # the limit will not pass

    def _written(self, log: RunLog, file: LogFileWriter) -> None:
        """Log that the file was created again, or that it can be written again."""
        if file.made_again:
            file.made_again = False
            self._log.error(
                f"{log.name}: its log file was removed while it was in use, and was created again: {log.path}"
            )
        log.writer.blocks.shortage = None
        failed = self._failing.pop(log, None)
        if file.lost:
            too_large = os.strerror(errno.EFBIG)
            self._log.error(
                f"{log.name}: {file.lost} lines were dropped at the end of its log: {log.path}: {too_large}"
            )
        elif failed:
            self._log.info(f"{log.name}: the log file can be written again")
        if self._pump is not None and (failed or (log.finished and log.stalled)):
            self._pump.note_file(log, None)

    def _write_frames(self, log: RunLog, frames: FramesWriter) -> None:
        """Write frames. History matters less than lines: frames without space are dropped, which is logged once."""
        try:
            frames.write()
        except OSError as err:
            if not log.frames_failed:
                self._log.error(f"{log.name}: the history of redrawn lines is lost: {frames.path}: {err.strerror}")
            log.frames_failed = True

    def _fail(self, log: RunLog, err: OSError, shortage: str | None) -> None:
        """Log a failed write once, and note that the next tick must repeat it."""
        reason = shortage or err.strerror or str(err)
        text = f"{log.path}: {reason}"
        full = err.errno in _FULL
        log.writer.blocks.shortage = reason if full else None
        if self._failing.get(log) != text:
            fate = "is dropped" if full else "waits"
            self._log.error(f"{log.name}: cannot write the log file, output beyond the ring {fate}: {text}")
            if self._pump is not None:
                self._pump.note_file(log, reason)
        self._failing[log] = text
        if self._pump is not None:
            self._pump.room(log)


def _frames_of(log: RunLog) -> FramesWriter:
    writer = log.writer
    return FramesWriter(
        frames_path(log.path), log.name, writer.blocks.frames, writer.blocks.file_blocks * writer.blocks.block_size
    )
