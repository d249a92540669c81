"""Telling the service manager how far we are: sd_notify(3), a datagram to ``$NOTIFY_SOCKET``."""

import contextlib
import os
import socket


def notify(text: str, address: str | None = None) -> None:
    """Send newline-separated assignments such as ``READY=1``; nothing happens when nobody listens."""
    path = address if address is not None else os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    # A leading @ stands for the NUL of an abstract address (unix(7)).
    target = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(text.encode(), target)
