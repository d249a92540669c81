"""SIGHUP: a wish to have the configuration read again, or the end of the terminal that we run on.

Both come as the same signal, from the kernel or from a shell that forwards it. The terminal tells the two apart: after
a hang-up, poll(2) reports it. A daemon under nohup(1), which ignores SIGHUP for its command, or without a terminal as
standard error always reloads.
"""

import os
import select
import signal
import time
from collections.abc import Callable

from supervisor.root.service_manager.sd_notify import notify


class Terminal:
    """The controlling terminal behind a descriptor; created before SIGHUP is caught."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.ends_us = os.isatty(fd) and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        """Whether the daemon ends with the terminal."""

    @property
    def gone(self) -> bool:
        """Return whether the terminal has hung up."""
        if not self.ends_us:
            return False
        poll = select.poll()
        poll.register(self._fd, 0)  # POLLHUP and POLLERR come unasked
        return bool(poll.poll(0))


class ReloadSignal:
    """Passes reload requests to the scheduler, and reports their completion to the service manager."""

    def __init__(self, send: Callable[[dict[str, object]], None]) -> None:
        """Start; `send` passes a message to the scheduler, if there is one."""
        self._send = send
        self._under_way = False
        self.asked = False
        """Whether the scheduler has still to read the configuration again."""

    def begin(self) -> None:
        """Request a reload of the configuration."""
        self.asked = True
        self.announce()
        self._send({"op": "reload"})

    def announce(self) -> None:
        """Announce the reload to the service manager, until :meth:`end`."""
        self._under_way = True
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def resume(self, *, asked: bool) -> None:
        """Resume a reload that another root announced; `asked`: without an answer of its scheduler."""
        self._under_way, self.asked = True, asked

    def scheduler_started(self) -> None:
        """Ask a new scheduler, which knows the applied configuration, for the result."""
        if self.asked:
            self._send({"op": "reload"})
        self.end()

    def reloaded(self) -> None:
        """Record that the scheduler has read the configuration again."""
        self.asked = False
        self.end()

    def end(self) -> None:
        """Report the end of the reload to the service manager, once, when the scheduler has answered."""
        if self._under_way and not self.asked:
            self._under_way = False
            notify("READY=1\nSTATUS=running")
