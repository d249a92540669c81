"""Output of processes that outlive their run, for the daemon's log. Belongs to the pump thread.

A run with ``leftovers = "leave"`` ends while such processes continue, and its log is final then. If their pipes were
closed, SIGPIPE would kill them at their next line. So the pump keeps reading, masks secrets, and adds the task and the
run's id to each line. A run that prints too much loses lines here, but its processes never wait.
"""

import contextlib
import os
import select
from collections.abc import Callable, Iterable, Sequence

from logring.mask import Mask
from supervisor.host.clock import Clock
from supervisor.ipc.log_line import Log
from supervisor.root.handover.state_schema import HeldText, LeftoverOutputState, LeftoverPipeState

_READ_BYTES = 65536
_MAX_LINE_BYTES = 8192
_BURST_LINES = 100
_LINES_PER_S = 10.0


class _Allowance:
    """A token bucket of lines: a burst is allowed, but only few lines per second in the long run."""

    def __init__(self, now_s: float) -> None:
        self._lines = float(_BURST_LINES)
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Take one line; return whether one was available."""
        self._lines = min(_BURST_LINES, self._lines + _LINES_PER_S * (now_s - self._at_s))
        self._at_s = now_s
        if self._lines < 1:
            return False
        self._lines -= 1
        return True


class LeftoverPipe:
    """One pipe of a run that has ended.

    Args:
        task: The name of the task or service.
        run: The id of the run.
        secrets: Values to mask in the output.
        now_s: The current time in monotonic seconds.
    """

    def __init__(self, task: str, run: str, secrets: Sequence[str], now_s: float) -> None:
        self.task = task
        self.run = run
        self.secrets = list(secrets)
        self._mask = Mask(map(os.fsencode, secrets)) if secrets else None
        self._unfinished = b""
        self._allowance = _Allowance(now_s)
        self._dropped = 0
        self._log = Log("left-running")

    def take(self, data: bytes, now_s: float) -> bytes:
        """Return the lines for the daemon's log that `data` completes. Empty `data` means the end of the output."""
        shown = data
        if self._mask is not None:
            shown = self._mask.feed(data) if data else self._mask.finish()
        *lines, self._unfinished = (self._unfinished + shown).split(b"\n")
        if len(self._unfinished) > _MAX_LINE_BYTES or (not data and self._unfinished):
            lines.append(self._unfinished)
            self._unfinished = b""
        written = [self._line(line[:_MAX_LINE_BYTES], now_s) for line in lines]
        if not data and self._dropped:
            written.append(self._log_line(f"{self._dropped} lines dropped"))
        return b"".join(written)

    def _line(self, line: bytes, now_s: float) -> bytes:
        if not self._allowance.take(now_s):
            self._dropped += 1
            return b""
        before, self._dropped = self._dropped, 0
        text = line.removesuffix(b"\r").decode(errors="replace")
        return (self._log_line(f"{before} lines dropped") if before else b"") + self._log_line(text)

    def _log_line(self, text: str) -> bytes:
        return self._log.line(1, f"{self.task} {self.run}: {text}")

    def dump(self) -> LeftoverOutputState:
        """Return the state for the next root."""
        return LeftoverOutputState(
            task=self.task,
            run=self.run,
            secrets=self.secrets,
            held=HeldText(b"", 0) if self._mask is None else HeldText(self._mask.possible_secret, self._mask.count),
            unfinished=self._unfinished,
            dropped=self._dropped,
        )

    @classmethod
    def load(cls, state: LeftoverOutputState, now_s: float) -> "LeftoverPipe":
        """Restore the output in the next root."""
        self = cls(state.task, state.run, state.secrets, now_s)
        if self._mask is not None:
            self._mask.hold(*state.held)
        self._unfinished = state.unfinished
        self._dropped = state.dropped
        return self


class LeftoverPipes:
    """All pipes of processes that outlive their runs.

    Args:
        epoll: The pump's epoll object.
        write: Writes lines to the daemon's log.
        clock: The clock of the pump.
    """

    def __init__(self, epoll: select.epoll, write: Callable[[bytes], None], clock: Clock) -> None:
        self._clock = clock
        self._epoll = epoll
        self._write = write
        self._by_fd: dict[int, LeftoverPipe] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._by_fd

    def add(self, fd: int, output: LeftoverPipe) -> None:
        """Start to read a non-blocking pipe."""
        self._by_fd[fd] = output
        with contextlib.suppress(FileExistsError):  # a shortage of memory kept it registered
            self._epoll.register(fd, select.EPOLLIN)

    def read(self, fd: int) -> None:
        """Write a pipe's content to the daemon's log, and close the pipe at its end."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:  # EAGAIN: a spurious wake-up
            return
        except OSError:  # EIO: every process has closed the terminal
            data = b""
        if lines := self._by_fd[fd].take(data, self._clock.monotonic_s()):
            self._write(lines)
        if not data:
            self._epoll.unregister(fd)
            del self._by_fd[fd]
            os.close(fd)

    def dump(self, keep: Callable[[int], int]) -> list[LeftoverPipeState]:
        """Return the state for the next root; `keep` registers descriptors."""
        return [LeftoverPipeState(keep(fd), output.dump()) for fd, output in self._by_fd.items()]

    def load(self, pipes: Iterable[LeftoverPipeState]) -> None:
        """Restore the outputs of another root."""
        for fd, output in pipes:
            self.add(fd, LeftoverPipe.load(output, self._clock.monotonic_s()))
