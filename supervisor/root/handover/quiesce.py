"""Pauses the pump and the file thread, so that their state does not change."""

import threading
from collections.abc import Callable

from supervisor.host.clock import Wakeup
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump

_PATIENCE_S = 5.0
"""How long both threads may take to pause. A thread that waits for a hung disk never does."""


class Gate:
    """A barrier at which a thread waits until the control thread opens it."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._open = threading.Event()

    def wait(self) -> None:
        """Report that the calling thread has arrived, and block it."""
        self._arrived()
        self._open.wait()

    def open(self) -> None:
        """Release the thread."""
        self._open.set()


class Quiesce:
    """Pauses the file thread, which may take long, and then the pump. Belongs to the control thread."""

    def __init__(self, watch: EpollWatch, pump: Pump, files: FileThread) -> None:
        self._clock = watch.clock
        self._pump = pump
        self._files = files
        self._wakeup = Wakeup()
        self._gates: list[Gate] = []
        self._arrived: set[Gate] = set()
        self._then: Callable[[bool], None] | None = None
        self.due_s: float | None = None
        """Monotonic time at which :meth:`tick` gives up; None: no pause is in progress."""
        watch.add(self._wakeup.fileno(), self._on_wakeup)

    def start(self, then: Callable[[bool], None]) -> None:
        """Call ``then(True)`` once both threads wait. If that takes too long, release both and call ``then(False)``."""
        self._then = then
        self.due_s = self._clock.monotonic_s() + _PATIENCE_S
        self._files.hold(self._new_gate().wait)

    def _new_gate(self) -> Gate:
        def arrived() -> None:
            self._arrived.add(gate)
            self._wakeup.set()

        gate = Gate(arrived)
        self._gates.append(gate)
        return gate

    def _on_wakeup(self, _mask: int) -> None:
        self._wakeup.clear()
        if self.due_s is None or not self._arrived.issuperset(self._gates):  # gates of an earlier pause may report late
            return
        if len(self._gates) == 1:
            self._pump.hold(self._new_gate().wait)
            return
        self.due_s = None
        if self._then is not None:
            self._then(True)

    def tick(self, now_s: float) -> None:
        """Give up if the pause has taken too long."""
        if self.due_s is not None and now_s >= self.due_s:
            self.release()
            if self._then is not None:
                self._then(False)

    def release(self) -> None:
        """Release both threads."""
        self.due_s = None
        for gate in self._gates:
            gate.open()
        self._gates.clear()
        self._arrived.clear()
