"""SIGHUP: a request to reload the configuration, or the end of the terminal in which the daemon runs.

The kernel and shells send the same signal for both. To tell them apart, the daemon asks the terminal: after a hang-up,
poll(2) returns POLLHUP. A daemon under nohup(1), or whose standard error is not a terminal, always reloads.
"""

import os
import select
import signal
from collections.abc import Callable

from supervisor.host.clock import Clock
from supervisor.root.service_manager.sd_notify import notify


class Terminal:
    """The controlling terminal behind a descriptor; created before SIGHUP is caught."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.ends_us = os.isatty(fd) and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        """Whether the daemon ends when the terminal is closed."""

    @property
    def has_hung_up(self) -> bool:
        """Return whether the terminal has hung up."""
        if not self.ends_us:
            return False
        poll = select.poll()
        poll.register(self._fd, 0)  # poll(2) always reports POLLHUP and POLLERR
        return bool(poll.poll(0))


class ReloadSignal:
    """Passes reload requests to the scheduler, and reports their completion to the service manager."""

    def __init__(self, send: Callable[[dict[str, object]], None], clock: Clock) -> None:
        """`send` sends a message to the scheduler, if there is one."""
        self._send = send
        self._clock = clock
        self._under_way = False
        self.pending = False
        """Whether the scheduler must still reload the configuration."""

    def request_reload(self) -> None:
        """Request a reload of the configuration."""
        self.pending = True
        self.announce()
        self._send({"op": "reload"})

    def announce(self) -> None:
        """Announce the reload to the service manager, until :meth:`end`."""
        self._under_way = True
        notify(f"RELOADING=1\nMONOTONIC_USEC={int(self._clock.monotonic_s() * 1_000_000)}")

    def resume(self, *, pending: bool) -> None:
        """Resume a reload that the previous root announced; `pending`: the scheduler has not answered yet."""
        self._under_way, self.pending = True, pending

    def scheduler_started(self) -> None:
        """Repeat an unanswered request to a new scheduler, which knows whether the configuration was applied."""
        if self.pending:
            self._send({"op": "reload"})
        self.end()

    def reloaded(self) -> None:
        """Record that the scheduler has reloaded the configuration."""
        self.pending = False
        self.end()

    def end(self) -> None:
        """Report the end of the reload to the service manager once the scheduler has answered."""
        if self._under_way and not self.pending:
            self._under_way = False
            notify("READY=1\nSTATUS=running")
