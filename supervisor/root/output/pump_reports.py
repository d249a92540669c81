"""Reports of the pump about logs, on their way to the control thread."""

import collections
from collections.abc import Callable

from supervisor.host.osport import Wakeup
from supervisor.ipc.messages import Frame
from supervisor.root.loop.epoll_watch import EpollWatch


class PumpReports:
    """The pump's listener: takes note in the pump thread, and tells in the control thread, in the same order.

    Args:
        watch: calls us.
        send: takes a frame to the scheduler.
        on_end: hears of a run whose pipes have all reached their end, and whether its log was still empty then.
        on_sealed: hears of a run whose log is complete, and how many lines that has.
        on_overflow: hears of a run whose output passed the size at which it is to be stopped.
        on_short: hears of what failed in the pump because something had run out.
    """

    def __init__(
        self,
        watch: EpollWatch,
        send: Callable[[Frame], None],
        *,
        on_end: Callable[[str, bool], None],
        on_sealed: Callable[[str, int], None],
        on_overflow: Callable[[str], None],
        on_short: Callable[[BaseException], None],
    ) -> None:
        self._send = send
        self._on_end = on_end
        self._on_sealed = on_sealed
        self._on_overflow = on_overflow
        self._on_short = on_short
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()
        self._wakeup = Wakeup()
        watch.add(self._wakeup.fileno(), lambda _mask: self._tell())

    # Called in the pump thread.

    def at_end(self, run: str, *, silent: bool) -> None:
        """Report that all pipes of `run` have ended; `silent`: its log was empty until then."""
        self._waiting.append(lambda: self._on_end(run, silent))

    def sealed(self, run: str, lines: int) -> None:
        """Report that the log of `run` is complete."""
        self._waiting.append(lambda: self._on_sealed(run, lines))

    def overflowed(self, run: str) -> None:
        """Report that the output of `run` passed the size at which it is to be stopped."""
        self._waiting.append(lambda: self._on_overflow(run))

    def log_changed(self, run: str, state: str, reason: str | None) -> None:
        """Report a changed state of the log of `run`."""
        self._waiting.append(lambda: self._send({"op": "log", "run": run, "state": state, "reason": reason}))

    def ran_short(self, err: BaseException) -> None:
        """Report that a step failed for a shortage."""
        self._waiting.append(lambda: self._on_short(err))

    def wake(self) -> None:
        """Wake the control thread, if there is something for it."""
        if self._waiting:
            self._wakeup.set()

    # Called in the control thread.

    def catch_up(self) -> bool:
        """Deliver the reports; return whether there were any."""
        busy = bool(self._waiting)
        self._tell()
        return busy

    def _tell(self) -> None:
        self._wakeup.clear()
        while self._waiting:
            self._waiting.popleft()()
