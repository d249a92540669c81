"""Detection of clients that disconnect while a response takes long."""

import socket
import ssl
from collections.abc import Callable
from typing import Any

import gevent


class DisconnectWatch:
    """A watch for the disconnection of a client during its request.

    Args:
        sock: gevent's socket of the connection.
        on_disconnect: Called on the event loop when the client has disconnected.
    """

    __slots__ = ("_on_disconnect", "_peeked", "_watcher", "seen")

    def __init__(self, sock: socket.socket, on_disconnect: Callable[[], object]) -> None:
        self.seen = False
        """Whether the client has disconnected."""
        # Under TLS a close alert precedes the end of the connection, and only a read can tell it from other data. So
        # any data counts as a disconnection there.
        self._peeked = None if isinstance(sock, ssl.SSLSocket) else sock
        self._on_disconnect = on_disconnect
        self._watcher: Any = gevent.get_hub().loop.io(sock.fileno(), 1)
        self._watcher.start(self._readable)

    def _readable(self) -> None:
        try:
            data = b"" if self._peeked is None else _peek(self._peeked)
        except BlockingIOError:
            return
        except OSError:  # ECONNRESET
            data = b""
        # Received bytes belong to the client's next request and stay in the socket.
        self._watcher.stop()
        if not data:
            self.seen = True
            self._on_disconnect()

    def close(self) -> None:
        """Stop watching."""
        self._watcher.stop()
        self._watcher.close()


def _peek(sock: socket.socket) -> bytes:
    """Return the next byte without consuming it or waiting: gevent forbids waiting in a callback of the loop.

    Raises:
        OSError: no data has arrived, or the connection is broken.
    """
    timeout_s = sock.gettimeout()
    sock.settimeout(0.0)
    try:
        data: bytes = sock.recv(1, socket.MSG_PEEK)
    finally:
        sock.settimeout(timeout_s)
    return data
