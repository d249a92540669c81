"""The pump thread: from pipes to rings.

In each round, the pump reads at most 128 to 256 KiB from each readable pipe, so that one flood cannot starve the other
pipes. A slow log file fills the ring of its run. The pump then stops reading that run until the ring has room, and the
run waits as it would for any full pipe. The end of a run waits for no file: the pump reads what its pipes still hold,
and the writer keeps it in memory. After each round, the pump rings the doorbells. It enlarges the pipes of busy runs,
so that these runs wait less often.

A process that prints line by line would cost the pump one round per line. If many rounds that read little follow each
other closely, the pump pauses for 2 ms after each, so that the pipes can fill. Readers hardly wait longer for that,
because bells are 2 ms apart anyway.
"""

import collections
import contextlib
import errno
import functools
import itertools
import os
import select
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from logring.layout import STDERR, STDOUT, RingShape
from logring.log_paths import DAEMON_RING, ring_path
from logring.ring.writer import RingWriter
from supervisor.host.clock import Wakeup
from supervisor.host.osport import take_short_slices
from supervisor.host.shortage import REST_S, SHORTAGES, is_shortage, take_all
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.messages import Spawn
from supervisor.root.handover.record_memory import Record
from supervisor.root.handover.state_schema import HelperOutputState, LeftoverState, PumpState
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.leftover_output import LeftoverPipe, LeftoverPipes
from supervisor.root.output.run_log import (
    OK,
    WAITING,
    Backpressure,
    OutputPipe,
    RunLog,
    free_bytes,
    largest_log_bytes,
    prepare,
    shape_of,
)
from supervisor.root.output.run_pipes import capacity, is_empty, is_wide, widen

_ROUND_BYTES = 131072
_HELPER_READ_BYTES = 65536
_REST_READ_BYTES = 65536
_PLACE_BYTES = 1 << 20
"""Free shared memory with which rings get a place again."""
_BUSY_BYTES = 32768
_WIDE_PIPES = 32
"""These use 8 MiB. The default limit of a user is 64 MiB (pipe-user-pages-soft); beyond it, new pipes are tiny."""
_BIG_READ_BYTES = 16384
_TRICKLE_BYTES = 4096
_TRICKLE_ROUNDS = 16
_TRICKLE_S = 0.002
_MADE_AGAIN = "the shared-memory file of this log was removed; it was created again, and no line was lost"


class Listener(Protocol):
    """Receives the pump's reports in the pump thread, and acts on them after :meth:`wake`."""

    def at_end(self, run: str, *, silent: bool) -> None:
        """Report that all pipes of `run` have ended; `silent`: its log was empty until then."""

    def sealed(self, run: str, lines: int) -> None:
        """Report that the log of `run` is complete and has `lines` lines."""

    def overflowed(self, run: str) -> None:
        """Report that the output of `run` passed the size at which it is to be stopped."""

    def log_changed(self, run: str, state: str, reason: str | None) -> None:
        """Report a changed state of the log of `run`."""

    def ran_short(self, err: BaseException) -> None:
        """Report a step that failed for a shortage; it is repeated."""

    def wake(self) -> None:
        """Act on the reports."""


class Trickle:
    """Many rounds in close succession that each read little."""

    def __init__(self) -> None:
        self._rounds = 0

    def pause_s(self, read_bytes: int, took_s: float) -> float:
        """Return how long to wait after a round that read `read_bytes` bytes and took `took_s`, waiting included."""
        if not read_bytes:  # a late bell or a command
            return 0.0
        self._rounds = self._rounds + 1 if read_bytes < _TRICKLE_BYTES and took_s < _TRICKLE_S else 0
        return _TRICKLE_S if self._rounds > _TRICKLE_ROUNDS else 0.0


