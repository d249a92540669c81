"""Notifications to the service manager by sd_notify(3): a datagram to ``$NOTIFY_SOCKET``."""

import contextlib
import os
import socket
from collections.abc import Mapping

_US = 1_000_000


def notify(text: str, address: str | None = None) -> None:
    """Send newline-separated assignments such as ``READY=1``. Without a receiver, this does nothing."""
    path = address if address is not None else os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    # A leading @ represents the NUL byte of an abstract address (unix(7)).
    target = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(text.encode(), target)


def tell_descriptor(fd: int) -> None:
    """Report readiness to s6, dinit or OpenRC: write a line to the descriptor and close it."""
    with contextlib.suppress(OSError):  # EPIPE, EAGAIN: the pipe has no reader, or is full
        os.write(fd, b"\n")
    os.close(fd)


class Watchdog:
    """Sends keep-alive messages twice as often as the service manager requires (sd_watchdog_enabled(3)).

    Args:
        env: Contains ``WATCHDOG_USEC`` if there is a watchdog, and ``WATCHDOG_PID`` if it watches a certain process.
        now_s: The monotonic time at which the first message is due.
    """

    def __init__(self, env: Mapping[str, str], now_s: float) -> None:
        patience, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", str(os.getpid()))
        watched = patience.isdecimal() and int(patience) > 0 and pid == str(os.getpid())
        self._every_s = int(patience) / _US / 2 if watched else 0.0
        self.due_s: float | None = now_s if watched else None
        """Monotonic time at which :meth:`tick` is due; None: never."""

    def tick(self, now_s: float) -> None:
        """Send a keep-alive message if it is due."""
        if self.due_s is not None and now_s >= self.due_s:
            notify("WATCHDOG=1")
            self.due_s = now_s + self._every_s
