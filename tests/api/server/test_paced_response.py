"""How a body goes to a client, without a server."""

from types import SimpleNamespace

import pytest
from gunicorn import util
from gunicorn.config import Config

from api.server.paced_response import PIECE_BYTES, PacedSocket, Response


class Socket:
    """Keeps all written data; send takes no more than it has room for. It has no sendall, which has one time limit."""

    def __init__(self, room: int) -> None:
        self.pieces: list[bytes] = []
        self._room = room

    def send(self, data: bytes) -> int:
        self.pieces.append(bytes(data[: self._room]))
        return len(self.pieces[-1])


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES + 7])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("room", [PIECE_BYTES, 100, 1])
def test_pieces(size: int, chunked: bool, room: int) -> None:
    """Each send has the whole time limit, so a slow client stays; together they are the body, or one chunk."""
    sock, data = Socket(room), bytes(number % 251 for number in range(size))
    util.write(PacedSocket(sock), data, chunked)
    assert all(len(piece) <= PIECE_BYTES for piece in sock.pieces)
    assert b"".join(sock.pieces) == (b"%X\r\n%b\r\n" % (size, data) if chunked else data)


@pytest.mark.parametrize(("first", "packets"), [(10, 2), (PIECE_BYTES // 2, 2), (PIECE_BYTES // 2 + 1, 3)])
def test_head_is_sent_with_the_body(first: int, packets: int) -> None:
    """A client is woken once for head and body; a large part is sent by itself."""
    sock = Socket(10 * PIECE_BYTES)
    unreader = SimpleNamespace(awaits_continue=False)
    request = SimpleNamespace(version=(1, 1), method="GET", headers=[], should_close=lambda: False, unreader=unreader)
    response = Response(request, sock, Config())
    response.start_response("200 OK", [("Content-Length", str(first + 3))])
    response.write(b"x" * first)
    response.write(b"end")
    head, body = b"".join(sock.pieces).split(b"\r\n\r\n", 1)
    assert (head.splitlines()[0], body) == (b"HTTP/1.1 200 OK", b"x" * first + b"end")
    assert len(sock.pieces) == packets