class Pump(threading.Thread):
    """Reads every pipe of every run and of our own helpers."""

    def __init__(self, runtime_dir: str, daemon_id: str, bell: DoorbellServer, files: FileThread) -> None:
        super().__init__(name="pump", daemon=True)
        self._runtime_dir = runtime_dir
        self._bell = bell
        self._files = files
        self.clock = files.clock
        """The clock of all threads."""
        self._listener: Listener | None = None
        self._epoll = select.epoll()
        self.wakeup = Wakeup()
        """The control thread holds it during a round, so that many commands cause one wake-up."""
        self._epoll.register(self.wakeup.fileno(), select.EPOLLIN)
        self._commands: collections.deque[Callable[[], None]] = collections.deque()
        self._by_fd: dict[int, OutputPipe] = {}
        self._by_run: dict[str, RunLog] = {}
        self._helpers: dict[int, bytearray] = {}
        self._touched: set[RunLog] = set()
        self._trickle = Trickle()
        self._ending = False
        self._round_bytes = 0
        """Bytes read in this round."""
        self._wide_pipes = 0
        """The number of open pipes that were enlarged."""
        self._shortage: OSError | MemoryError | None = None
        """The shortage that interrupted the previous round."""
        self._backpressure = Backpressure()
        self._no_place: str | None = None
        """Why rings have no place in the runtime directory; None: they have."""
        ring = ring_path(runtime_dir, DAEMON_RING)
        self._daemon = RunLog(DAEMON_RING, "", RingWriter.new(ring, daemon_id, RingShape(0)))
        self._leftover_pipes = LeftoverPipes(self._epoll, self._daemon_lines, self.clock)

    @property
    def files(self) -> FileThread:
        """Return the file thread."""
        return self._files

    def connect(self, listener: Listener) -> None:
        """Set the receiver of reports; before :meth:`start`."""
        self._listener = listener

    # Commands for other threads. The pump thread executes them in order.

    def add(self, spawn: Spawn, out: int | None, err: int | None, record: Record | None = None) -> None:
        """Take over the pipes of a new run.

        Args:
            spawn: The request that started the run.
            out: Its standard output, or its terminal; None: the run could not be started.
            err: Its standard error; None: merged into `out`, or the run could not be started.
            record: Where to save the text that masks hold back, for a root that replaces a killed one.
        """
        self._queue(self._add, spawn, out, err, record)

    def add_helper(self, fd: int) -> None:
        """Write all output from `fd` into the daemon's ring and to standard error."""
        self._queue(self._add_helper, fd)

    def drain(self, run: str) -> None:
        """Read the present content of the pipes of `run`, close them, and tell the listener ``at_end``."""
        self._queue(self._drain, run)

    def leave(self, spawn: Spawn) -> None:
        """Drain as :meth:`drain` does, but keep reading the pipes, for the daemon's log."""
        self._queue(self._leave, spawn)

    def note(self, run: str, text: str) -> None:
        """Add a line of our own to the log of `run`."""
        self._queue(self._note, run, text)

    def forget(self, run: str) -> None:
        """Drop the state of a run that never printed anything, so it has no log to seal. No thread wakes for that."""
        self._commands.append(functools.partial(self._forget, run))

    def seal(self, run: str, system_lines: list[str]) -> None:
        """End the log of `run` after these lines of our own, and tell the listener ``sealed``."""
        self._queue(self._seal, run, system_lines)

    def room(self, log: RunLog) -> None:
        """Read again after the file thread has written blocks of this log."""
        if log.stalled:
            self._queue(self._resume, log)

    def note_file(self, log: RunLog, failure: str | None) -> None:
        """Note why the file of this log cannot be written; None: it can again."""
        self._queue(self._note_file, log, failure)

    def report_logs_again(self) -> None:
        """Report the states of all logs again, to a new scheduler."""
        self._queue(self._report_logs_again)

    def daemon_line(self, line: bytes) -> None:
        """Add a line to the daemon's ring and show it on standard error."""
        self._queue(self._daemon_lines, line)

    def hold(self, wait: Callable[[], None]) -> None:
        """Have the thread call `wait` after the queued commands."""
        self._queue(wait)

    def finish(self, timeout_s: float) -> None:
        """End the thread after the queued commands."""
        self._queue(self._finish)
        self.join(timeout_s)

    def _queue(self, function: Callable[..., None], *arguments: object) -> None:
        self._commands.append(functools.partial(function, *arguments))
        self.wakeup.set()

    # The pump thread itself.

    def run(self) -> None:
        """Pump until :meth:`finish`."""
        take_short_slices()
        while not self._ending:
            self.round()

    def round(self) -> None:
        """Wait for work and do it, then pause if output trickles, or after a shortage."""
        start_s = self.clock.monotonic_s()
        try:
            self._wait_and_pump()
        except SHORTAGES as err:
            if not is_shortage(err):
                raise
            self._shortage = err.with_traceback(None)  # a traceback would keep memory in use
        if self._shortage is not None:
            pause_s = REST_S
        else:
            pause_s = self._trickle.pause_s(self._round_bytes, self.clock.monotonic_s() - start_s)
        if pause_s:
            self.clock.sleep(pause_s)

    def _wait_and_pump(self) -> None:
        """Wait for work and do it."""
        if self._shortage is not None:
            self._recheck_all(self._shortage)
        events = self.clock.wait(self._epoll, self._due_s())
        ready = [(fd, mask, self._by_fd.get(fd)) for fd, mask in events]
        self._pre_wake(events)
        self._round_bytes = 0
        reads = (functools.partial(self._serve, *event) for event in ready)
        take_all(itertools.chain((self.wakeup.clear, self._run_commands), reads, (self._publish, self._wake_listener)))

    def _serve(self, fd: int, mask: int, source: OutputPipe | None) -> None:
        if self._by_fd.get(fd) is not source:  # closed by a command; another one may have its number
            return
        now_ms = self.clock.wall_ms()
        if source is not None and source.log.silent and mask == select.EPOLLHUP and is_empty(fd):
            self._close(source, now_ms)
        elif source is not None and source.log.stalled:
            if mask & select.EPOLLHUP:
                self._take_rest(source, now_ms)
        elif source is not None:
            self._round_bytes += self._read(source, now_ms)
        elif fd in self._helpers:
            self._read_helper(fd)
        elif fd in self._leftover_pipes:
            self._leftover_pipes.read(fd)

    def _pre_wake(self, events: list[tuple[int, int]]) -> None:
        """Announce the first of these logs to its followers, so that they wake up while the pump is still reading."""
        fd, mask = events[0] if events else (-1, 0)
        source = self._by_fd.get(fd)
        if source is not None and mask & select.EPOLLIN:
            self._bell.pre_wake(source.log.name, self.clock.monotonic_s())

    def _run_commands(self) -> None:
        """Execute the commands. After a shortage, the next round repeats the interrupted command."""
        while self._commands:
            command = self._commands.popleft()
            try:
                command()
            except SHORTAGES:
                self._commands.appendleft(command)
                raise

    def _wake_listener(self) -> None:
        """Let the listener act on the reports of this round. Only now do the logs and their sources agree with them."""
        if self._listener is not None:
            self._listener.wake()

    def _recheck_all(self, err: OSError | MemoryError) -> None:
        """Check every log again: a shortage may have interrupted work."""
        if self._listener is not None:
            self._listener.ran_short(err)
        for log in self._backpressure.since_s:
            self._files.enqueue(log)
        self._touched.update((self._daemon, *self._by_run.values()))
        self.wakeup.set()
        self._shortage = None

    # For the control thread.

    @property
    def rings_have_place_again(self) -> bool:
        """Return whether rings without a place in the runtime directory have one now."""
        return self._no_place is not None and free_bytes(self._runtime_dir) >= _PLACE_BYTES

    @property
    def rings_are_gone(self) -> bool:
        """Return whether a ring was removed."""
        return any(log.ring_is_gone for log in (self._daemon, *self._by_run.values()))

    def move(self, runtime_dir: str) -> None:
        """Use another directory for rings, while both threads wait; :meth:`make_rings_again` creates them there."""
        self._runtime_dir = runtime_dir
        for log in (self._daemon, *self._by_run.values()):
            log.move_ring(ring_path(runtime_dir, log.name))

    def make_rings_again(self) -> int:
        """Create rings that were removed or had no place, while both threads wait; return their number.

        Raises:
            OSError: one of them cannot be created.
        """
        gone = [log for log in (self._daemon, *self._by_run.values()) if log.ring_is_gone or log.is_private]
        for log in gone:
            was_removed = not log.is_private
            log.make_ring_again()
            if log.path and was_removed:
                log.writer.system_line(_MADE_AGAIN, self.clock.wall_ms())
            self._touched.add(log)
        self._note_place(None)
        return len(gone)

    # Handing over to the next root. The control thread calls these while both other threads wait.

    def catch_up(self) -> bool:
        """Execute the commands that arrived meanwhile; return whether there were any."""
        busy = bool(self._commands)
        self._run_commands()
        self._publish()
        self._wake_listener()
        return busy

    def dump(self, keep: Callable[[int], int]) -> PumpState:
        """Return all unfinished logs, and the outputs of helpers; `keep` registers descriptors."""
        logs, files = self._files.dump()
        since_s = self._backpressure.since_s
        unfinished = {log for log in (*self._by_run.values(), *since_s, *logs) if log.path and not log.finished}
        return PumpState(
            logs=[log.dump(keep, since_s.get(log)) for log in unfinished],
            daemon=self._daemon.dump(keep),
            helpers=[HelperOutputState(keep(fd), bytes(buffer)) for fd, buffer in self._helpers.items()],
            left=self._leftover_pipes.dump(keep),
            files=files,
        )

    def load(self, logs: Iterable[RunLog], daemon: RunLog, state: PumpState) -> None:
        """Restore the state from :meth:`dump` before :meth:`start`; :meth:`adopt` takes the logs, one by one."""
        self._daemon = daemon
        for fd, unfinished in state.helpers:
            self._add_helper(fd)
            self._helpers[fd] += unfinished
        self._leftover_pipes.load(state.left)
        self._files.load(logs, state.files)

    def adopt(self, log: RunLog, stalled_at_s: float | None = None) -> None:
        """Take over a log of the previous root and its sources, before :meth:`start`.

        `stalled_at_s`: monotonic time since which the log has waited for its file; None: it does not wait.
        """
        if not log.sealing:
            self._by_run[log.name] = log
        if log.stalled or stalled_at_s is not None:
            self._backpressure.stalled(log, self.clock.monotonic_s() if stalled_at_s is None else stalled_at_s)
        for source in log.sources:
            self._by_fd[source.fd] = source
            source.wide = is_wide(source.fd) or None
            self._wide_pipes += source.wide is True
            self._epoll.register(source.fd, 0 if log.stalled else select.EPOLLIN)
        self._touched.add(log)
        self._files.adopt(log)
        if log.closes_early:
            self.drain(log.name)
        if log.sealing and not log.sealed:  # an earlier version waited until the ring had room
            self._queue(self._finish_sealing, log)

    def complete(self, log: RunLog) -> None:
        """Complete the file of a log that a killed root had sealed. Call it before :meth:`start`."""
        log.writer.seal(log.writer.last_ms)
        log.sealing = log.sealed = True
        self._files.enqueue(log)

    def _due_s(self) -> float | None:
        """Return when the next round is due (monotonic seconds); None: at the next event."""
        times = (self._bell.due_s(), self._backpressure.due_s())
        return min((at for at in times if at is not None), default=None)

    def _read(self, source: OutputPipe, now_ms: int) -> int:
        """Read one pipe for one round; return the bytes read."""
        log = source.log
        read_bytes = 0
        while read_bytes < _ROUND_BYTES:
            try:
                size = log.writer.readv(source.fd, source.stream, now_ms)
            except BlockingIOError:  # EAGAIN: the pipe is empty, or the ring is full
                if not log.writer.writable:
                    self._stall(log)
                break
            except OSError as err:
                if err.errno != errno.EIO:
                    raise
                size = 0  # EIO: every process has closed the terminal
            if size == 0:
                self._close(source, now_ms)
                break
            read_bytes += size
            if size >= _BUSY_BYTES and source.wide is None and self._wide_pipes < _WIDE_PIPES:
                source.wide = widen(source.fd)
                self._wide_pipes += source.wide
            if size < _BIG_READ_BYTES:  # the pipe is most likely empty; otherwise epoll reports it again
                break
        self._touched.add(log)
        return read_bytes

    def _stall(self, log: RunLog) -> None:
        """Read no more of the run until the ring has room. The end of its pipes is reported all the same."""
        self._backpressure.stalled(log, self.clock.monotonic_s())
        log.stalled = True
        for source in log.sources:
            self._epoll.modify(source.fd, 0)
        self._files.enqueue(log)

    def _resume(self, log: RunLog) -> None:
        if log.sealed or not log.writer.writable:
            return
        log.stalled = False
        self._backpressure.resumed(log)
        self._touched.add(log)
        for source in log.sources:
            self._epoll.modify(source.fd, select.EPOLLIN)

    def _note_file(self, log: RunLog, failure: str | None) -> None:
        log.failure = failure
        if failure is not None:
            self._backpressure.stalled(log, self.clock.monotonic_s())
        else:
            log.stalled = log.stalled and not log.finished
            self._backpressure.resumed(log)
        self._report_state(log, self.clock.monotonic_s())

    def _note_place(self, error: str | None) -> None:
        """Report that rings have no place in the runtime directory, or have one again."""
        if (error is None) != (self._no_place is None) and self._listener is not None:
            self._listener.log_changed(DAEMON_RING, OK if error is None else WAITING, error)
        self._no_place = error

    def _report_logs_again(self) -> None:
        error, self._no_place = self._no_place, None
        self._note_place(error)
        for log in {*self._by_run.values(), *self._backpressure.since_s}:
            if log.state != OK:
                log.state = OK
                self._report_state(log, self.clock.monotonic_s())

    def _close(self, source: OutputPipe, now_ms: int, *, for_others: bool = False) -> None:
        """Remove a pipe from its log.

        With `for_others`, the processes that outlive the run keep the pipe. The listener acts on the end of the last
        pipe only after :meth:`_wake_listener`, when nothing writes to the log any more.
        """
        log = source.log
        is_current = source in log.sources  # otherwise it is of a spare that died before it executed the command
        if is_current and not log.silent:
            log.writer.finish_stream(source.stream, now_ms)
        if log.sources == {source} and self._listener is not None:
            self._listener.at_end(log.name, silent=log.silent)
        try:
            self._ignore(source.fd)
        except OSError as err:
            # Repeating this step would report the end twice. Closing the pipe also removes it from epoll (epoll(7)),
            # and a pipe that others keep stays watched anyway.
            if not is_shortage(err):
                raise
        del self._by_fd[source.fd]
        self._wide_pipes -= source.wide is True
        log.sources.discard(source)
        if for_others and log.left is not None:
            self._leftover_pipes.add(
                source.fd, LeftoverPipe(log.left.task, log.name, log.left.secrets, self.clock.monotonic_s())
            )
        else:
            os.close(source.fd)

    def _publish(self) -> None:
        if self._touched or self._bell.due_s() is not None:
            open_logs = [log for log in self._touched if not (log.silent or log.sealed)]
            for log in open_logs:
                log.save_held()
                log.writer.mirror_pending()
            now_s = self.clock.monotonic_s()
            self._bell.ring([log.name for log in self._touched], now_s)
            for log in self._touched:
                self._report_log(log, now_s)
            for log in open_logs:
                if log.path:
                    self._inform_file_thread(log)
            self._touched.clear()
        if self._backpressure.due_s() is not None:
            now_s = self.clock.monotonic_s()
            for log in self._backpressure.slow(now_s):
                self._report_log(log, now_s)

    def _inform_file_thread(self, log: RunLog) -> None:
        """Tell the file thread that the log has changed, and wake it if there is much to write."""
        writer = log.writer
        self._files.changed(log)
        if writer.blocks.frames.pressing:
            self._files.enqueue(log)
        if writer.wants_writing and writer.blocks.closed_blocks != log.reported_blocks:
            log.reported_blocks = writer.blocks.closed_blocks
            self._files.enqueue(log)

    def _report_log(self, log: RunLog, now_s: float) -> None:
        """Report a new state of a log."""
        if self._listener is None or not log.path or log.silent:
            return
        if log.writer.overflowed and not log.overflow_reported:
            log.overflow_reported = True
            self._listener.overflowed(log.name)
        if log.writer.blocks.private:
            self._note_place(log.writer.blocks.place_error)
        if not log.sealing or log in self._backpressure.since_s:
            self._report_state(log, now_s)

    def _report_state(self, log: RunLog, now_s: float) -> None:
        news = self._backpressure.judge(log, now_s)
        if news is not None and self._listener is not None:
            self._listener.log_changed(log.name, *news)

    def _add(self, spawn: Spawn, out: int | None, err: int | None, record: Record | None) -> None:
        fds = {stream: fd for stream, fd in ((STDOUT, out), (STDERR, err)) if fd is not None}
        make = functools.partial(self._writer, spawn, list(fds))
        log = self._by_run.get(spawn.run)  # one exists if a spare process died before it executed the command
        if log is None:
            log = RunLog(spawn.run, spawn.log, make() if spawn.tty else None, make)
        log.record = record if spawn.secrets else None
        log.sources = {OutputPipe(fd, stream, log) for stream, fd in fds.items()}
        self._by_fd.update({source.fd: source for source in log.sources})
        self._by_run[spawn.run] = log
        for fd in fds.values():  # epoll reports pipes that are readable already in the order of registration
            self._listen(fd)

    def _writer(self, spawn: Spawn, streams: list[int]) -> RingWriter:
        memory_bytes = free_bytes(self._runtime_dir) // (2 * len(self._by_run) + 2)
        shape = shape_of(min(spawn.log_max_bytes, largest_log_bytes()), memory_bytes)
        writer = RingWriter.new(
            ring_path(self._runtime_dir, spawn.run),
            spawn.run,
            shape,
            policy=spawn.log_on_full,
        )
        prepare(writer, spawn, streams)
        return writer

    def _add_helper(self, fd: int) -> None:
        self._helpers[fd] = bytearray()
        self._listen(fd)

    def _read_helper(self, fd: int) -> None:
        buffer = self._helpers[fd]
        try:
            data = os.read(fd, _HELPER_READ_BYTES)
        except BlockingIOError:  # EAGAIN: a spurious wake-up
            return
        buffer += data
        whole = buffer.rfind(b"\n") + 1 or (len(buffer) if len(buffer) > _HELPER_READ_BYTES else 0)
        if not data:
            whole = len(buffer)
            del self._helpers[fd]
            # Closing would not remove it from epoll while another process, such as an upgrade's trial, holds the pipe.
            self._ignore(fd)
            os.close(fd)
        if whole:
            lines = bytes(buffer[:whole])
            del buffer[:whole]
            self._daemon_lines(lines if lines.endswith(b"\n") else lines + b"\n")

    def _listen(self, fd: int) -> None:
        with contextlib.suppress(FileExistsError):  # registered before a shortage, after which this step is repeated
            self._epoll.register(fd, select.EPOLLIN)

    def _ignore(self, fd: int) -> None:
        with contextlib.suppress(FileNotFoundError):  # its log is stalled, or this step is repeated after a shortage
            self._epoll.unregister(fd)

    def _drain(self, run: str) -> None:
        now_ms = self.clock.wall_ms()
        for source in list(self._by_run[run].sources):
            self._take_rest(source, now_ms)

    def _leave(self, spawn: Spawn) -> None:
        self._by_run[spawn.run].left = LeftoverState(spawn.task, [spawn.env[name] for name in spawn.secrets])
        self._drain(spawn.run)

    def _take_rest(self, source: OutputPipe, now_ms: int) -> None:
        """Read the present content of a pipe, and close it. The writer keeps what has no room in the ring."""
        remaining_bytes = capacity(source.fd)  # a process that holds the other end may write forever
        while remaining_bytes > 0:
            try:
                data = os.read(source.fd, min(remaining_bytes, _REST_READ_BYTES))
            except OSError as err:
                if err.errno not in (errno.EAGAIN, errno.EIO):
                    raise
                data = b""  # EAGAIN: the pipe is empty; EIO: every process has closed the terminal
            if not data:
                break
            source.log.writer.append(source.stream, data, now_ms)
            remaining_bytes -= len(data)
        self._touched.add(source.log)
        self._close(source, now_ms, for_others=True)

    def _seal(self, run: str, system_lines: list[str]) -> None:
        log = self._by_run[run]
        now_ms = self.clock.wall_ms()
        if not log.sealing:
            masked = [f"masked secrets: {log.writer.masked}"] if log.writer.masked else []
            for line in (*system_lines, *masked):
                log.writer.system_line(line, now_ms)
            log.sealing = True
        if not log.sealed:  # otherwise a shortage interrupted this step after this line
            log.writer.seal(now_ms)
        self._finish_sealing(log)
        del self._by_run[run]

    def _forget(self, run: str) -> None:
        log = self._by_run.pop(run)
        log.sealing = log.sealed = log.finished = True

    def _finish_sealing(self, log: RunLog) -> None:
        """Hand the log over to the file thread, which also places the lines that wait for room in the ring."""
        lines = log.writer.final_lines
        log.sealed = True
        self._report_log(log, self.clock.monotonic_s())
        self._touched.add(log)
        self._files.enqueue(log)
        if self._listener is not None:
            self._listener.sealed(log.name, lines)

    def _note(self, run: str, text: str) -> None:
        log = self._by_run.get(run)
        if log is not None:
            log.writer.system_line(text, self.clock.wall_ms())
            self._touched.add(log)

    def _daemon_lines(self, lines: bytes) -> None:
        self._daemon.writer.append(STDERR, lines, self.clock.wall_ms())
        self._touched.add(self._daemon)
        self._files.echo(lines)

    def _finish(self) -> None:
        self._daemon.writer.seal(self.clock.wall_ms())
        self._touched.add(self._daemon)
        self._publish()
        self._ending = True
