"""How a body goes to a client, without a server."""

import pytest

from api.sending import PIECE_BYTES, write


class Socket:
    """Keeps what it is given; of what is only to be sent it takes no more than it has room for."""

    def __init__(self, room: int) -> None:
        self.pieces: list[bytes] = []
        self._room = room

    def send(self, data: bytes) -> int:
        self.pieces.append(bytes(data[: self._room]))
        return len(self.pieces[-1])

    def sendall(self, data: bytes) -> None:
        self.pieces.append(bytes(data))


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES + 7])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("room", [PIECE_BYTES, 100, 1])
def test_pieces(size: int, chunked: bool, room: int) -> None:
    """Each has a time limit of its own, so none is large; together they are the body, or one chunk of it."""
    sock, data = Socket(room), bytes(number % 251 for number in range(size))
    write(sock, data, chunked)
    assert all(len(piece) <= PIECE_BYTES for piece in sock.pieces)
    assert b"".join(sock.pieces) == (b"%X\r\n%b\r\n" % (size, data) if chunked else data)
