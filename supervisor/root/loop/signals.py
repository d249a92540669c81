"""Signals of the root process: which ones it handles or ignores, and how they reach the loop.

A signal handler only notes the number and wakes the loop. The root also catches signals that it ignores: execve(2)
resets caught signals to their default action in a child but keeps ignored ones, and the log can name a caught signal.
"""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterable
from types import FrameType
from typing import NamedTuple, Self

from supervisor.host.signal_sets import STOPS_OF_TERMINALS, ignored, signal_name

_SHUTDOWN: set[int] = {signal.SIGTERM, signal.SIGINT}
_SHUTDOWN_OF_INIT: set[int] = {*_SHUTDOWN, signal.SIGQUIT, signal.SIGPWR, signal.SIGRTMIN + 3}
_OTHERS: set[int] = {signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD}
_MANY = 4096
_QUIET_S = 60.0


class SignalRoles(NamedTuple):
    """The signals that the root catches, by their effect on the daemon."""

    shutdown: set[int]
    immediate_shutdown: set[int]
    """They stop the daemon and kill its runs at once."""
    ignored: set[int]
    """They are only logged."""

    @classmethod
    def of_daemon(cls) -> Self:
        """Return the roles for a daemon that another process started."""
        immediate: set[int] = {signal.SIGQUIT}
        return cls(_SHUTDOWN, immediate, ignored(_SHUTDOWN | immediate | _OTHERS))

    @classmethod
    def of_init(cls) -> Self:
        """Return the roles for process 1, to which the kernel delivers only caught signals."""
        return cls(_SHUTDOWN_OF_INIT, set(), ignored(_SHUTDOWN_OF_INIT | _OTHERS))

    @property
    def caught(self) -> set[int]:
        """All signals that the root catches, including SIGHUP, SIGUSR2 and SIGCHLD, which belong to no set above."""
        return self.shutdown | self.immediate_shutdown | self.ignored | _OTHERS


class IgnoredSignals:
    """Logs the signals that the daemon ignores, with at most one line per minute.

    Each line names all ignored signals since the previous line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._names: set[str] = set()
        self._quiet_until_s = float("-inf")

    def note(self, numbers: Iterable[int], now_s: float) -> None:
        """Log these signals, or keep them for the next line. `now_s` is the current time in monotonic seconds."""
        self._names.update(map(signal_name, numbers))
        if self._names and now_s >= self._quiet_until_s:
            self._say(f"{', '.join(sorted(self._names))} ignored")
            self._names.clear()
            self._quiet_until_s = now_s + _QUIET_S


class Signals:
    """Catches signals in the main thread. Its descriptor is readable while there are caught signals."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._caught: set[int] = set()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        for number in numbers:
            signal.signal(number, self._note)
        for number in STOPS_OF_TERMINALS:
            signal.signal(number, signal.SIG_IGN)
        # The bytes only wake the loop. They do not carry the numbers, because a full socket would lose some.
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
            self._bell.recv(_MANY)  # if more bytes remain, the descriptor stays readable
        caught, self._caught = self._caught, set()
        return caught

    def close(self) -> None:
        """Stop waking the loop; the handlers stay."""
        signal.set_wakeup_fd(-1)
        self._bell.close()
        self._ringer.close()
