"""Starts that wait for a resource, and the memory reserve that decides whether another run may start."""

import mmap
from collections.abc import Callable, Iterator

from supervisor.host.clock import Clock
from supervisor.ipc.backoff import backoff
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Message, Spawn

_RETRY_S = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
"""The intervals between attempts."""
_REPORT_S = 60.0
"""How long a shortage lasts before the scheduler sends a notification."""
_RESERVE_BYTES = 8 << 20
_RESERVE_RETRY_S = 5.0


class WaitingStarts:
    """Holds waiting starts in order. Belongs to the control thread.

    Args:
        clock: The clock of the control thread.
        log: The daemon's log.
        start_run: Starts a run, or returns it to :meth:`put_back`.
        send: Sends a message to the scheduler.
    """

    def __init__(
        self, clock: Clock, log: Log, start_run: Callable[[Spawn], None], send: Callable[[Message], None]
    ) -> None:
        self._clock = clock
        self._log = log
        self._start_run = start_run
        self._send = send
        self._spawns: dict[str, Spawn] = {}
        self._reason = ""
        self._explained: dict[str, str] = {}
        """The last report to the scheduler about each run."""
        self._failures = 0
        self._retry_at_s: float | None = None
        """Monotonic time of the next attempt; None: nothing waits."""
        self._report_at_s: float | None = None
        self._reported = False

    def __bool__(self) -> bool:
        return bool(self._spawns)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the waiting runs."""
        return iter(self._spawns)

    def __contains__(self, run: str) -> bool:
        return run in self._spawns

    @property
    def due_s(self) -> float | None:
        """Return when to call :meth:`tick` (monotonic seconds)."""
        return min((at for at in (self._retry_at_s, self._report_at_s) if at is not None), default=None)

    def start(self, spawn: Spawn) -> None:
        """Start a run now, or after the waiting starts."""
        if self._spawns:
            self._spawns[spawn.run] = spawn
            self._explain(spawn.run)
        else:
            self._start_run(spawn)

    def put_back(self, spawn: Spawn, reason: str) -> None:
        """Put a start that failed because of a shortage in front of all waiting starts."""
        if reason != self._reason:
            self._log.warning(f"{reason}: new runs wait until more are available")
        self._reason = reason
        self._spawns = {spawn.run: spawn, **self._spawns}
        self._explain(spawn.run)
        now_s = self._clock.monotonic_s()
        if self._retry_at_s is None:
            self._retry_at_s = now_s + backoff(_RETRY_S, self._failures)
        if self._report_at_s is None and not self._reported:
            self._report_at_s = now_s + _REPORT_S

    def _explain(self, run: str) -> None:
        if self._explained.get(run) != self._reason:
            self._explained[run] = self._reason
            self._send({"op": "waiting", "run": run, "why": self._reason})

    def drop(self, run: str) -> bool:
        """Remove a start; return False if it was not waiting."""
        self._explained.pop(run, None)
        return self._spawns.pop(run, None) is not None

    def clear(self) -> None:
        """Remove all starts and reports, because the next scheduler will request the starts again."""
        self._spawns.clear()
        self._explained.clear()
        self._report_at_s, self._reported = None, False

    def retry_soon(self) -> None:
        """Try again at once, and often for a while, because a process has ended."""
        if self._retry_at_s is not None:
            self._failures = 0
            self._retry_at_s = self._clock.monotonic_s()

    def tick(self, now_s: float) -> None:
        """Start as many runs as possible if it is time, and report a lasting shortage (monotonic seconds)."""
        if self._retry_at_s is not None and now_s >= self._retry_at_s:
            self._try_again(now_s)
        if self._report_at_s is not None and now_s >= self._report_at_s:
            self._report_at_s, self._reported = None, True
            self._send({"op": "starts", "waiting": len(self._spawns), "why": self._reason})

    def _try_again(self, now_s: float) -> None:
        while self._spawns:
            spawn = self._spawns.pop(next(iter(self._spawns)))
            self._start_run(spawn)
            if spawn.run in self._spawns:
                self._failures += 1
                self._retry_at_s = now_s + backoff(_RETRY_S, self._failures)
                return
            self._explained.pop(spawn.run, None)
            self._failures = 0
        self._retry_at_s = self._report_at_s = None
        self._reason = ""
        self._log.info("waiting runs start again")
        if self._reported:
            self._reported = False
            self._send({"op": "starts", "waiting": 0, "why": None})


class MemoryReserve:
    """A memory reserve, which lets the root supervise active runs when no memory is left.

    The reserve is mapped but never touched. It uses no page, but counts against RLIMIT_AS and vm.overcommit_memory.
    When memory runs out, the reserve is released for supervision, and new runs, which would use it up, wait. It is
    mapped again as soon as twice as much is free.

    Args:
        clock: The clock of the control thread.
        log: The daemon's log.
        on_change: Called with True when memory is short, and with False when it is available again.
    """

    def __init__(self, clock: Clock, log: Log, on_change: Callable[[bool], None]) -> None:
        self._clock = clock
        self._log = log
        self._on_change = on_change
        self._mapping = _mapped(_RESERVE_BYTES)
        self._found_free = False
        """Whether memory was found free in this round of the control thread."""
        self.due_s: float | None = None
        """When :meth:`tick` is due (monotonic seconds)."""

    @property
    def released(self) -> bool:
        """Return whether the reserve is released."""
        return self.due_s is not None

    def tick(self, now_s: float) -> None:
        """Map the reserve again if it is due and memory is free (monotonic seconds)."""
        self._found_free = False
        if self.due_s is not None and now_s >= self.due_s:
            self.due_s = now_s + _RESERVE_RETRY_S
            self.is_enough()

    def is_enough(self) -> bool:
        """Return whether there is enough memory to start a run."""
        if self._found_free:
            return True
        free = _mapped(_RESERVE_BYTES if self._mapping is not None else 2 * _RESERVE_BYTES)
        if free is None:
            self.release()
            return False
        free.close()
        if self._mapping is None:
            self._mapping = _mapped(_RESERVE_BYTES)
        if self.due_s is not None:
            self.due_s = None
            self._log.info("memory is available again")
            self._on_change(False)
        self._found_free = True
        return True

    def release(self) -> None:
        """Release the reserve, because memory has run out."""
        self._found_free = False
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None
        if self.due_s is None:
            self.due_s = self._clock.monotonic_s() + _RESERVE_RETRY_S
            self._log.error("out of memory: new runs wait until memory is available")
            self._on_change(True)


def _mapped(size: int) -> mmap.mmap | None:
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError):  # ENOMEM
        return None
