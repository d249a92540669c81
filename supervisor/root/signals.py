"""Signals for a loop: handlers only note the number and wake it."""

import contextlib
import signal
import socket
from collections.abc import Iterable
from types import FrameType

_MANY = 4096


class Signals:
    """Catches signals in the main thread; readable while some were caught."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._caught: set[int] = set()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        for number in numbers:
            signal.signal(number, self._note)
        # What is written to it only wakes: when it is full, a number would be lost.
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._caught.add(number)

    def fileno(self) -> int:
        """For epoll."""
        return self._bell.fileno()

    @property
    def caught(self) -> set[int]:
        """What :meth:`take` would return."""
        return set(self._caught)

    def take(self) -> set[int]:
        """What was caught since the last time."""
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(_MANY)  # if there is more, it is readable again
        caught, self._caught = self._caught, set()
        return caught

    def close(self) -> None:
        """Wake nobody any more; the handlers stay."""
        signal.set_wakeup_fd(-1)
        self._bell.close()
        self._ringer.close()
