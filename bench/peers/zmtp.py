"""The part of ZeroMQ's protocol for a client that sends one request at a time over a Unix socket.

ZMTP 3.0 with the mechanism NULL, from a DEALER to a ROUTER, https://rfc.zeromq.org/spec/23/::

    greeting   FF 00 00 00 00 00 00 00 00 7F  03 00  "NULL" padded to 20  as-server 00  31 filler
    frame      flags (1 more follow, 2 long, 4 command)  length (1 byte, big-endian 8 when long)  body
    command    length of the name, name, then for READY each property: length and name, length (4) and value
"""

import socket

from bench.client import Failed

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4


def _sized(text: bytes, size_bytes: int = 1) -> bytes:
    return len(text).to_bytes(size_bytes, "big") + text


_READY = _sized(b"READY") + _sized(b"Socket-Type") + _sized(b"DEALER", 4) + _sized(b"Identity") + _sized(b"", 4)


class Dealer:
    """A connection; every wait ends after `wait_s`."""

    def __init__(self, path: str, wait_s: float) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        try:
            self._sock.settimeout(wait_s)
            self._sock.connect(path)
            self._greet()
        except BaseException:
            self._sock.close()
            raise

    def _greet(self) -> None:
        self._sock.sendall(_GREETING)
        theirs = self._read(len(_GREETING))
        if theirs[0] != _GREETING[0] or theirs[9] != _GREETING[9]:  # the bytes between them are for older versions
            raise Failed("that is no ZeroMQ socket")
        self._sock.sendall(bytes([_COMMAND]) + _sized(_READY))
        if not self._frame()[0] & _COMMAND:
            raise Failed("the ZeroMQ socket does not introduce itself")

    def _read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            more = self._sock.recv(size_bytes - len(data))
            if not more:
                raise Failed("the ZeroMQ socket was closed")
            data += more
        return data

    def _frame(self) -> tuple[int, bytes]:
        (flags,) = self._read(1)
        return flags, self._read(int.from_bytes(self._read(8 if flags & _LONG else 1), "big"))

    def send(self, body: bytes) -> None:
        """Send a message of one frame."""
        self._sock.sendall(bytes([_LONG]) + _sized(body, 8) if len(body) > 255 else b"\0" + _sized(body))

    def receive(self) -> bytes:
        """Wait for a message; returns its last frame."""
        while True:
            flags, body = self._frame()
            if not flags & (_COMMAND | _MORE):
                return body

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()
