"""Responses sent in pieces. Whenever the client has read something, the timeout of the socket starts again.

The timeout of a socket applies to a whole ``sendall``, to which gunicorn passes the whole body. A client on a slow line
would be disconnected in the middle of a large page, although it reads all the time.

gunicorn also sends the head separately, which wakes the client in vain. Here the head and the start of the body are
sent as one piece.
"""

import time
from typing import Any

import gevent
from gunicorn.http import wsgi

PIECE_BYTES = 65536

taking: dict[gevent.Greenlet, float] = {}
"""Greenlets that are sending a piece, with the monotonic time at which they started, longest wait first."""


def frame(data: bytes) -> bytes:
    """Encode a chunk of a chunked body (RFC 9112, 7.1).

    Empty data yields nothing, because an empty chunk ends the body.
    """
    return b"%X\r\n%b\r\n" % (len(data), data) if data else b""


def give(sock: Any, piece: bytes | memoryview) -> None:
    """Send a piece and wait until the kernel has accepted it.

    Raises:
        OSError: the client disconnected, or read nothing for the timeout of the socket.
    """
    greenlet = gevent.getcurrent()
    taking[greenlet] = time.monotonic()
    try:
        # The kernel nearly always accepts everything at once; ``sendall`` has only one timeout for everything.
        sent = sock.send(piece)
        while sent < len(piece):
            sent += sock.send(memoryview(piece)[sent:])
    finally:
        del taking[greenlet]


class PacedSocket:
    """The socket of a response, which sends data piece by piece, to record when the client last took one."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def sendall(self, data: bytes) -> None:
        """Send `data` in pieces."""
        if len(data) <= PIECE_BYTES:
            give(self._sock, data)
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            give(self._sock, view[start : start + PIECE_BYTES])


class _Pieces:
    """A buffer with the interface of a socket."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data: bytes) -> None:
        self.data += data


class Response(wsgi.Response):  # type: ignore[misc]  # gunicorn has no types
    """A response that is sent in pieces."""

    sock: Any

    def __init__(self, req: Any, sock: Any, cfg: Any) -> None:
        super().__init__(req, PacedSocket(sock), cfg)

    def start_response(self, *args: Any) -> Any:
        """Begin the response. If the client still waits for a 100, close the connection after the response.

        The client then sends no body; nobody could tell a body from the next request.
        """
        if self.req.unreader.awaits_continue:
            self.req.body.failed = True
            self.force_close()
        return super().start_response(*args)

    def write(self, arg: bytes) -> None:
        """Send a part of the body. The first part, unless it is large, is sent together with the head."""
        if self.headers_sent or len(arg) > PIECE_BYTES // 2:
            super().write(arg)
            return
        sock, self.sock = self.sock, _Pieces()
        try:
            super().write(arg)
        finally:
            pieces, self.sock = self.sock, sock
        sock.sendall(pieces.data)
