"""Answers in pieces, each with the full time limit of the socket.

A time limit of a socket is one for all that one ``sendall`` is given. Gunicorn gives it a whole body; so a client on a
slow line would be cut off during a large page, although it reads without a pause.

Gunicorn sends the head of an answer by itself, which wakes a client for nothing: here the head and the beginning of the
body are one piece.
"""

import time
from typing import Any

import gevent
from gunicorn.http import wsgi

PIECE_BYTES = 65536

taking: dict[gevent.Greenlet, float] = {}
"""Those whose clients are to take a piece, and since when (monotonic): who waits for that longest is the first."""


def frame(data: bytes) -> bytes:
    """A chunk of a body that is sent in chunks (RFC 9112, 7.1); nothing, for nothing: that would end the body."""
    return b"%X\r\n%b\r\n" % (len(data), data) if data else b""


def give(sock: Any, piece: bytes | memoryview) -> None:
    """Send a piece; the client takes it when it likes.

    Raises:
        OSError: it is gone, or took too long.
    """
    greenlet = gevent.getcurrent()
    taking[greenlet] = time.monotonic()
    try:
        # Nearly always the kernel takes all of it at once, and then ``sendall`` costs twice as much.
        sent = sock.send(piece)
        if sent < len(piece):
            sock.sendall(memoryview(piece)[sent:])
    finally:
        del taking[greenlet]


class PatientSocket:
    """The socket of a client, to which a response writes: sends one piece after the other."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def sendall(self, data: bytes) -> None:
        """Send `data`, each piece with the socket's whole patience."""
        if len(data) <= PIECE_BYTES:
            give(self._sock, data)
            return
        view = memoryview(data)
        for begin in range(0, len(view), PIECE_BYTES):
            give(self._sock, view[begin : begin + PIECE_BYTES])


class _Pieces:
    """Keeps bytes that are meant for a socket."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data: bytes) -> None:
        self.data += data


class Response(wsgi.Response):  # type: ignore[misc]  # gunicorn has no types
    """An answer that goes out in pieces."""

    sock: Any

    def __init__(self, req: Any, sock: Any, cfg: Any) -> None:
        super().__init__(req, PatientSocket(sock), cfg)

    def write(self, arg: bytes) -> None:
        """Send a part of the body; with the first one, unless it is large, the head."""
        if self.headers_sent or len(arg) > PIECE_BYTES // 2:
            super().write(arg)
            return
        sock, self.sock = self.sock, _Pieces()
        try:
            super().write(arg)
        finally:
            pieces, self.sock = self.sock, sock
        sock.sendall(pieces.data)
