"""Signals of the root process: which of them it handles or ignores, and how its loop learns of them.

A handler only notes the number and wakes the loop. An unused signal is caught, too, because a child starts
with the default action of each caught signal (execve(2)), and because the log can name the signal.
"""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterable
from types import FrameType

from supervisor.host.signal_sets import STOPS_OF_TERMINALS, signal_name

_MANY = 4096
_QUIET_S = 60.0


class IgnoredSignals:
    """Names the signals that the daemon ignores in its log, in at most one line a minute.

    A line also names the signals that came since the line before it.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._names: set[str] = set()
        self._quiet_until_s = float("-inf")

    def note(self, numbers: Iterable[int], now_s: float) -> None:
        """Log these signals at `now_s` (monotonic seconds), or keep them for the next line."""
        self._names.update(map(signal_name, numbers))
        if self._names and now_s >= self._quiet_until_s:
            self._say(f"{', '.join(sorted(self._names))} ignored")
            self._names.clear()
            self._quiet_until_s = now_s + _QUIET_S


class Signals:
    """Catches signals in the main thread; readable while some were caught."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._caught: set[int] = set()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        for number in numbers:
            signal.signal(number, self._note)
        for number in STOPS_OF_TERMINALS:
            signal.signal(number, signal.SIG_IGN)
        # The bytes only wake the loop: a full socket would lose a number.
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._caught.add(number)

    def fileno(self) -> int:
        """Return the descriptor, for epoll."""
        return self._bell.fileno()

    @property
    def caught(self) -> set[int]:
        """Return the result of the next :meth:`take`, without clearing it."""
        return set(self._caught)

    def take(self) -> set[int]:
        """Return the signals that were caught since the last call."""
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(_MANY)  # if there is more, it is readable again
        caught, self._caught = self._caught, set()
        return caught

    def close(self) -> None:
        """Stop waking the loop; the handlers stay."""
        signal.set_wakeup_fd(-1)
        self._bell.close()
        self._ringer.close()
