"""Notices that a client hangs up while its answer takes its time."""

import socket
import ssl
from collections.abc import Callable
from typing import Any

import gevent


class Departure:
    """Of one client, while its request is answered.

    Args:
        sock: gevent's socket of the connection.
        told: Called on the loop when it has gone.
    """

    __slots__ = ("_peeked", "_told", "_watcher", "seen")

    def __init__(self, sock: Any, told: Callable[[], object]) -> None:
        self.seen = False
        """Whether it has gone."""
        # Under TLS a farewell comes before the end, and is not to be told from anything else without reading it.
        self._peeked = None if isinstance(sock, ssl.SSLSocket) else sock._sock  # noqa: SLF001
        self._told = told
        self._watcher: Any = gevent.get_hub().loop.io(sock.fileno(), 1)
        self._watcher.start(self._readable)

    def _readable(self) -> None:
        try:
            data = b"" if self._peeked is None else self._peeked.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:  # ECONNRESET
            data = b""
        # Bytes from the client belong to its next request, and stay for later.
        self._watcher.stop()
        if not data:
            self.seen = True
            self._told()

    def close(self) -> None:
        """Look no more."""
        self._watcher.stop()
        self._watcher.close()
